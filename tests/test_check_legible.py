"""The checker of legibility, on a chapter that is right and with each rule broken on purpose."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from check_legible import check
from conftest import ROOT
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_raw_cell

HEAD = "# A line\n\n> Straight, through three points."
THEOREM = "Before.\n\n:::{prf:theorem} A line\n:label: thm-small-line\n\nIt is\n\n$$\ny = a x\n$$ (eq-small-line)\n:::\n\nAfter."
PROSE = """\
By {eq}`eq-small-line`, {prf:ref}`thm-small-line` and {numref}`fig-small-line`, see {cite:t}`gauss1809` and [](98_small.ipynb).

- `$$` and `{role}` and `\\label` and `<div>` in code are code, $a < b$ and $\\{x\\}$ are mathematics, <https://example.org> is a link.
- Press <kbd>x</kbd><br> twice.

```text
:::{prf:theorem}
$$ \\label{x}
```

::::{admonition} Folded
:class: dropdown

:::{note}
Inner.
:::
::::"""
FIGURE = "#| label: fig-small-line\n#| fig-cap: A line.\n1"


def project(folder: Path, *cells: nbformat.NotebookNode, name: str = "98_small") -> Path:
    """A project of one notebook."""
    (folder / "nbs" / "images").mkdir(parents=True, exist_ok=True)
    (folder / "nbs" / "images" / "line.svg").write_text("<svg/>")
    (folder / "nbs" / "references.bib").write_text("@book{gauss1809,\n title = {Theoria},\n}\n")
    nbformat.write(new_notebook(cells=list(cells)), folder / "nbs" / f"{name}.ipynb")
    return folder


def faults(folder: Path, *sources: str, head: str = HEAD) -> list[str]:
    cells = [new_markdown_cell(source) for source in (head, THEOREM, *sources)]
    return [str(fault) for fault in check(project(folder, *cells, new_code_cell(FIGURE)))]


def test_the_chapters_read_well() -> None:
    assert [str(fault) for fault in check(ROOT)] == []


def test_a_chapter_by_the_rules_has_no_fault(tmp_path: Path) -> None:
    assert faults(tmp_path, PROSE, "![A line](images/line.svg)") == []


@pytest.mark.parametrize(
    ("source", "line", "complaint"),
    [
        ("```{prf:theorem} T\n:label: thm-small-t\nx\n```", 1, "backtick fence shows as code outside the book: write `:::{prf:theorem}`"),
        ("x\n\n```{math}\ny\n```", 3, "write `$$` on lines of their own"),
        ("~~~{admonition} A\ny\n~~~", 1, "write `:::{admonition}`"),
        ("```{code-block} python\ny\n```", 1, "write a plain ```python"),
        (":::{grid} 2\nx\n:::", 1, "`{grid}` is none of the known blocks"),
        ("::: note\nx\n:::", 1, "`note` is none of the known blocks"),
        (":::{note}\nx", 1, "never closed: write `:::`"),
        ("x\n\n:::", 3, "closes a fence that nothing opened"),
        (":::{note}\n\n:::{tip}\nx\n:::\n:::", 3, "needs fewer colons"),
        ("x\n:::{note}\ny\n:::", 2, "runs into the line above"),
        (":::{prf:lemma}\n:label: lem-small-l\nx\n:::", 2, "runs into the line below"),
        (":::{note}\n:width: 3\n\nx\n:::", 2, "option `:width:` is lost"),
        ("- x\n  :::{note}\n  :::", 2, "a colon fence must begin the line"),
        (":::{prf:theorem}\nx\n:::", 1, "prf:theorem has no label: write `:label: thm-"),
        ("so $$x$$ holds", 1, "`$$` within a line"),
        ("$$ x $$", 1, "`$$` within a line"),
        ("$$\nx $$ (eq-small-x)", 2, "the closing `$$` must begin the line"),
        ("$$\nx", 1, "this `$$` is never closed"),
        ("$$\nx\n\ny\n$$", 3, "a blank line ends the mathematics"),
        ("$$\nx \\label{x}\n$$", 2, "`\\label` breaks references"),
        ("$$\nx \\tag{1}\n$$", 2, "`\\tag` clashes"),
        ("by $\\eqref{x}$", 1, "write {eq}`eq-label`"),
        ("\\begin{equation}\nx\n\\end{equation}", 1, "\\begin{equation} does not show everywhere: write `$$`"),
        ("$$\n\\begin{align*}\nx\n\\end{align*}\n$$", 2, "write \\begin{aligned} inside `$$`"),
        ("$\\newcommand{\\R}{\\mathbb R}$", 1, "`\\newcommand` is known to one page only"),
        ("$$\n\\def\\R{1}\n$$", 2, "`\\def` is known to one page only"),
        ("so \\(x\\) holds", 1, "are not mathematics everywhere"),
        ("# Again", 1, "a second title"),
        ("a <div>box</div>", 1, "`<div>` depends on the page around it"),
        ('a <br class="x">', 1, "depends on the page around it"),
        ("<img src='x'>", 1, "depends on the page around it"),
        ("![x](/images/line.svg)", 1, "write a relative path, as images/NAME.svg"),
        ("![x](attachment:line.png)", 1, "write a relative path, as images/NAME.svg"),
        ("![x](https://example.org/x.png)", 1, "write a relative path, as images/NAME.svg"),
        ("![x](images/other.svg)", 1, "image images/other.svg does not exist"),
        ("[x](97_gone.ipynb)", 1, "link to 97_gone.ipynb, which does not exist"),
        ("[x](98_small.html)", 1, "ending in .ipynb or .md"),
        ("[x]()", 1, "link to nowhere"),
        ("[x](/nbs/98_small.ipynb)", 1, "write a relative path to a notebook"),
        ("[x](file:///nbs/98_small.ipynb)", 1, "write a relative path to a notebook"),
        ("(here)=\n## H", 1, "`(here)=` is raw text"),
        ("% a comment", 1, "a line that begins with `%`"),
        ("see {doc}`98_small`", 1, "role {doc} is raw text"),
        ("x\n\nsee {eq}`eq-small-gone`", 3, "no equation has the label eq-small-gone"),
        ("see {eq}`thm-small-line`", 1, "no equation has the label thm-small-line"),
        ("see {numref}`Figure %s <fig-small-gone>`", 1, "no figure has the label fig-small-gone"),
        ("see {prf:ref}`thm-small-gone`", 1, "no statement has the label thm-small-gone"),
        ("see {cite:p}`gauss1809, gauss1810`", 1, "no reference has the label gauss1810"),
        ("$$\nx\n$$ (eq-small-line)", 3, "label eq-small-line stands in nbs/98_small.ipynb, cell 2 already"),
        ("$$\nx\n$$ (eq-other-line)", 3, "label eq-other-line does not name its chapter: write eq-small-NAME"),
        ("$$\nx\n$$ (line)", 3, "label line does not name its chapter"),
        (":::{prf:lemma}\n:label: lem-other\n\nx\n:::", 2, "label lem-other does not name its chapter: write thm-small-NAME"),
    ],
)
def test_each_rule_can_be_broken(tmp_path: Path, source: str, line: int, complaint: str) -> None:
    found = faults(tmp_path, source)
    assert any(f.startswith(f"nbs/98_small.ipynb, cell 3, line {line}: ") and complaint in f for f in found), found
    assert len(found) <= 2, found


@pytest.mark.parametrize(
    "head", ["A line", "# A line", "# A line\n\n> One.\n\nAnd more.", "# A line\n\n> One\n> two.", "---\ntitle: A line\n---", ""]
)
def test_the_first_cell_is_title_and_one_line(tmp_path: Path, head: str) -> None:
    found = faults(tmp_path, head=head)
    assert len(found) == 1
    assert "begin with `# Title`" in found[0] or "must be `# Title`" in found[0]


def test_figures_raw_cells_and_attachments(tmp_path: Path) -> None:
    held = new_markdown_cell("![x](attachment:x.png)", attachments={"x.png": {"image/png": ""}})
    cells = [new_code_cell("#| fig-cap: A line.\n1"), new_code_cell("#| label: line\n1"), new_raw_cell("x"), held]
    found = [str(fault) for fault in check(project(tmp_path, new_markdown_cell(HEAD), *cells))]
    for cell, complaint in enumerate(("a figure without a label", "label line does not name", "a raw cell", "an attachment"), 2):
        assert any(f"cell {cell}, line 1: {complaint}" in fault for fault in found), found


def test_a_label_is_unique_across_the_book(tmp_path: Path) -> None:
    project(tmp_path, new_markdown_cell(HEAD), new_markdown_cell("$$\nx\n$$ (eq-small-x)"), name="97_small")
    found = [str(fault) for fault in check(project(tmp_path, new_markdown_cell(HEAD), new_markdown_cell("$$\nx\n$$ (eq-small-x)")))]
    assert found == [
        "nbs/98_small.ipynb, cell 2, line 3: label eq-small-x stands in nbs/97_small.ipynb, cell 2 already: choose another name"
    ]


def test_a_theorem_in_a_backtick_fence_fails_the_command(tree: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = run("python", "tools/check_legible.py")
    assert done.returncode == 0, done.stdout
    path = tree / "nbs" / "10_ols_transformer.ipynb"
    nb = nbformat.read(path, as_version=4)
    cell = next(cell for cell in nb.cells if ":::{prf:theorem}" in cell.source)
    cell.source = re.sub(r":::(\{prf:theorem\}.*?)\n:::", r"```\1\n```", cell.source, flags=re.S)
    nbformat.write(nb, path)
    done = run("python", "tools/check_legible.py")
    assert done.returncode == 1
    assert re.match(r"nbs/10_ols_transformer.ipynb, cell \d+, line \d+: a directive in a backtick fence.*`:::\{prf:theorem", done.stdout)
    assert run("python", "tools/check_legible.py", "nowhere").returncode == 1
