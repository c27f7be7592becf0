# Two commands need nothing but Python 3.11+, git and make:
#   make book   the HTML book in _build/html      make test   every notebook, every test, and no drift
# Others: make help

OLDEST := 3.11
MODERN := import sys; sys.exit(sys.version_info < tuple(map(int, "$(OLDEST)".split("."))))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do "$$p" -c '$(MODERN)' 2>/dev/null && echo "$$p" && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
# Where pip finds torch; on Linux without a GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu saves several GB.
TORCH_INDEX ?=
PORT ?= 8000
export PATH := $(CURDIR)/$(BIN):$(PATH)
export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help book pdf test serve export clean prepare lint style check execute browser dist-check oldest vendor distclean new-chapter hooks release-check

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): constraints.txt settings.ini setup.py
	@"$(PYTHON)" -c '$(MODERN)' 2>/dev/null || { echo "transformer_ols needs Python $(OLDEST) or newer, found $$(python3 --version 2>/dev/null || echo none); install one, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/pip || "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Installing the pinned environment into $(VENV) (once, a few minutes)"
	@$(BIN)/pip install -q -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@$(BIN)/pip install -q -c constraints.txt setuptools wheel
	@$(BIN)/pip install -q -c constraints.txt --no-build-isolation -e '.[plot,sklearn,book,dev]'
	@touch $@

execute: $(STAMP)
	@$(BIN)/python tools/execute.py

book: execute ## the HTML book, in _build/html
	@rm -rf _build/html _build/.doctrees
	@$(BIN)/jupyter-book build . -W --keep-going --all -q
	@echo "The book is built. Open $(CURDIR)/_build/html/index.html, or run: make serve"

browser: book ## look at every page in headless Chromium: screenshots in _build/screenshots
	@$(BIN)/python tools/check_browser.py

pdf: execute ## the whole book as one PDF, in _build/pdf/book.pdf (needs TeX)
	@$(BIN)/python tools/build_pdf.py
	@$(BIN)/python tools/check_pdf.py

test: execute check ## every notebook, every test, notebooks clean, library = notebooks
	@$(BIN)/pytest -n 2

check: $(STAMP)
	@$(BIN)/python tools/check_clean.py
	@$(BIN)/python tools/check_legible.py

style: $(STAMP)
	@$(BIN)/ruff check nbs tools tests benchmarks setup.py
	@$(BIN)/ruff format --check -q nbs tools tests benchmarks setup.py

lint: style ## style of notebooks, tools and tests; types of the exported package
	@$(BIN)/mypy

serve: book ## build the book and serve it at http://127.0.0.1:8000 (PORT=8001 for another port)
	@$(BIN)/python -c 'import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.1", $(PORT)))' 2>/dev/null || { echo "port $(PORT) is busy; choose another: make serve PORT=$$(( $(PORT) + 1 ))"; exit 1; }
	@$(BIN)/python -m http.server -d _build/html --bind 127.0.0.1 $(PORT)

export: $(STAMP) ## write transformer_ols/ from the notebooks
	@$(BIN)/nbdev_export

clean: $(STAMP) ## strip outputs and metadata from the notebooks
	@$(BIN)/nbdev_clean --clear_all

prepare: export clean lint test ## all of it, before a commit

new-chapter: $(STAMP) ## a chapter's files: make new-chapter NAME=17_topic TITLE="A title"
	@$(BIN)/python tools/new_chapter.py "$(NAME)" "$(TITLE)"

dist-check: $(STAMP) ## build the package and try it in an empty environment, as a reader would (1 GB for a while)
	@$(BIN)/python tools/dist_check.py

oldest: $(STAMP) ## the library's tests under the oldest versions that settings.ini allows (1 GB for a while)
	@$(BIN)/python tools/oldest.py

hooks: $(STAMP) ## in this clone: check before every commit, merge notebooks cell by cell
	@$(BIN)/python tools/install_hooks.py --venv "$(VENV)"

release-check: $(STAMP) ## whether this version may be released
	@$(BIN)/python tools/release_check.py
	@$(MAKE) --no-print-directory test lint book dist-check
	@$(BIN)/python tools/check_book.py _build/html
	@$(BIN)/python tools/release_check.py

vendor: ## fetch MathJax and axe-core anew (needs npm) and compare with the recorded checksums
	@rm -rf _build/vendor && mkdir -p _build/vendor/mathjax _build/vendor/axe && cd _build/vendor && npm pack --silent mathjax@3.2.2 axe-core@4.14.1 >/dev/null
	@tar xzf _build/vendor/mathjax-3.2.2.tgz -C _build/vendor/mathjax && tar xzf _build/vendor/axe-core-4.14.1.tgz -C _build/vendor/axe
	@mkdir -p book_static/mathjax/output/chtml/fonts tools/vendor/axe
	@cd _build/vendor/mathjax/package && cp LICENSE es5/tex-chtml.js $(CURDIR)/book_static/mathjax/
	@cp -R _build/vendor/mathjax/package/es5/output/chtml/fonts/woff-v2 book_static/mathjax/output/chtml/fonts/
	@cd _build/vendor/axe/package && cp LICENSE LICENSE-3RD-PARTY.txt axe.min.js $(CURDIR)/tools/vendor/axe/
	@sha256sum --quiet -c tools/vendor/vendored.sha256 && echo "vendored files are as recorded"

distclean: ## remove everything that make made
	rm -rf .venv _build build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
