"""Each thing that must make CI fail, done on purpose to a copy of the tree; and the things it must leave alone."""

from __future__ import annotations

import hashlib
import html
import json
import re
import subprocess
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from execute import key
from lean_pages import lean_head
from pybtex.database import parse_string
from sphinx.errors import ExtensionError

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def notebook(path: Path, *sources: str) -> None:
    """Write a notebook: sources that begin with `#` and a space are prose, the rest code."""
    kinds = ["markdown" if source.startswith("# ") else "code" for source in sources]
    cells = [
        {"cell_type": kind, "id": f"c{i}", "metadata": {}, "source": source}
        | ({"outputs": [], "execution_count": None} if kind == "code" else {})
        for i, (kind, source) in enumerate(zip(kinds, sources, strict=True))
    ]
    kernel = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
    path.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


def set_address(tree: Path, url: str) -> None:
    settings = tree / "settings.ini"
    lines = [f"git_url = {url}" if line.startswith("git_url") else line for line in settings.read_text().splitlines()]
    settings.write_text("\n".join(lines) + "\n")


# ---- drift


def test_the_tree_is_clean_and_exported(run: Run) -> None:
    done = run("python", "tools/check_clean.py")
    assert done.returncode == 0, done.stdout


def test_a_hand_edit_to_a_generated_module_is_caught(tree: Path, run: Run) -> None:
    with (tree / "transformer_ols" / "attention.py").open("a") as module:
        module.write("\n# a quick fix\n")
    done = run("python", "tools/check_clean.py")
    assert done.returncode == 1
    assert "transformer_ols/attention.py: not what the notebooks export" in done.stdout


def test_a_module_without_a_notebook_is_caught(tree: Path, run: Run) -> None:
    (tree / "transformer_ols" / "extra.py").write_text("x = 1\n")
    done = run("python", "tools/check_clean.py")
    assert done.returncode == 1
    assert "transformer_ols/extra.py: not what the notebooks export" in done.stdout


def test_an_uncleared_output_is_caught(tree: Path, run: Run) -> None:
    path = tree / "nbs" / "04_attention.ipynb"
    content = json.loads(path.read_text())
    cell = next(cell for cell in content["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "left over"}]
    path.write_text(json.dumps(content))
    done = run("python", "tools/check_clean.py")
    assert done.returncode == 1
    assert "nbs/04_attention.ipynb: not clean" in done.stdout


# ---- execution


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("assert 1 == 2, 'the claim is false'", "cell 2 (assert 1 == 2, 'the claim is false') failed"),
        ("import warnings\nwarnings.warn('half the digits are gone')", "cell 2 (import warnings) printed to stderr"),
        ("#| hide\nimport sys\nprint('hm', file=sys.stderr)", "cell 2 (import sys) printed to stderr"),
        ("#| error: true\nimport warnings\nwarnings.warn('loud')", "cell 2 (import warnings) printed to stderr"),
    ],
)
def test_a_failing_or_warning_cell_fails_the_run(tree: Path, run: Run, source: str, complaint: str) -> None:
    notebook(tree / "nbs" / "99_bad.ipynb", "# Bad", source)
    done = run("python", "tools/execute.py", "nbs/99_bad.ipynb")
    assert done.returncode == 1
    assert complaint in done.stdout
    assert not list((tree / "_build" / "executed").glob("*.ipynb")), "a failed run must not be kept"


def test_a_good_notebook_is_executed_once_and_kept(tree: Path, run: Run) -> None:
    notebook(tree / "nbs" / "99_good.ipynb", "# Good", "#| error: true\n1 / 0", "print('fine')")
    first = run("python", "tools/execute.py", "nbs/99_good.ipynb")
    again = run("python", "tools/execute.py", "nbs/99_good.ipynb")
    assert first.returncode == again.returncode == 0, first.stdout + first.stderr
    assert " s\n" in first.stdout
    assert "as before" in again.stdout


def test_a_library_edit_re_executes_just_the_dependent_notebooks(tree: Path) -> None:
    notebooks = sorted((tree / "nbs").glob("*.ipynb"))

    def keys() -> dict[str, str]:
        return {path.stem: key(path.read_text(), tree) for path in notebooks}

    def changed(module: str) -> set[str]:
        before = keys()
        with (tree / "transformer_ols" / f"{module}.py").open("a") as file:
            file.write("\n# edited\n")
        return {name for name, digest in keys().items() if digest != before[name]}

    assert keys() == keys()
    regression = changed("regression")
    assert {"10_ols_transformer"} <= regression
    assert not {"00_checks", "01_prompts", "06_plots"} & regression
    assert {"01_prompts", "04_attention", "10_ols_transformer"} <= changed("checks"), "an import of an import counts"


