"""Check that the notebooks read well in four places: the book, plain Jupyter and VS Code, a code host's preview, Colab.

    python tools/check_legible.py [ROOT]

One line per fault: notebook, cell and line, what is wrong, what to write instead. Outputs and metadata are check_clean.py's, and whether
the built pages show what they promise is check_book.py's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import nbformat
from execute import ROOT, directives

STATEMENTS = {
    "assumption": "asm", "axiom": "ax", "conjecture": "conj", "corollary": "cor", "definition": "def", "example": "ex", "lemma": "lem",
    "proposition": "prop", "property": "prty", "remark": "rem", "theorem": "thm",
}  # fmt: skip
ADMONITIONS = {"admonition", "attention", "caution", "danger", "error", "hint", "important", "note", "seealso", "tip", "warning"}
DIRECTIVES = {f"prf:{name}" for name in STATEMENTS} | {"prf:proof"} | ADMONITIONS  # what tools/downloads.py can turn into plain Markdown
OPTIONS = {"label", "class"}
CITATIONS = {"cite", "cite:p", "cite:t", "cite:ps", "cite:ts"}
ROLES = {"eq": "equation", "numref": "figure", "prf:ref": "statement", **dict.fromkeys(CITATIONS, "reference")}
HTML = {"br", "details", "kbd", "sub", "summary", "sup"}  # needs no theme, and every reader shows it


# ---- reading Markdown


@dataclass(frozen=True)
class Line:
    """A line of a Markdown cell and what it belongs to: prose, code, math, or the open, option or close line of a colon fence."""

    number: int
    kind: str
    text: str


FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)")
COLONS = re.compile(r"(:{3,})\s*(.*)")
DIRECTIVE = re.compile(r"\{([\w:-]+)\}\s*(.*)")
OPTION = re.compile(r":([\w-]+):\s*(.*)")
END = re.compile(r"\s*\$\$(?: \(([^\s()]+)\))?\s*")


def scan(text: str) -> Iterator[Line]:
    """Say of each line what it belongs to."""
    fence = ""  # the run of backticks or tildes that a code block ends with
    math = options = False
    for number, line in enumerate(text.split("\n"), 1):
        kind = "prose"
        if fence:
            kind = "code"
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif math:
            kind = "math"
            math = not END.fullmatch(line)
        elif match := FENCE.match(line):
            kind, fence = "code", match[1]
        elif line.strip() == "$$":
            kind, math = "math", True
        elif match := COLONS.match(line):
            kind = "open" if match[2] else "close"
            options = bool(match[2])
            yield Line(number, kind, line)
            continue
        elif options and OPTION.fullmatch(line):
            yield Line(number, "option", line)
            continue
        options = False
        yield Line(number, kind, line)


SPAN = re.compile(
    r"(?P<role>\{[\w:]+\}`[^`]+`)"  # a role, which is left as it is
    r"|(?<!`)(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`)"  # code
    r"|(?<![\\$])\$(?!\$)(?:\\.|[^$\\\n]|\n(?!\s*\n))+?\$",  # inline mathematics
    re.S,
)


def masked(text: str, only_code: bool = False) -> str:
    """The text with code and inline mathematics blotted out, every character in its place."""

    def blot(match: re.Match[str]) -> str:
        return match[0] if match["role"] or (only_code and match[0][0] == "$") else re.sub(r"[^\n]", "·", match[0])

    return SPAN.sub(blot, text)


ROLE = re.compile(r"\{([\w:]+)\}`([^`]+)`")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*)(?: +\"[^\"]*\")?\)")


def role_target(content: str) -> str:
    """The label of a role: `label` or `words <label>`."""
    return match[1] if (match := re.fullmatch(r".*<([^<>]+)>", content, re.S)) else content


# ---- the rules


@dataclass
class Fault:
    """Something that does not read well."""

    notebook: str
    cell: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.notebook}, cell {self.cell}, line {self.line}: {self.what}"


@dataclass
class Book:
    """The labels and references of all notebooks, and what is wrong with them."""

    root: Path
    labels: dict[tuple[str, str], str] = field(default_factory=dict)  # (kind, label) to where it stands
    uses: list[tuple[Fault, str, str]] = field(default_factory=list)  # the fault it will be, the kind, the label
    faults: list[Fault] = field(default_factory=list)


Say = Callable[[int, str], None]


def slug(stem: str) -> str:
    """`10_ols_transformer` to `ols-transformer`."""
    return re.sub(r"^\d\d_", "", stem).replace("_", "-")


def prose_runs(lines: list[Line]) -> Iterator[tuple[int, str]]:
    """Stretches of prose, with the number of their first line."""
    run: list[Line] = []
    for line in [*lines, Line(0, "end", "")]:
        if line.kind == "prose":
            run.append(line)
        elif run:
            yield run[0].number, "\n".join(each.text for each in run)
            run = []


def check_fences(lines: list[Line], say: Say, define: Callable[[int, str, str], None]) -> None:
    stack: list[tuple[int, int, str, set[str]]] = []  # line, colons, name, options

    def leave() -> None:
        number, _, name, options = stack.pop()
        if name.removeprefix("prf:") in STATEMENTS and "label" not in options:
            say(number, f"{name} has no label: write `:label: {STATEMENTS[name.removeprefix('prf:')]}-CHAPTER-NAME` below it")

    for i, line in enumerate(lines):
        following = lines[i + 1] if i + 1 < len(lines) else None
        if line.kind == "code" and (match := FENCE.match(line.text)) and (name := DIRECTIVE.match(match[2].strip())):
            instead = "`$$` on lines of their own" if name[1] == "math" else f"`:::{{{name[1]}}}`, with colons"
            if name[1].startswith("code"):
                instead = "a plain ```python, or a code cell"
            say(line.number, f"a directive in a backtick fence shows as code outside the book: write {instead}")
        elif line.kind == "prose" and re.match(r"\s+:::", line.text):
            say(line.number, "a colon fence must begin the line: take the spaces away")
        elif line.kind == "open":
            colons, rest = COLONS.match(line.text).groups()
            match = DIRECTIVE.fullmatch(rest)
            if not match or match[1] not in DIRECTIVES:
                say(line.number, f"`{rest.split()[0]}` is none of the known blocks: write one of {', '.join(sorted(DIRECTIVES))}")
            if stack and stack[-1][1] <= len(colons):
                say(line.number, "a fence within a fence needs fewer colons than the outer one: give the outer one another colon")
            stack.append((line.number, len(colons), match[1] if match else "", set()))
            if i and lines[i - 1].text.strip():
                say(line.number, "outside the book this runs into the line above: put a blank line before it")
        elif line.kind == "option" and stack:
            name, value = OPTION.fullmatch(line.text).groups()
            stack[-1][3].add(name)
            if name not in OPTIONS:
                say(line.number, f"option `:{name}:` is lost outside the book: leave it out (known: label, class)")
            if name == "label":
                define(line.number, "statement", value)
        elif line.kind == "close":
            if stack:
                leave()
            else:
                say(line.number, "closes a fence that nothing opened: take the line away")
        if line.kind == "option" and following and following.kind != "option" and following.text.strip():
            say(line.number, "outside the book this runs into the line below: put a blank line behind it")
    while stack:
        number = stack[-1][0]
        leave()
        say(number, "this fence is never closed: write `:::` on a line of its own")


ENVIRONMENT = re.compile(r"\\begin\{((?:equation|align|gather|multline|eqnarray|alignat|flalign)\*?)\}")
MACRO = re.compile(r"\\(?:re)?newcommand|\\providecommand|\\DeclareMathOperator|\\newenvironment|\\[gex]?def(?![a-z])|\\require\b")


def check_mathematics(lines: list[Line], say: Say, define: Callable[[int, str, str], None]) -> None:
    opened: Line | None = None
    for line in lines:
        if line.kind == "math":
            end = END.fullmatch(line.text)
            if opened is None:
                opened = line
            elif end:
                opened = None
                if end[1]:
                    define(line.number, "equation", end[1])
            elif not line.text.strip():
                say(line.number, "a blank line ends the mathematics outside the book: take it away")
            elif "$$" in line.text:
                say(line.number, "the closing `$$` must begin the line: write `$$` or `$$ (eq-label)` on a line of its own")
        if line.kind == "code":
            continue
        text = masked(line.text, only_code=True)
        if re.search(r"\\label\b", text):
            say(line.number, "`\\label` breaks references in the book: write `$$ (eq-label)` as the last line")
        if re.search(r"\\tag\b", text):
            say(line.number, "`\\tag` clashes with the book's numbers: write `$$ (eq-label)` as the last line")
        if re.search(r"\\(eq)?ref\b", text):
            say(line.number, "`\\ref` finds nothing outside LaTeX: write {eq}`eq-label`")
        if match := ENVIRONMENT.search(text):
            inner = "gathered" if match[1].startswith("gather") else "aligned"
            instead = f"\\begin{{{inner}}} inside `$$`" if line.kind == "math" else f"`$$` on lines of their own, \\begin{{{inner}}} inside"
            say(line.number, f"\\begin{{{match[1]}}} does not show everywhere: write {instead}")
        if match := MACRO.search(text):
            say(line.number, f"`{match[0]}` is known to one page only: write the symbol out")
        if line.kind == "prose" and "$$" in text.replace("\\$", ""):
            say(line.number, "`$$` within a line: write `$$` on lines of their own, and `$` for mathematics in a sentence")
        if line.kind == "prose" and re.search(r"(?<!\\)\\[(\[]", masked(line.text)):
            say(line.number, "`\\(` and `\\[` are not mathematics everywhere: write `$` or `$$`")
    if opened:
        say(opened.number, "this `$$` is never closed: write `$$` on a line of its own")


def check_prose(lines: list[Line], say: Say, use: Callable[[int, str, str], None], folder: Path) -> None:
    for first, run in prose_runs(lines):
        text = masked(run)

        def at(match: re.Match[str], first: int = first, text: str = text) -> int:
            return first + text.count("\n", 0, match.start())

        for match in ROLE.finditer(text):
            if match[1] not in ROLES:
                say(at(match), f"role {{{match[1]}}} is raw text outside the book: write a link, or one of {', '.join(sorted(ROLES))}")
            else:
                for target in role_target(match[2]).split(",") if match[1] in CITATIONS else [role_target(match[2])]:
                    use(at(match), ROLES[match[1]], target.strip())
        for match in LINK.finditer(text):
            if wrong := address_fault(match[3], bool(match[1]), folder):
                say(at(match), wrong)
        for match in re.finditer(r"</?([a-zA-Z][\w-]*)(\s[^<>]*)?/?>", text):
            if match[1].lower() not in HTML or (match[2] or "").strip(" /"):
                say(at(match), f"`{match[0]}` depends on the page around it: write Markdown, or a colon fence")
        for match in re.finditer(r"^\([\w-]+\)=\s*$", text, re.M):
            say(at(match), f"`{match[0].strip()}` is raw text outside the book: take it away and link to the chapter")
        for match in re.finditer(r"^(%|\+\+\+)(?=\s|$)", text, re.M):
            say(at(match), f"a line that begins with `{match[1]}` is hidden in the book only: take it away")


def address_fault(url: str, image: bool, folder: Path) -> str | None:
    """What is wrong with the address of a link or an image."""
    path = url.partition("#")[0]
    if image:
        if re.match(r"\w+:", url) or url.startswith(("/", "\\", "~")):
            return f"image {url[:40]} is not in the folder of the notebooks: write a relative path, as images/NAME.svg"
        return None if (folder / url).is_file() else f"image {url} does not exist: draw it in a cell, or put it into nbs/images"
    if re.match(r"https?://|mailto:", url) or (url.startswith("#") and len(url) > 1):
        return None
    if re.match(r"\w+:|[/\\~]", url):
        return f"link to {url}: write a relative path to a notebook or page, as 04_attention.ipynb"
    if not path.endswith((".ipynb", ".md")):
        return f"link to {url or 'nowhere'}: write the path of the notebook or page, ending in .ipynb or .md"
    return None if (folder / path).is_file() else f"link to {url}, which does not exist: write the path of a notebook or page"


def check_head(nb: nbformat.NotebookNode, say: Callable[[int, int, str], None]) -> None:
    first = nb.cells[0] if nb.cells else None
    lines = [line for line in first.source.split("\n") if line.strip()] if first and first.cell_type == "markdown" else []
    if lines and lines[0].strip() == "---":
        say(1, 1, "front matter is raw text outside the book: begin with `# Title`, settings go into _config.yml")
    elif not (len(lines) == 2 and lines[0].startswith("# ") and lines[1].startswith("> ")):
        say(1, 1, "the first cell must be `# Title`, a blank line and `> one line` that says what the chapter holds, nothing else")
    for number, cell in enumerate(nb.cells, 1):
        if cell.cell_type == "raw":
            say(number, 1, "a raw cell is shown nowhere: write Markdown or code")
        if cell.get("attachments"):
            say(number, 1, "an attachment does not show everywhere: write a relative path, as images/NAME.svg")
        if cell.cell_type == "markdown" and number > 1:
            for line in scan(cell.source):
                if line.kind == "prose" and line.text.startswith("# "):
                    say(number, line.number, "a second title: begin the heading with `## `")


def check_notebook(path: Path, book: Book) -> None:
    """Add the notebook's faults, labels and references to the book."""
    nb = nbformat.read(path, as_version=4)
    name, chapter = path.relative_to(book.root).as_posix(), slug(path.stem)

    def say(cell: int, line: int, what: str) -> None:
        book.faults.append(Fault(name, cell, line, what))

    def define(cell: int, line: int, kind: str, label: str) -> None:
        prefix = {"equation": "eq-", "figure": "fig-"}.get(kind, f"(?:(?:{'|'.join(STATEMENTS.values())})-)?")
        if not re.fullmatch(rf"{prefix}{chapter}(-[a-z0-9-]+)?", label):
            example = prefix if kind != "statement" else "thm-"
            say(cell, line, f"label {label} does not name its chapter: write {example}{chapter}-NAME, in small letters")
        if (kind, label) in book.labels:
            say(cell, line, f"label {label} stands in {book.labels[kind, label]} already: choose another name")
        book.labels.setdefault((kind, label), f"{name}, cell {cell}")

    def use(cell: int, line: int, kind: str, label: str) -> None:
        book.uses.append((Fault(name, cell, line, f"no {kind} has the label {label}: correct it, or label the {kind}"), kind, label))

    check_head(nb, say)
    for number, cell in enumerate(nb.cells, 1):
        if cell.cell_type == "code":
            found = directives(cell.source)
            at = next((i for i, line in enumerate(cell.source.split("\n"), 1) if line.startswith("#| label")), 1)
            if "label" in found:
                define(number, at, "figure", found["label"])
            elif "fig-cap" in found:
                say(number, 1, f"a figure without a label has no number to cite: write `#| label: fig-{chapter}-NAME`")
            continue
        if cell.cell_type != "markdown":
            continue
        lines = list(scan(cell.source))
        here, there = partial(say, number), partial(define, number)
        check_fences(lines, here, there)
        check_mathematics(lines, here, there)
        check_prose(lines, here, partial(use, number), path.parent)


def check(root: Path) -> list[Fault]:
    """All that does not read well in the notebooks of nbs/."""
    book = Book(root)
    for path in sorted((root / "nbs").glob("*.ipynb")):
        check_notebook(path, book)
    bibliography = root / "nbs" / "references.bib"
    entries = set(re.findall(r"^@\w+\{([^,\s]+),", bibliography.read_text("utf8"), re.M)) if bibliography.exists() else set()
    known = set(book.labels) | {("reference", entry) for entry in entries}
    book.faults += [fault for fault, kind, label in book.uses if (kind, label) not in known]
    return sorted(book.faults, key=lambda fault: (fault.notebook, fault.cell, fault.line))


def main() -> int:
    parser = argparse.ArgumentParser(description="Check that the notebooks read well in the book, in Jupyter, on a code host and in Colab.")
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the project's folder")
    root = parser.parse_args().root.resolve()
    count = len(list((root / "nbs").glob("*.ipynb")))
    if not count:
        print(f"no notebooks in {root / 'nbs'}: name the project's folder")
        return 1
    faults = check(root)
    print("\n".join(map(str, faults)) if faults else f"{count} notebooks read well in four places")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
