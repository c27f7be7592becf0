"""Check the pages of the built book, one line per fault; exit 1 if there is any.

    python tools/check_book.py [_build/html] [--source .]

Missing pages, executed pages without their outputs, tracebacks and warnings, broken links and anchors, references that were not
resolved, images without a description, anything fetched from another host, mathematics without MathJax, ids given twice; theorems,
equations and figures without a label of their author or a line under "Cite this page", BibTeX that does not parse, public names without
an entry on the API pages, entries without a link to their cell.
`--source` is the folder with `_toc.yml`, `settings.ini` and the notebooks. Pages that Sphinx did not make (below `_static`) are left out.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import yaml
from pybtex.database import parse_string
from pybtex.exceptions import PybtexError

ROOT = Path(__file__).resolve().parent.parent
THIRD_PARTY = {"_static", "mathjax"}
THEME_DUPLICATES = {("search.html", "search-input")}  # the theme puts its search box on the search page twice

Faults = Iterator[str]


# ---- reading a page

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
CODE = {"code", "kbd", "pre", "samp", "script", "style", "textarea"}
MEDIA = {"img", "svg", "canvas", "video", "audio", "iframe", "object", "table"}
HARMLESS_RELS = {"alternate", "author", "canonical", "help", "index", "license", "me", "next", "nofollow", "prev", "search", "up"}
LEFTOVERS = {
    "an unresolved number": re.compile(r"\?\?"),
    "a raw role": re.compile(r"\{(?:eq|numref|ref|doc|term|math|download|cite|abbr|(?:cite|prf|py|std):[\w-]+)\}"),
    "a raw fence": re.compile(r":::|```"),
    "a raw option": re.compile(r"^\s*:(?:label|class|name|width|alt|align|nonumber):", re.M),
    "raw mathematics": re.compile(r"\$\$"),
    "a raw link": re.compile(r"\]\("),
}
SCRIPT_LOADS = re.compile(
    r"""(?: \b(?: import | from ) | \b(?: import | importScripts | fetch ) \s*\( | \.src\s*= | \bnew\s+(?:Shared)?Worker\s*\( )
        \s* ["'`] ( (?:https?:)?// [^"'`]* ) ["'`]""",
    re.X,
)
KINDS = {"theorem": "thm", "lemma": "lem", "corollary": "cor", "proposition": "prop", "definition": "def", "conjecture": "conj"}
KINDS |= {"algorithm": "alg", "example": "ex", "remark": "rem", "assumption": "asm", "criterion": "crit", "observation": "obs"}
KINDS |= {"axiom": "axiom", "property": "property", "notation": "notation"}
LABEL = re.compile(r"^(?:#\| *label:|:label:|:name:|\$\$ *\() *([^\s)]+)", re.M)
CSS_COMMENT = re.compile(r"/\*.*?\*/", re.S)
CSS_URL = re.compile(r"""@import\s*(?P<a>"[^"]*"|'[^']*')|url\(\s*(?P<b>"[^"]*"|'[^']*'|[^"')\s]*)\s*\)""")


def css_urls(text: str) -> list[str]:
    """What a stylesheet loads: `@import` and `url(...)`."""
    return [(match["a"] or match["b"]).strip("\"'") for match in CSS_URL.finditer(CSS_COMMENT.sub("", text))]


def srcset_urls(value: str) -> list[str]:
    """The addresses in a `srcset`, without widths and densities."""
    return [candidate.split()[0].rstrip(",") for candidate in re.split(r",\s+", value.strip()) if candidate.split()]


@dataclass
class Frame:
    """An element that is open."""

    tag: str
    attributes: dict[str, str]
    classes: set[str]
    text: str = ""


@dataclass
class Page(HTMLParser):
    """What one page links to, loads, shows and anchors."""

    name: str
    ids: Counter[str] = field(default_factory=Counter)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    images: list[dict[str, str]] = field(default_factory=list)
    pictured: set[str] = field(default_factory=set)
    outputs: list[bool] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    labelled: list[tuple[str, str]] = field(default_factory=list)
    entries: dict[str, list[str]] = field(default_factory=dict)
    bibtex: list[str] = field(default_factory=list)
    headings: int = 0
    mathematics: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[Frame] = []

    def inside(self, *classes: str) -> bool:
        return any(frame.classes.intersection(classes) for frame in self.stack)

    def within(self, tags: set[str]) -> bool:
        return any(frame.tag in tags for frame in self.stack)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        frame = Frame(tag, attributes, set(attributes.get("class", "").split()))
        if attributes.get("id"):
            self.ids[attributes["id"]] += 1
        if tag == "a" and attributes.get("name") and attributes["name"] != attributes.get("id"):
            self.ids[attributes["name"]] += 1
        self.headings += tag == "h1"
        self.mathematics |= "math" in frame.classes
        self.read_addresses(tag, attributes)
        self.read_cell(frame)
        self.read_label(frame)
        if tag == "img":
            self.images.append(attributes)
            self.pictured |= {above.attributes.get("id", "") for above in self.stack}
        if tag not in VOID:
            self.stack.append(frame)

    def read_addresses(self, tag: str, attributes: dict[str, str]) -> None:
        """Sort what the element names into links, which a reader may follow, and loads, which the browser fetches by itself."""
        href = attributes.get("href", attributes.get("xlink:href"))
        if href is not None:
            rels = set(attributes.get("rel", "").lower().split())
            followed = tag in {"a", "area"} or (tag == "link" and rels <= HARMLESS_RELS)
            (self.links if followed else self.loads).append(href)
        self.loads += [attributes[name] for name in ("src", "poster", "background") if name in attributes]
        self.loads += [url for name in ("srcset", "imagesrcset") for url in srcset_urls(attributes.get(name, ""))]
        self.loads += css_urls(attributes.get("style", ""))
        if tag == "object" and "data" in attributes:
            self.loads.append(attributes["data"])
        if tag == "form" and attributes.get("action"):
            self.links.append(attributes["action"])
        if tag == "script" and "src" in attributes:
            self.scripts.append(attributes["src"])
        if tag == "meta" and attributes.get("http-equiv", "").lower() == "refresh" and "=" in attributes.get("content", ""):
            self.links.append(attributes["content"].partition("=")[2].strip())

    def read_cell(self, frame: Frame) -> None:
        """Count outputs; a traceback is allowed only where the cell says `#| error: true`."""
        if "cell_output" in frame.classes:
            self.outputs.append(False)
        elif self.inside("cell_output") and frame.tag in MEDIA:
            self.outputs[-1] = True
        if "output" in frame.classes and "stderr" in frame.classes:
            self.faults.append("shows what a cell printed to stderr")
        if "output" in frame.classes and "traceback" in frame.classes and not self.inside("tag_raises-exception"):
            self.faults.append("shows a cell's traceback")
        if "system-message" in frame.classes:
            self.faults.append("shows a docutils error message")

    def read_label(self, frame: Frame) -> None:
        """What has a number and so needs a label; the entries of an API page with their links; the BibTeX."""
        name = frame.attributes.get("id", "")
        if frame.tag == "div" and frame.classes >= {"proof", "admonition"}:
            self.labelled += [(kind, name) for kind in KINDS if kind in frame.classes]
        elif frame.tag == "figure":
            self.labelled.append(("figure", name))
        elif "eqno" in frame.classes:
            self.labelled.append(("equation", self.stack[-1].attributes.get("id", "").removeprefix("equation-")))
        elif frame.tag == "dt" and "sig-object" in frame.classes:
            self.entries[name] = []
        elif frame.tag == "a" and (signature := next((above for above in self.stack if "sig-object" in above.classes), None)):
            self.entries[signature.attributes.get("id", "")].append(frame.attributes.get("href", ""))
        elif self.inside("cite-this") and (frame.tag == "pre" or "cite-note" in frame.classes):
            self.bibtex.append("")

    def handle_endtag(self, tag: str) -> None:
        if any(frame.tag == tag for frame in self.stack):
            while self.finish(self.stack.pop()) != tag:
                pass

    def finish(self, frame: Frame) -> str:
        """Judge an element once its text is known; return its tag."""
        text = " ".join(frame.text.split())
        kind = frame.classes - {"xref", "docutils", "literal", "notranslate"} if "xref" in frame.classes else set()
        if kind and "py" not in frame.classes and (kind == {"myst"} or not self.within({"a"})):
            self.faults.append(f"has an unresolved reference to {text!r}")
        if "bibtex-citation" in frame.classes and not re.search(r"\w", text):
            self.faults.append("has a citation without its entry")
        return frame.tag

    def handle_data(self, data: str) -> None:
        for frame in self.stack:
            if frame.classes & {"xref", "bibtex-citation"}:
                frame.text += data
        if self.inside("cite-this") and (self.within({"pre"}) or self.inside("cite-note")):
            self.bibtex[-1] += data
        top = self.stack[-1].tag if self.stack else ""
        if top == "style":
            self.loads += css_urls(data)
        elif top == "script":
            self.read_script(data)
        elif data.strip():
            self.read_text(data)

    def read_script(self, data: str) -> None:
        pattern = re.compile(r'"((?:https?:)?//[^"]*)"') if self.stack[-1].attributes.get("type") == "importmap" else SCRIPT_LOADS
        self.loads += pattern.findall(data)

    def read_text(self, data: str) -> None:
        if self.inside("cell_output"):
            self.outputs[-1] = True
        if self.inside("cell_input") and self.within({"pre"}):
            self.faults += [f"shows the directive {line!r} in a code cell" for line in re.findall(r"^#\|.*", data, re.M)]
        if self.within({"article"}) and not self.within(CODE) and not self.inside("math", "sig"):
            for what, pattern in LEFTOVERS.items():
                if match := pattern.search(data):
                    excerpt = " ".join(data[max(0, match.start() - 20) : match.end() + 20].split())
                    self.faults.append(f"has {what} in its text: {excerpt!r}")


def read_page(path: Path, name: str) -> Page:
    page = Page(name)
    page.feed(path.read_text("utf8"))
    page.close()
    while page.stack:
        page.finish(page.stack.pop())
    return page


# ---- what the sources promise


def toc_files(entry: Any) -> list[str]:
    """Every document that `_toc.yml` lists, in its order."""
    if isinstance(entry, list):
        return [name for item in entry for name in toc_files(item)]
    if not isinstance(entry, dict):
        return []
    own = [entry[key] for key in ("root", "file") if key in entry]
    below = [toc_files(entry[key]) for key in ("parts", "subtrees", "chapters", "entries", "sections") if key in entry]
    return [re.sub(r"\.(ipynb|md|rst)$", "", str(name)) for name in own] + [name for names in below for name in names]


@dataclass(frozen=True)
class Promise:
    """How many outputs a notebook's page shows at least, and the labels of its figures."""

    outputs: int
    figures: tuple[str, ...]


def directives(source: str) -> dict[str, str]:
    """The `#| name: value` lines at the top of a cell."""
    found = {}
    for line in source.splitlines():
        if not (match := re.match(r"#\|\s*([\w-]+)\s*:?\s*(.*?)\s*$", line)):
            break
        found[match[1]] = match[2]
    return found


def displays(source: str) -> bool:
    """Whether a cell surely shows something: it prints, or its last line is a value rather than a call (which may return None)."""
    code = "\n".join("" if re.match(r"\s*[%!]", line) else line for line in source.splitlines())
    body = ast.parse(code).body
    calls = [node.value for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    if any(isinstance(call.func, ast.Name) and call.func.id == "print" for call in calls):
        return True
    values = (ast.Name, ast.Tuple, ast.List, ast.Dict, ast.BinOp, ast.Compare, ast.JoinedStr, ast.ListComp, ast.DictComp)
    last = body[-1] if body else None
    return isinstance(last, ast.Expr) and isinstance(last.value, values) and not code.rstrip().endswith(";")


def read_promise(path: Path) -> Promise:
    """What the page of a notebook must show; hidden cells and hidden outputs promise nothing."""
    cells = [cell for cell in json.loads(path.read_text("utf8"))["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    hidden = {"hide", "default_exp"}
    shown = [s for s in sources if not hidden & directives(s).keys() and directives(s).get("output") != "false"]
    labels = [directives(source)["label"] for source in shown if "label" in directives(source)]
    figures = tuple(re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") for label in labels)
    return Promise(max(bool(cells), sum(displays(source) for source in shown)), figures)


def settings(source: Path) -> dict[str, str]:
    config = ConfigParser(delimiters=["="])
    config.read(source / "settings.ini", encoding="utf-8")
    return dict(config["DEFAULT"])


# ---- the checks: each yields the faults of one page


def shows_what_it_promises(page: Page, promise: Promise) -> Faults:
    shown = sum(page.outputs)
    if shown < promise.outputs:
        least = "an executed page must have one" if promise.outputs == 1 else f"its notebook displays at least {promise.outputs}"
        yield f"shows {shown} cell outputs, {least}"
    for label in promise.figures:
        if label not in page.pictured:
            yield f"lacks the image of the figure {label!r}"


def describes_its_images(page: Page) -> Faults:
    for image in page.images:
        source, alt = unquote(image.get("src", "")), image.get("alt", "").strip()
        decorative = image.get("aria-hidden") == "true" or image.get("role") in {"presentation", "none"}
        if not alt:
            if not decorative:
                yield f"has no alt text for the image {source}"
        elif alt in {source, Path(source).name, Path(source).stem} or re.search(r"\.(png|jpe?g|svg|gif|webp|avif|pdf)$", alt, re.I):
            yield f"has only a file name as alt text: {alt}"


def gives_each_id_once(page: Page) -> Faults:
    for name, count in page.ids.items():
        if count > 1 and (page.name, name) not in THEME_DUPLICATES:
            yield f"gives the id {name!r} to {count} elements"


def loads_mathjax_for_mathematics(page: Page) -> Faults:
    if page.mathematics and not mathjax(page):
        yield "has mathematics but loads no MathJax"


def mathjax(page: Page) -> list[str]:
    return [url for url in page.scripts if re.search(r"mathjax|tex-(mml-)?(chtml|svg)", url, re.I)]


FORGES = {"github.com", "www.github.com", "raw.githubusercontent.com", "gitlab.com", "codeberg.org", "bitbucket.org"}
LAUNCHERS = {"mybinder.org", "colab.research.google.com"}
INVENTED = {"none", "null", "user", "username", "owner", "example", "your-name", "yourname", "your-username", "your-org"}


def is_placeholder(url: str, meta: dict[str, str]) -> bool:
    """Whether an outside address was made from an empty key, or names a repository of ours although none is known."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} and not parts.netloc:
        return False
    host, path = (parts.hostname or "").lower(), parts.path.strip("/").split("/")
    if not host or host.startswith("."):
        return True
    if meta.get("git_url"):
        return False
    ours = meta.get("repo", "").lower()
    if host in LAUNCHERS and path[0] in {"github", "gist", "v2"}:
        return True
    if host in FORGES:
        return (
            len(path) < 2 or "//" in parts.path or path[0].lower() in INVENTED or path[1].lower() == ours or path[2:4] == ["issues", "new"]
        )
    return host.split(".")[0] in INVENTED or (host.endswith((".github.io", ".gitlab.io")) and path[0].lower() == ours)


def local_path(page: Path, parts: SplitResult) -> Path:
    return (page.parent / unquote(parts.path)).resolve() if parts.path else page


def address_fault(url: str, page: Path, book: dict[Path, Page]) -> str | None:
    """What is wrong with an address inside the book, if anything."""
    parts = urlsplit(url)
    if parts.path.startswith("/"):
        return f"points to the root of the server, not into the book: {url}"
    target = local_path(page, parts)
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return f"points to a file that is not there: {url}"
    anchor = unquote(parts.fragment).partition(":~:")[0]
    if anchor and anchor != "top" and target in book and anchor not in book[target].ids:
        return f"points to an anchor that is not there: {url}"
    return None


def outside(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme not in {"", "data", "blob", "about", "javascript"}


def has_sound_addresses(page: Page, path: Path, book: dict[Path, Page], meta: dict[str, str]) -> Faults:
    for url in dict.fromkeys(url.strip() for url in page.loads if url.strip()):
        if outside(url):
            yield f"loads from another host: {url}"
        elif not urlsplit(url).scheme and (fault := address_fault(url, path, book)):
            yield fault
    for url in dict.fromkeys(page.links):
        if urlsplit(url).scheme == "file":
            yield f"points into one machine's files: {url}"
        elif is_placeholder(url, meta):
            yield f"points to a repository though settings.ini names none: {url}"
        elif not outside(url) and not urlsplit(url).scheme and (fault := address_fault(url, path, book)):
            yield fault


def stylesheet_faults(path: Path) -> Faults:
    for url in dict.fromkeys(css_urls(path.read_text("utf8"))):
        if outside(url):
            yield f"loads from another host: {url}"
        elif url and not urlsplit(url).scheme and not url.startswith("#") and not local_path(path, urlsplit(url)).is_file():
            yield f"points to a file that is not there: {url}"


def script_faults(path: Path) -> Faults:
    for url in dict.fromkeys(SCRIPT_LOADS.findall(path.read_text("utf8"))):
        yield f"loads from another host: {url}"


# ---- labels, citations and API entries


def labels_what_it_numbers(page: Page) -> Faults:
    """A label is written by the author, begins with its kind, and has a line under "Cite this page"."""
    for kind, label in page.labelled:
        prefix = KINDS.get(kind, kind[:3] if kind == "figure" else "eq")
        if not label.startswith(f"{prefix}-"):
            yield f"has {'an' if kind[0] in 'aeiou' else 'a'} {kind} without a label {prefix}-..., its id is {label!r}"
        elif label not in page.ids:
            yield f"has no anchor {label!r} for its {kind}"
        elif f"cite-{label}" not in page.ids:
            yield f'has no line for {label!r} under "Cite this page"'


def labels_once(book: dict[Path, Page]) -> Faults:
    homes: dict[str, list[str]] = {}
    for page in book.values():
        for _, label in page.labelled:
            homes.setdefault(label, []).append(page.name)
    yield from (f"{names[0]}: gives the label {label!r} that {names[1]} gives too" for label, names in homes.items() if len(names) > 1)


def written_labels(path: Path) -> set[str]:
    """The labels in a notebook's source, those of cells that are not shown left out."""
    sources = ["".join(cell["source"]) for cell in json.loads(path.read_text("utf8"))["cells"]]
    return {label for source in sources if "hide" not in directives(source) for label in LABEL.findall(source)}


def can_be_cited(page: Page, labels: set[str]) -> Faults:
    """A chapter has its BibTeX, and its anchors are the labels that its author wrote."""
    yield from (f"has no anchor for the label {label!r} of its notebook" for label in sorted(labels - page.ids.keys()))
    if not page.bibtex:
        yield 'has no BibTeX under "Cite this page"'
    for text in page.bibtex:
        try:
            entries = parse_string(text if text.lstrip().startswith("@") else f"@misc{{note,\n{text}\n}}", "bibtex").entries
        except PybtexError as error:
            yield f"has BibTeX that does not parse: {error}"
        else:
            if not all(entry.fields for entry in entries.values()) or len(entries) != max(1, text.count("\n@") + 1):
                yield f"has BibTeX with an empty entry: {text[:40]!r}"


def public_names(package: Path) -> list[str]:
    """`package.module.name` for every name in the `__all__` of its modules."""
    found = []
    for path in sorted(package.glob("[!_]*.py")):
        for node in ast.parse(path.read_text("utf8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found += [f"{package.name}.{path.stem}.{name}" for name in ast.literal_eval(node.value)]
    return found


def api_faults(source: Path, book: dict[Path, Page], meta: dict[str, str]) -> Faults:
    """Every public name has one entry; every entry leads to the cell that defines it."""
    if not (lib := meta.get("lib_path")):
        return
    names = public_names(source / lib)
    if not names:
        yield f"{lib}: no module with public names, settings.ini says that they are there"
    for name in names:
        pages = [page.name for page in book.values() if name in page.entries]
        if len(pages) != 1:
            yield f"{name}: has {len(pages)} entries on the API pages, one is needed" + (f": {', '.join(pages)}" if pages else "")
    for path, page in book.items():
        for name, links in page.entries.items():
            cells = [url for url in links if "#cell-" in url]
            if len(cells) != 1 or address_fault(cells[0], path, book):
                yield f"{page.name}: the entry {name} does not lead to its notebook cell"


def mathjax_faults(html: Path, book: dict[Path, Page]) -> Faults:
    """MathJax fetches its fonts from beside its script; without them equations are unreadable."""
    scripts = {local_path(path, urlsplit(url)) for path, page in book.items() for url in mathjax(page) if not outside(url)}
    for script in sorted(scripts):
        if script.is_file() and "chtml" in script.name and not list(script.parent.glob("output/chtml/fonts/woff-v2/*.woff")):
            yield f"{script.relative_to(html)}: has no fonts in output/chtml/fonts/woff-v2 beside it"


# ---- all together


@dataclass
class Report:
    """Faults and notes, one line each, and what was counted."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def missing_or_bare(html: Path, source: Path, book: dict[Path, Page]) -> Faults:
    """Compare the pages with `_toc.yml` and with what the notebooks promise."""
    if not book:
        yield f"{html}: no pages; build the book first"
    if not (html / "index.html").is_file():
        yield "index.html: the page is missing, a reader opens the book there"
    for document in toc_files(yaml.safe_load((source / "_toc.yml").read_text("utf8"))):
        page = book.get(html / f"{document}.html")
        if page is None:
            yield f"{document}.html: the page is missing, _toc.yml lists it"
            continue
        if not page.headings:
            yield f"{page.name}: has no title"
        if (notebook := source / f"{document}.ipynb").is_file():
            promised = [*shows_what_it_promises(page, read_promise(notebook)), *can_be_cited(page, written_labels(notebook))]
            yield from (f"{page.name}: {fault}" for fault in promised)


def page_faults(path: Path, page: Page, book: dict[Path, Page], meta: dict[str, str]) -> Faults:
    """Everything that is wrong with one page, each thing once."""
    found = [*page.faults, *has_sound_addresses(page, path, book, meta)]
    for rule in (describes_its_images, gives_each_id_once, loads_mathjax_for_mathematics, labels_what_it_numbers):
        found += rule(page)
    yield from (f"{page.name}: {fault}" for fault in dict.fromkeys(found))


def asset_faults(html: Path, book: dict[Path, Page]) -> Faults:
    """Everything that is wrong with stylesheets and scripts, the theme's included."""
    for pattern, read in (("*.css", stylesheet_faults), ("*.js", script_faults)):
        for path in sorted(html.rglob(pattern)):
            yield from (f"{path.relative_to(html)}: {fault}" for fault in read(path))
    yield from mathjax_faults(html, book)


def check(html: Path, source: Path = ROOT) -> Report:
    """Check a built book against its sources."""
    html, meta, report = html.resolve(), settings(source), Report()
    paths = sorted(path for path in html.rglob("*.html") if path.relative_to(html).parts[0] not in THIRD_PARTY)
    book = {path: read_page(path, str(path.relative_to(html))) for path in paths}
    report.faults += missing_or_bare(html, source, book)
    for path, page in book.items():
        report.faults += page_faults(path, page, book, meta)
        if mathjax(page) and not page.mathematics:
            report.notes.append(f"{page.name}: loads MathJax without mathematics")
        report.counts += Counter(pages=1, links=len(page.links), images=len(page.images), outputs=sum(page.outputs), loads=len(page.loads))
    report.faults += [*asset_faults(html, book), *labels_once(book), *api_faults(source, book, meta)]
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the pages of the built book; exit 1 if there is a fault.")
    parser.add_argument("html", nargs="?", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--source", type=Path, default=ROOT, help="the folder with _toc.yml, settings.ini and the notebooks")
    arguments = parser.parse_args()
    report = check(arguments.html, arguments.source)
    for fault in report.faults:
        print(fault)
    for note in report.notes:
        print(f"note: {note}")
    total = ", ".join(f"{report.counts[name]} {name}" for name in ("pages", "outputs", "images", "links", "loads"))
    print(f"{total}: {len(report.faults)} faults")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