# ---- the book

CHAPTER = "# Small\n\n> One page.\n\n$$\na = b\n$$ (eq-small)\n\nSee {eq}`%s`."
TOC = "format: jb-book\nroot: nbs/index\nchapters:\n  - file: nbs/98_small\n"


@pytest.fixture
def small_book(tree: Path, run: Run) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Build a book of two pages under the project's own configuration, with a reference to the given equation, and more text."""

    def build(reference: str, more: str = "") -> subprocess.CompletedProcess[str]:
        for path in (tree / "nbs").glob("*.ipynb"):
            path.unlink()
        (tree / "nbs" / "references.md").unlink()
        (tree / "nbs" / "index.md").write_text("# Home\n\nWelcome.\n")
        notebook(tree / "nbs" / "98_small.ipynb", CHAPTER % reference + more, "print('an output')")
        (tree / "_toc.yml").write_text(TOC)
        done = run("python", "tools/execute.py")
        assert done.returncode == 0, done.stdout
        return run("jupyter-book", "build", ".", "-W", "--keep-going", "--all", "-q")

    return build


def test_a_small_book_builds_without_any_repository_link(tree: Path, small_book: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    done = small_book("eq-small")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tree / "_build" / "html" / "nbs" / "98_small.html").read_text()
    assert "an output" in page
    assert "repository" not in page.lower()
    home = (tree / "_build" / "html" / "nbs" / "index.html").read_text()
    assert "tex-chtml.js" in page
    assert "tex-chtml.js" not in home and "window.MathJax" not in home, "a page without mathematics loads no MathJax"
    for text in (page, home):
        assert "fontawesome" in text and "all.min.js" not in text, "icons come from the stylesheet"
        assert 'localStorage.getItem("mode") || "auto"' in text


def test_a_theme_that_changed_stops_the_build() -> None:
    with pytest.raises(ExtensionError, match="the theme no longer holds"):
        lean_head("<script src='of-another-theme.js'></script>")


def test_the_repository_links_appear_with_the_address(tree: Path, small_book: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    set_address(tree, "https://code.example/owner/transformer_ols")
    done = small_book("eq-small")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tree / "_build" / "html" / "nbs" / "98_small.html").read_text()
    assert 'href="https://code.example/owner/transformer_ols"' in page


def test_a_broken_equation_reference_fails_the_book(small_book: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    done = small_book("eq-missing")
    assert done.returncode != 0
    assert "eq-missing" in done.stdout + done.stderr


THEOREM = "\n\n:::{prf:theorem} A name with $x_1$ & more\n%s\nTrue.\n:::\n"


def test_a_labelled_theorem_can_be_cited(tree: Path, run: Run, small_book: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    set_address(tree, "https://code.example/owner/transformer_ols")
    done = small_book("eq-small", THEOREM % ":label: thm-small\n" + "\n:::{prf:proof}\nClear.\n:::\n")
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tree / "_build" / "html" / "nbs" / "98_small.html").read_text()
    block = html.unescape(re.sub(r"<[^>]+>", "", page[page.index('<details class="cite-this">') : page.index("</details>")]))
    entry = parse_string(block[block.index("@") : block.index("}\n\n") + 2], "bibtex").entries["transformer_ols:small"]
    assert entry.fields["title"] == "{Small}"
    assert entry.fields["url"] == "https://code.example/owner/transformer_ols"
    assert re.search(r"note = \{Version [\d.]+, Theorem [\d.]+ \(A name with \$x_1\$ \\& more\), label thm-small\}", block)
    assert re.search(r"note = \{Version [\d.]+, Equation \([\d.]+\), label eq-small\}", block)
    for anchor in ("thm-small", "eq-small", "cite-thm-small", "cite-eq-small"):
        assert page.count(f'id="{anchor}"') == 1
    assert 'href="#cite-thm-small"' in page
    assert "98_small" not in run("python", "tools/check_book.py").stdout


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (THEOREM % "", "has a theorem without a label thm-..."),
        ("\n\n```{figure} ../book_static/favicon.svg\n:alt: A mark on a square.\n\nA mark.\n```\n", "has a figure without a label fig-..."),
        ("\n\n$$\nx\n$$ (small)\n", "has an equation without a label eq-..."),
    ],
)
def test_what_has_a_number_needs_a_label(
    tree: Path, run: Run, small_book: Callable[..., subprocess.CompletedProcess[str]], more: str, fault: str
) -> None:
    config = tree / "_config.yml"  # the downloads would refuse it first
    config.write_text(config.read_text("utf8").replace("    downloads: tools\n", ""), "utf8")
    done = small_book("eq-small", more)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"nbs/98_small.html: {fault}" in run("python", "tools/check_book.py").stdout


