"""Check the PDF of the whole book, one line per fault; exit 1 if there is any.

    python tools/check_pdf.py [_build/pdf] [--source .]

What TeX said (lines, tables or pages that are cut off, letters without a glyph, references it could not resolve); whether parts and
chapters stand as `_toc.yml` lists them, with the numbers of the HTML; whether all code and every figure is there, and hidden cells are not.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from check_book import directives, read_promise, toc_files

ROOT = Path(__file__).resolve().parent.parent
TOLERANCE = 10.0  # points that a line may stand out, a third of a centimetre: the margin has 71
HIDDEN = {"hide", "default_exp"}

Faults = Iterator[str]


# ---- what TeX said

OVERFULL = re.compile(r"^Overfull \\([hv])box \(([\d.]+)pt too (?:wide|high)\).*?((?:at|in|while|has).*)$", re.M)
MISSING = re.compile(r"^Missing character: There is no (.*?) (?:\((U\+\w+)\) )?in font \[?([^\]/:!]+)", re.M)
UNRESOLVED = re.compile(r"^LaTeX Warning: ((?:Reference|Citation|Hyper reference) `[^']*'|Label `[^']*' multiply defined)", re.M)


def log_faults(log: str, tex: str = "") -> Faults:
    """Faults of the log of the last run; `tex` lets it quote the line."""
    lines = tex.splitlines()
    for kind, points, where in OVERFULL.findall(log):
        if float(points) > TOLERANCE:
            number = re.search(r"lines? (\d+)", where)
            near = next((line for line in reversed(lines[: int(number[1])]) if re.search(r"\w{4}", line)), "") if number else ""
            what = "a page runs over the bottom" if kind == "v" else "a line, table or equation runs over the margin"
            yield f"{what} by {points} pt ({where.strip()}): {near.strip()[:100]}".removesuffix(": ")
    for letter, code, font in Counter(MISSING.findall(log)):
        yield f"the font {font} has no {letter} {code}: write it as $mathematics$, or choose another font in tools/pdf_book.py"
    for what in dict.fromkeys(UNRESOLVED.findall(log)):
        yield f"TeX could not resolve: {what}"


# ---- the order of the book

Entry = tuple[str, str, str]  # "part" or "chapter", its number or "", its title


def expected(source: Path) -> list[Entry]:
    """Parts and chapters as `_toc.yml` lists them; chapters are counted through all numbered parts."""
    contents = yaml.safe_load((source / "_toc.yml").read_text("utf8"))
    found: list[Entry] = [("chapter", "", "Introduction")]
    count = 0
    for part in contents["parts"]:
        found.append(("part", "", part["caption"]))
        for chapter in part["chapters"]:
            count += (numbered := bool(part.get("numbered")))
            found.append(("chapter", str(count) if numbered else "", title(source / chapter["file"])))
    return found


def title(document: Path) -> str:
    """The first heading of a page's source."""
    if document.with_suffix(".ipynb").is_file():
        text = "".join(json.loads(document.with_suffix(".ipynb").read_text("utf8"))["cells"][0]["source"])
    else:
        text = document.with_suffix(".md").read_text("utf8")
    return next(line.lstrip("# ") for line in text.splitlines() if line.startswith("# "))


def printed(toc: str) -> list[Entry]:
    """Parts and chapters of TeX's own table of contents."""
    found = []
    for kind, text in re.findall(r"^\\contentsline \{(part|chapter)\}\{(.*)\}\{\w+\}\{[\w.*]*\}", toc, re.M):
        number = re.match(r"\\numberline \{(\w+)\}", text)
        title = re.sub(r"^\\numberline \{\w+\}|^\w+\\hspace \{1em\}", "", text)
        found.append((kind, number[1] if number else "", title))
    return found


def letters(text: str) -> str:
    return "".join(re.findall(r"\w", re.sub(r"\\[A-Za-z]+", "", text)))


def contents_faults(there: list[Entry], wanted: list[Entry]) -> Faults:
    """Compare, with titles by their letters; an index may follow."""
    seen = {(kind, letters(title)): number for kind, number, title in there}
    for kind, number, name in wanted:
        if (key := (kind, letters(name))) not in seen:
            yield f"the {kind} {name!r} is missing"
        elif kind == "chapter" and seen[key] != number:
            yield f"the chapter {name!r} has the number {seen[key] or 'none'}, in the HTML it has {number or 'none'}"
    order = [key for kind, _, name in there if (key := (kind, letters(name))) in {(k, letters(n)) for k, _, n in wanted}]
    if order != [(kind, letters(name)) for kind, _, name in wanted if (kind, letters(name)) in seen]:
        yield "parts and chapters are not in the order of _toc.yml"
    known = {letters(name) for _, _, name in wanted} | {"Index"}
    yield from (f"the {kind} {name!r} is not in _toc.yml" for kind, _, name in there if letters(name) not in known)


