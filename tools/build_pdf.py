"""Build the whole book as one PDF, `_build/pdf/book.pdf`: `python tools/build_pdf.py [--have-tex]`.

The notebooks must have been executed (`make pdf` does it). Everything is made below `_build/pdf`, so the HTML book is left as it is.
Without TeX it says what to install; `--have-tex` only answers, by its exit status, whether all is there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from pdf_book import FONTS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "_build" / "pdf"
LATEX = FOLDER / "_build" / "latex"
PROGRAMS = ("latexmk", "xelatex", "xindy", "kpsewhich", "pdftotext", "pdfinfo")
FILES = ("polyglossia.sty", "tabulary.sty", "capt-of.sty", "needspace.sty", *FONTS)
PACKAGES = "texlive-xetex texlive-latex-extra texlive-fonts-recommended lmodern tex-gyre latexmk xindy "
PACKAGES += "fonts-dejavu fonts-freefont-otf poppler-utils"


def missing() -> list[str]:
    """Programs and files of TeX that are not there."""
    lacking = [program for program in PROGRAMS if not shutil.which(program)]
    if "kpsewhich" in lacking:
        return lacking
    return lacking + [name for name in FILES if subprocess.run(["kpsewhich", name], capture_output=True).returncode]


def run(*command: str, folder: Path = ROOT, **environment: str) -> None:
    """Run a command quietly; stop with the end of what it said if it fails."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        said = done.stdout.decode("utf8", "replace").splitlines()
        raise SystemExit("\n".join([*said[-40:], f"{Path(command[0]).name} failed"]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the whole book as one PDF, in _build/pdf/book.pdf.")
    parser.add_argument("--have-tex", action="store_true", help="only say, by the exit status, whether all that it needs is there")
    only_ask = parser.parse_args().have_tex
    if lacking := missing():
        print(f"the PDF needs TeX, and {', '.join(lacking)} cannot be found; on Debian and Ubuntu: apt install {PACKAGES}")
        return 1
    if only_ask:
        return 0
    shutil.rmtree(FOLDER, ignore_errors=True)
    book = str(Path(sys.executable).parent / "jupyter-book")
    run(book, "build", ".", "--path-output", str(FOLDER), "--builder", "latex", "-W", "--keep-going", "--all", "-q")
    options = "-xelatex -interaction=nonstopmode -halt-on-error -file-line-error"
    run("make", "-s", "all-pdf", f"LATEXMKOPTS={options}", folder=LATEX, max_print_line="10000", MAKEFLAGS="")
    shutil.copy(LATEX / "book.pdf", FOLDER / "book.pdf")
    print(f"The PDF is built: {FOLDER / 'book.pdf'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