# ---- metadata


def metadata(run: Run) -> str:
    code = "import setuptools.build_meta as b; print(b.prepare_metadata_for_build_wheel('.'))"
    done = run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_package_metadata_names_an_address_only_when_there_is_one(tree: Path, run: Run) -> None:
    text = (tree / metadata(run) / "METADATA").read_text()
    head = text.split("\n\n")[0]
    assert "Project-URL" not in head
    assert "Home-page" not in head
    assert not re.search(r"\]\((?!http)", text), "a package index cannot follow a relative link"
    set_address(tree, "https://code.example/owner/transformer_ols")
    text = (tree / metadata(run) / "METADATA").read_text()
    assert "https://code.example/owner/transformer_ols" in text.split("\n\n")[0]
    assert "](https://code.example/owner/transformer_ols/raw/main/LICENSE)" in text
    assert not re.search(r"\]\((?!http)", text)


def test_settings_are_the_one_source() -> None:
    config = ConfigParser(delimiters=["="])
    config.read(ROOT / "settings.ini")
    meta = config["DEFAULT"]
    book = yaml.safe_load((ROOT / "_config.yml").read_text())
    assert book["title"] == book["sphinx"]["config"]["html_title"] == meta["title"]
    assert book["author"] == meta["author"]
    assert f"OLDEST := {meta['min_python']}\n" in (ROOT / "Makefile").read_text()


def test_vendored_files_are_as_recorded() -> None:
    listed = ROOT / "tools" / "vendor" / "vendored.sha256"
    recorded = dict(reversed(line.split()) for line in listed.read_text().splitlines())
    folders = (ROOT / "book_static" / "mathjax", ROOT / "tools" / "vendor")
    found = {str(p.relative_to(ROOT)) for folder in folders for p in folder.rglob("*") if p.is_file() and p != listed}
    assert found == set(recorded)
    for name, digest in recorded.items():
        assert hashlib.sha256((ROOT / name).read_bytes()).hexdigest() == digest, name


# ---- make


@pytest.mark.parametrize(("version", "said"), [("Python 3.9.1", "found Python 3.9.1"), (None, "found none")])
def test_python_missing_or_too_old_is_one_clear_line(tree: Path, tmp_path: Path, version: str | None, said: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("make", "sh", "bash", "sed", "awk", "grep", "test", "echo"):
        found = subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip()
        if found:
            (folder / tool).symlink_to(found)
    if version:
        (folder / "python3").write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit 0\nexit 1\n')
        (folder / "python3").chmod(0o755)
    done = subprocess.run(["make", "book", "VENV=fresh"], cwd=tree, env={"PATH": str(folder)}, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stdout.splitlines() == [
        f"transformer_ols needs Python 3.11 or newer, {said}; install one, or name it: make PYTHON=/path/to/python3"
    ]


def test_a_new_chapter_is_clean_and_runs(tree: Path, run: Run) -> None:
    made = run("python", "tools/new_chapter.py", "97_probe", "A probe")
    assert made.returncode == 0, made.stdout + made.stderr
    exported = run("nbdev_export")
    assert exported.returncode == 0, exported.stderr
    assert run("python", "tools/check_clean.py").returncode == 0
    executed = run("python", "tools/execute.py", "nbs/97_probe.ipynb")
    assert executed.returncode == 0, executed.stdout
    contents = [line.strip() for line in (tree / "_toc.yml").read_text().splitlines()]
    assert contents.index("- file: nbs/97_probe") == contents.index("- file: nbs/18_exponential_memory") + 1
    assert "- file: nbs/api/probe" in contents
    assert (tree / "nbs" / "api" / "probe.md").read_text() == (tree / "nbs" / "api" / "checks.md").read_text().replace("checks", "probe")
    again = run("python", "tools/new_chapter.py", "97_probe", "A probe")
    assert again.returncode == 1
    assert "is there already" in again.stdout
