"""Lay out the files of a new chapter: `python tools/new_chapter.py 17_topic "A title"`.

Writes the notebook in the shape that every chapter has, its API page and its lines in `_toc.yml`, and says what is left to do by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

TEMPLATE = Path(__file__).with_name("chapter.txt")  # cells begin with `# %%` or `# %% [markdown]`


def write_notebook(path: Path, module: str, title: str) -> None:
    """The template's cells with the chapter's names filled in."""
    text = TEMPLATE.read_text("utf8").replace("TITLE", title).replace("MODULE", module).replace("SLUG", module.replace("_", "-"))
    nb = new_notebook(metadata={"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}})
    for number, cell in enumerate(text.split("# %%")[1:]):
        make = new_markdown_cell if cell.startswith(" [markdown]") else new_code_cell
        source = cell.removeprefix(" [markdown]").strip("\n")
        nb.cells.append(make(source, id=f"{module.replace('_', '-')[:48]}-{number:02}"))
    nbformat.write(nb, path)


def add_to_contents(path: Path, name: str) -> None:
    """Insert the chapter behind the last one with a lower number, and its API page behind that one's."""
    lines = path.read_text("utf8").splitlines()
    number, module = name.split("_", 1)
    chapters = {i: m for i, line in enumerate(lines) if (m := re.match(r"( *- file: nbs/)(\d\d)_(\w+)", line))}
    appendix = next(i for i, line in enumerate(lines) if "caption: Appendix" in line)
    after = max((i for i in chapters if i < appendix and chapters[i][2] < number), default=min(chapters) - 1)
    pages = [i for i, line in enumerate(lines) if f"nbs/api/{chapters[after][3]}" in line] if after in chapters else []
    page = pages[0] if pages else max(i for i, line in enumerate(lines) if "nbs/api/" in line)
    lines.insert(page + 1, lines[page][: lines[page].index("nbs/")] + f"nbs/api/{module}")
    lines.insert(after + 1, f"      - file: nbs/{name}")
    path.write_text("\n".join(lines) + "\n", "utf8")


def main() -> int:
    if len(sys.argv) != 3 or not re.fullmatch(r"\d\d_[a-z][a-z_0-9]*", sys.argv[1]) or not sys.argv[2]:
        print('usage: make new-chapter NAME=17_topic TITLE="A title"   (two digits, an underscore, the module\'s name)')
        return 1
    name, title = sys.argv[1:]
    module = name.split("_", 1)[1]
    notebook, page = Path("nbs") / f"{name}.ipynb", Path("nbs/api") / f"{module}.md"
    if existing := [path for path in (notebook, page) if path.exists()]:
        print(f"{existing[0]} is there already; choose another name")
        return 1
    write_notebook(notebook, module, title)
    page.write_text(Path("nbs/api/checks.md").read_text("utf8").replace("checks", module), "utf8")
    add_to_contents(Path("_toc.yml"), name)
    print(f"wrote {notebook}, {page} and two lines of _toc.yml. Now:")
    print(f"  1. name {module} and its side in tools/imports.toml, and its public names in transformer_ols/__init__.py")
    print("  2. give its arguments to tests/test_bad_inputs.py and its title to the map in nbs/index.ipynb")
    print("  3. write the chapter, then: make export clean lint book test")
    print("  4. look at the page: make serve")
    return 0


if __name__ == "__main__":
    sys.exit(main())