# ---- the pages

LEFTOVERS = {
    "an unresolved number": re.compile(r"\?\?"),
    "a directive": re.compile(r"^\s*#\|.*", re.M),
    "a raw fence": re.compile(r":::|```"),
    "a raw role": re.compile(r"\{(?:eq|numref|ref|doc|cite|(?:cite|prf|py):[\w-]+)\}"),
}


def squash(text: str) -> str:
    """Without white space, and without the mark of a wrapped line."""
    return re.sub(r"\s|↪|\N{NO-BREAK SPACE}", "", text)


def text_faults(text: str) -> Faults:
    """What no page may show."""
    for number, page in enumerate(text.split("\f"), 1):
        for what, pattern in LEFTOVERS.items():
            if match := pattern.search(page):
                line = page[: match.end() + 40].splitlines()[-1] if what != "a directive" else match[0]
                yield f"page {number} of the file shows {what}: {' '.join(line.split())[:100]!r}"


def code_cells(notebook: Path) -> list[tuple[bool, str]]:
    """(Whether a reader sees it, source without directives) of each code cell."""
    found = []
    for cell in json.loads(notebook.read_text("utf8"))["cells"]:
        if cell["cell_type"] == "code":
            options = directives(source := "".join(cell["source"]))
            body = "\n".join(line for line in source.splitlines() if not line.startswith("#|"))
            found.append((not HIDDEN & options.keys() and options.get("echo") != "false", body))
    return found


def code_faults(text: str, notebooks: dict[str, list[tuple[bool, str]]]) -> Faults:
    """Every line of a shown cell is on the pages, folded answers too; no line that only hidden cells have is."""
    pages = squash(text)
    lines = {(name, shown, line.strip()) for name, cells in notebooks.items() for shown, code in cells for line in code.splitlines()}
    public = {line for _, shown, line in lines if shown}
    for name, shown, line in sorted(lines):
        there = squash(line) in pages
        if shown and not there:
            yield f"{name}: a line of code is cut or missing: {line}"
        elif not shown and there and line not in public and len(squash(line)) > 30:
            yield f"{name}: a hidden cell is shown: {line}"


def tex_faults(tex: str, figures: dict[str, tuple[str, ...]]) -> Faults:
    """Every labelled figure has its image; no link leads to a page of the HTML book."""
    pictured = {label for block in re.findall(r"\\begin\{figure\}.*?\\end\{figure\}", tex, re.S) if "\\sphinxincludegraphics" in block
                for label in re.findall(r"\\label\{\\detokenize\{([^}]*)\}\}", block)}  # fmt: skip
    for document, labels in figures.items():
        yield from (f"{document}: the figure {label!r} lacks its image" for label in labels if f"{document}:{label}" not in pictured)
    for link in dict.fromkeys(re.findall(r"\\sphinxhref\{([^}]*)\}", tex)):
        if not re.match(r"https?:|mailto:", link):
            yield f"a link leads nowhere in a PDF: {link}"


# ---- all together


def check(folder: Path, source: Path) -> tuple[list[str], int]:
    """All faults, and the number of pages."""
    pdf, latex = folder / "book.pdf", folder / "_build" / "latex"
    if not pdf.is_file():
        return [f"{pdf}: no PDF; build it first, with make pdf"], 0
    text = subprocess.run(["pdftotext", "-layout", str(pdf), "-"], capture_output=True, text=True, check=True).stdout
    tex, log, toc = ((latex / f"book.{suffix}").read_text("utf8", "replace") for suffix in ("tex", "log", "toc"))
    documents: list[Any] = toc_files(yaml.safe_load((source / "_toc.yml").read_text("utf8")))
    notebooks = {name: path for name in documents if (path := source / f"{name}.ipynb").is_file()}
    faults = [*log_faults(log, tex), *contents_faults(printed(toc), expected(source)), *text_faults(text)]
    faults += code_faults(text, {name: code_cells(path) for name, path in notebooks.items()})
    faults += tex_faults(tex, {name: read_promise(path).figures for name, path in notebooks.items()})
    return faults, text.count("\f")


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the PDF of the whole book; exit 1 if there is a fault.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "_build" / "pdf")
    parser.add_argument("--source", type=Path, default=ROOT, help="the folder with _toc.yml and the notebooks")
    arguments = parser.parse_args()
    faults, pages = check(arguments.folder, arguments.source)
    print("\n".join([*faults, f"{pages} pages of PDF: {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
