"""The chapters as downloads: plain Markdown, the book's numbers, a first cell that installs; and one small book from source to file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import ROOT
from downloads import (
    FOLDER,
    DownloadError,
    Prose,
    code,
    disagreements,
    download,
    faults,
    impersonal,
    install_cell,
    link_downloads,
    needs,
    settings,
    whereabouts,
)
from downloads import run as run_elsewhere
from execute import cleared
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

META = dict(settings())
KNOWN = {
    ("eq", "eq-small-line"): ("(4.1)", "#equation-eq-small-line"),
    ("prf:ref", "thm-small-line"): ("Theorem 4.2", "#thm-small-line"),
    ("numref", "fig-small-line"): ("Fig. 4.3", "98_small.html#fig-small-line"),
    ("cite:t", "gauss1809"): ("Gauss [1809]", "references.html#id1"),
    ("cite:p", "gauss1809"): ("[Gauss, 1809]", "references.html#id1"),
}


class Book:
    """A book of one chapter."""

    def reference(self, docname: str, role: str, content: str) -> tuple[str, str]:
        if (role, content) not in KNOWN:
            raise DownloadError(f"{{{role}}}`{content}` leads nowhere")
        return KNOWN[role, content]

    def statement(self, docname: str, label: str) -> str:
        return self.reference(docname, "prf:ref", label)[0]

    def tag(self, docname: str, label: str) -> str:
        return self.reference(docname, "eq", label)[0].strip("()")

    def title(self, docname: str) -> str:
        return {"nbs/97_curve": "A curve", "nbs/api/small": "`transformer_ols.small`"}[docname]

    def works(self, keys: set[str]) -> list[str]:
        return [f"C. F. {key.title()}. *Theoria*." for key in sorted(keys)]


def plain(text: str, address: str = "") -> str:
    return Prose(Book(), "nbs/98_small", address).plain(text)


# ---- prose


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("$$\na\n= b\n$$ (eq-small-line)", "$$\na\n= b \\tag{4.1}\n$$"),
        ("- x\n\n  $$\n  a\n  $$", "- x\n\n  $$\n  a\n  $$"),
        (
            "x\n\n:::{prf:theorem} Of $a$\n:label: thm-small-line\n\nLet\n\n$$\na\n= b\n$$ (eq-small-line)\n\n1. y\n:::\nz",
            "x\n\n> **Theorem 4.2** (Of $a$).\n>\n> Let\n>\n> $$ a = b \\tag{4.1} $$\n>\n> 1. y\n\nz",
        ),
        (":::{prf:proof}\nBy {eq}`eq-small-line`.\n:::", "*Proof.* By (4.1). ∎"),
        (":::{prf:proof}\n- x\n\n$$\na\n$$\n:::", "*Proof.*\n\n- x\n\n$$\na\n$$\n\n∎"),
        (":::{prf:proof}\n:class: dropdown\n\nx\n:::", "<details>\n<summary>Proof</summary>\n\nx ∎\n\n</details>"),
        (
            ":::{admonition} Why\n:class: dropdown\n\nx\n\n$$\na\n$$\n:::",
            "<details>\n<summary>Why</summary>\n\nx\n\n$$\na\n$$\n\n</details>",
        ),
        (":::{note}\nx\n:::", "> **Note**\n>\n> x"),
        (
            "::::{note}\nx\n\n:::{prf:theorem} T\n:label: thm-small-line\n\ny\n:::\n::::",
            "> **Note**\n>\n> x\n>\n> > **Theorem 4.2** (T).\n> >\n> > y",
        ),
        (
            "By {numref}`fig-small-line`, {cite:t}`gauss1809`,\n[](97_curve.ipynb) and [the *code*](api/small.md) in [](api/small.md).",
            "By Fig. 4.3, Gauss [1809],\n*A curve* and the *code* in *`transformer_ols.small`*.",
        ),
        ("[x](https://example.org) [y](#y) $[a](b)$ `[c](d.md)`", "[x](https://example.org) y $[a](b)$ `[c](d.md)`"),
        ("`{eq}` and `:::` and\n```text\n:::{note}\n{eq}`x`\n$$\n```", "`{eq}` and `:::` and\n```text\n:::{note}\n{eq}`x`\n$$\n```"),
    ],
)
def test_markdown_is_made_plain(source: str, wanted: str) -> None:
    assert plain(source) == wanted


def test_links_lead_to_the_book_once_it_has_an_address() -> None:
    text = "{eq}`eq-small-line` {numref}`fig-small-line` [](97_curve.ipynb) [x](api/small.md#y) {cite:p}`gauss1809`"
    base = "https://book.example/nbs"
    assert plain(text, "https://book.example") == (
        f"[(4.1)]({base}/98_small.html#equation-eq-small-line) [Fig. 4.3]({base}/98_small.html#fig-small-line) "
        f"[A curve]({base}/97_curve.html) [x]({base}/api/small.html#y) [Gauss, 1809]"
    )


@pytest.mark.parametrize("source", ["{eq}`eq-small-gone`", "$$\nx\n$$ (eq-small-gone)", ":::{note}\nx", "::: note\nx\n:::"])
def test_what_cannot_be_resolved_is_said(source: str) -> None:
    with pytest.raises(DownloadError):
        plain(source)


# ---- cells


def chapter() -> nbformat.NotebookNode:
    """An executed chapter with a cell of every kind."""
    image = new_output("display_data", {"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"})
    text = new_output("execute_result", {"text/plain": f"{ROOT}/nbs/x.csv"}, execution_count=7)
    error = new_output("error", ename="ValueError", evalue="no", traceback=[f"File {sys.prefix}/lib/site-packages/x.py:1", "no"])
    shown = "x = 1\nx"
    return new_notebook(
        cells=[
            new_markdown_cell("# Small\n\n> One line.", id="title"),
            new_code_cell("#| default_exp small", id="exp"),
            new_code_cell("#| export\nfrom __future__ import annotations\n\nimport numpy as np", id="export"),
            new_code_cell("#| hide\nimport sympy", outputs=[text], id="hidden"),
            new_markdown_cell("As {cite:t}`gauss1809` says. ![A dot](images/dot.svg)", id="prose"),
            new_code_cell(shown, outputs=[text], execution_count=7, id="shown"),
            new_code_cell(f"#| output: false\n{shown}", outputs=[text], id="silent"),
            new_code_cell(f"#| label: fig-small-line\n#| fig-cap: A $y$.\n#| fig-alt: Up.\n{shown}", outputs=[image], id="figure"),
            new_code_cell("#| error: true\n1 / 0", outputs=[error], id="error"),
            new_code_cell(f"#| answer\n{shown}", outputs=[text], id="answer"),
        ]
    )


@pytest.fixture
def made(tmp_path: Path) -> nbformat.NotebookNode:
    for folder in ("nbs/images", "transformer_ols"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "nbs/images/dot.svg").write_text("<svg/>")
    return download(chapter(), Book(), "nbs/98_small", META, tmp_path)


def test_a_chapter_becomes_a_valid_notebook(made: nbformat.NotebookNode) -> None:
    assert faults(made) == []
    cells = {cell.id: cell for cell in made.cells}
    assert list(cells) == [
        *("title", "download-note", "download-install", "export", "hidden", "prose", "shown", "silent"),
        *("figure", "figure-caption", "error", "answer", "download-references"),
    ]
    assert cells["export"].source.startswith("from __future__")
    assert cells["prose"].source == "As Gauss [1809] says. ![A dot](attachment:dot.svg)"
    assert cells["prose"].attachments == {"dot.svg": {"image/svg+xml": "PHN2Zy8+"}}
    assert cells["download-references"].source == "## References\n\n- C. F. Gauss1809. *Theoria*."
    assert cells["figure-caption"].source == "**Fig. 4.3** A $y$."
    assert cells["figure"].outputs[0].metadata == {"image/png": {"alt": "Up."}}
    assert cells["shown"].outputs[0].data == {"text/plain": "nbs/x.csv"}
    assert cells["shown"].metadata == {}
    assert cells["hidden"].outputs == cells["silent"].outputs == []
    assert cells["hidden"].metadata == {"jupyter": {"source_hidden": True}}
    assert cells["answer"].metadata == {"jupyter": {"source_hidden": True, "outputs_hidden": True}}
    assert cells["error"].metadata == {"tags": ["raises-exception"]}
    assert cells["error"].outputs[0].traceback[0] == "File site-packages/x.py:1"
    assert all(cell.get("execution_count") is None for cell in made.cells)


def test_the_bytes_repeat(made: nbformat.NotebookNode, tmp_path: Path) -> None:
    again = download(chapter(), Book(), "nbs/98_small", META, tmp_path)
    assert nbformat.writes(again) == nbformat.writes(made)


def test_the_executed_notebook_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "transformer_ols").mkdir()
    nb = chapter()
    nb.cells[4].source = "No image."
    before = nbformat.writes(nb)
    download(nb, Book(), "nbs/98_small", META, tmp_path)
    assert nbformat.writes(nb) == before


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        (new_markdown_cell(":::{note}"), "a colon fence is left"),
        (new_markdown_cell("see {eq}`x`"), "a role is left"),
        (new_markdown_cell("$$\nx\n$$ (eq-x)"), "a label is left"),
        (new_markdown_cell("[](x.ipynb)"), "a link without text is left"),
        (new_markdown_cell("[x](x.ipynb)"), "a link to a file that the reader has not got is left"),
        (new_markdown_cell("[Gauss, 1809]: he"), "a citation that reads as the target of a link is left"),
        (new_markdown_cell("> $$\n> x\n> $$"), "a quotation cuts an equation"),
        (new_code_cell("#| export\nx = 1"), "a directive is left"),
        (new_code_cell("x ="), "invalid syntax"),
        (new_code_cell("x", outputs=[new_output("stream", text=f"{ROOT}/x")]), "of this machine is left"),
    ],
)
def test_what_a_reader_would_stumble_on_is_found(cell: nbformat.NotebookNode, complaint: str) -> None:
    assert faults(new_notebook(cells=[new_markdown_cell("`[x](y)` $[a](b)$"), new_code_cell("%pip install x\nx = 1")])) == []
    found = faults(new_notebook(cells=[cell]))
    assert len(found) >= 1
    assert complaint in found[0]


def test_an_invalid_notebook_is_found() -> None:
    nb = new_notebook(cells=[new_markdown_cell("x")])
    del nb.cells[0]["metadata"]
    assert faults(nb) == ["'metadata' is a required property"]


def test_numbers_that_differ_from_the_page_are_found() -> None:
    page = (
        '<a class="reference internal" href="#x">Contents</a><article><span class="caption-number">Theorem 4.2 </span>'
        '<span class="eqno">(4.1)<a>#</a></span> <a class="reference internal" href="#equation-x">(4.1)</a>'
        '<a class="reference internal" href="references.html#id1" title="x">Gauss &amp; Co, <i>1809</i></a></article>'
    )
    good = "> **Theorem 4.2** (T).\n>\n> $$ a \\tag{4.1} $$\n\nBy (4.1) and [Gauss & Co, 1809]."
    assert disagreements(new_notebook(cells=[new_markdown_cell(good)]), page) == []
    for old, new in (("tag{4.1}", "tag{4.2}"), ("Theorem 4.2", "Theorem 4.1"), ("By (4.1)", "By (4.3)"), ("1809", "1810")):
        found = disagreements(new_notebook(cells=[new_markdown_cell(good.replace(old, new))]), page)
        assert len(found) == 1, (old, found)


def test_machine_paths_are_taken_out() -> None:
    assert impersonal(f"File {ROOT}/nbs/x.py, /scratch/ipykernel_12/3.py, C:\\env\\Lib\\site-packages\\y.py") == (
        "File nbs/x.py, 3.py, site-packages/y.py"
    )
    assert code("#| hide\n#| label: x\n\n# said\nx") == "# said\nx"


# ---- the first cell


def first_cell(present: set[str], monkeypatch: pytest.MonkeyPatch, **meta: str) -> list[list[str]]:
    """Run the first cell of a chapter on a machine that has these modules; the pip commands it gave."""
    nb = new_notebook(cells=[new_code_cell("import sympy, torch\nimport sklearn.svm\nfrom IPython.display import Math")])
    source = install_cell(nb, META | meta)
    calls: list[list[str]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in present else None)
    monkeypatch.setattr("subprocess.check_call", calls.append)
    exec(compile(source, "cell", "exec"), {})
    monkeypatch.undo()
    return calls


def test_the_first_cell_in_every_situation(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://code.example/owner/transformer_ols"
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    assert first_cell({"transformer_ols", "sympy", "sklearn"}, monkeypatch) == []
    assert first_cell({"transformer_ols", "sklearn"}, monkeypatch) == [[*pip, "sympy"]]
    assert first_cell({"transformer_ols", "sympy"}, monkeypatch) == [[*pip, "scikit-learn>=1.7"]]
    with pytest.raises(
        ModuleNotFoundError, match=rf"on no package index(.|\n)*transformer_ols-{META['version']}-py3-none-any.whl\[notebook\]"
    ):
        first_cell({"sympy", "sklearn"}, monkeypatch)
    source = f"transformer_ols[notebook] @ git+{url}@main"
    assert first_cell({"sympy", "sklearn"}, monkeypatch, git_url=url) == [[*pip, source]]
    assert first_cell(set(), monkeypatch, git_url=url) == [[*pip, source, "scikit-learn>=1.7", "sympy"]]


def test_the_notebook_extra_brings_all_that_the_chapters_import() -> None:
    for path in sorted((ROOT / "nbs").glob("*.ipynb")):
        needs(cleared(path.read_text("utf8")), META)
    with pytest.raises(DownloadError, match=r"imports yaml, which is not among settings\.ini's notebook_requirements"):
        needs(new_notebook(cells=[new_code_cell("import yaml")]), META)


# ---- the book


def test_the_menu_offers_the_download_and_nothing_raw() -> None:
    class App:
        class env:
            found_docs = ("nbs/98_small", "nbs/notation")

            @staticmethod
            def doc2path(name: str) -> str:
                return f"{name}.{'ipynb' if 'small' in name else 'md'}"

    def context(page: str) -> dict[str, Any]:
        buttons = [{"label": f"download-{name}-button", "url": "_sources/x"} for name in ("notebook", "source", "pdf")]
        held = {"pathto": lambda path, _: f"../{path}", "header_buttons": [{"label": "download-buttons", "buttons": buttons}]}
        held["body"] = "<h1>T</h1><h1>U</h1>"
        link_downloads(App, page, "page.html", held, None)
        return held

    small = context("nbs/98_small")
    assert [button["url"] for button in small["header_buttons"][0]["buttons"]] == [f"../{FOLDER}/98_small.ipynb", "_sources/x"]
    assert small["body"].count(f'<a href="../{FOLDER}/98_small.ipynb" download>') == 1
    other = context("nbs/notation")
    assert [button["label"] for button in other["header_buttons"][0]["buttons"]] == ["download-pdf-button"]
    assert other["body"] == "<h1>T</h1><h1>U</h1>"


def test_a_small_book_from_source_to_download(tree: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    for path in (tree / "nbs").glob("*.ipynb"):
        path.unlink()
    (tree / "nbs" / "index.md").write_text("# Home\n\nWelcome.\n")
    (tree / "_toc.yml").write_text(
        "format: jb-book\nroot: nbs/index\nparts:\n  - numbered: true\n    chapters:\n"
        "      - file: nbs/98_small\n      - file: nbs/references\n"
    )
    text = (
        ":::{prf:theorem} T\n:label: thm-small\n\nFor all\n\n$$\na\n$$ (eq-small)\n:::\n\n{prf:ref}`thm-small`, {eq}`eq-small`, "
        "{numref}`fig-small`, {cite:t}`golub2013matrix`, {cite:p}`golub2013matrix,saad2003iterative`, [](references.md)."
    )
    plot = "#| label: fig-small\n#| fig-cap: A line.\n#| fig-alt: Up.\nimport matplotlib.pyplot as plt\n\nplt.plot([1, 2])\nplt.show()"
    path = tree / "nbs" / "98_small.ipynb"
    nb = new_notebook(cells=[new_markdown_cell("# Small\n\n> One line."), new_markdown_cell(text), new_code_cell(plot)])
    nb.metadata = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}

    def build() -> subprocess.CompletedProcess[str]:
        nbformat.write(nb, path)
        assert run("python", "tools/execute.py").returncode == 0
        return run("jupyter-book", "build", ".", "-W", "--keep-going", "--all", "-q")

    done = build()
    assert done.returncode == 0, done.stdout + done.stderr
    file = tree / "_build" / "html" / FOLDER / "98_small.ipynb"
    first, read = file.read_bytes(), nbformat.read(file, as_version=4)
    assert faults(read) == []
    assert read.cells[3].source.replace("\xa0", " ") == (
        "> **Theorem 1.1** (T).\n>\n> For all\n>\n> $$ a \\tag{1.1} $$\n\n"
        "Theorem 1.1, (1.1), Fig. 1.1, Golub and Van Loan [2013], [Golub and Van Loan, 2013, Saad, 2003], *References*."
    )
    assert re.fullmatch(r"## References\n\n- Gene H\. Golub.*Matrix Computations\*.*\n- Yousef Saad\. \*Iterative.*", read.cells[-1].source)
    assert "download>" in (tree / "_build/html/nbs/98_small.html").read_text()
    nb.cells[2].source = plot.replace("#| label: fig-small\n", "")
    nb.cells[1].source = text.replace(", {numref}`fig-small`", "")
    done = build()
    assert done.returncode != 0
    assert "nbs/98_small, cell 3: a figure has no label" in done.stdout + done.stderr
    assert file.read_bytes() == first, "what cannot be written leaves the old file"


# ---- running them elsewhere


def test_a_download_runs_in_an_empty_folder_and_says_what_fails(tmp_path: Path) -> None:
    cells = [new_code_cell("import os, sys\nassert not os.listdir() and 'PYTHONPATH' not in os.environ\nx = 1")]
    tagged = new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]})
    path = tmp_path / "a.ipynb"
    nbformat.write(new_notebook(cells=[*cells, tagged]), path)
    assert run_elsewhere(path, Path(sys.executable)) is None
    nbformat.write(new_notebook(cells=[*cells, new_code_cell("assert x == 2, 'two'")]), path)
    assert "AssertionError: two" in (run_elsewhere(path, Path(sys.executable)) or "")


def test_an_interpreter_without_the_package_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    said = whereabouts(bare)
    assert said and "No module named 'ipykernel'; install the wheel with its [notebook] extra there" in said
