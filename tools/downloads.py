"""A copy of each chapter for Jupyter, VS Code, Colab and a code host: what the book resolves is resolved, and it installs what it needs.

As a Sphinx extension it writes `_build/html/_downloads/NAME.ipynb` when the pages are written, and links each page to its file.

    python tools/downloads.py --run NAME ... --python VENV/bin/python

executes such files in an empty folder with another interpreter, which needs the package and its [notebook] extra.
"""

from __future__ import annotations

import argparse
import ast
import base64
import html
import json
import mimetypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser
from functools import cache
from importlib.metadata import packages_distributions
from itertools import takewhile
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

sys.path.insert(0, str(Path(__file__).parent))
from check_legible import COLONS, DIRECTIVE, END, LINK, OPTION, ROLE, Line, masked, role_target, scan
from execute import DIRECTIVE as CELL_DIRECTIVE
from execute import PACKAGE, ROOT, closure, directives, executed_path, imported, parse_cells

FOLDER = "_downloads"


class DownloadError(Exception):
    """A chapter holds something that its download cannot show."""


# ---- what the book knows: numbers, names and the bibliography, from Sphinx's own environment


class Book:
    """Answers in the book's own words, so that a download and the page agree."""

    def __init__(self, app: Any) -> None:
        self.env, self.builder = app.env, app.builder

    def reference(self, docname: str, role: str, content: str) -> tuple[str, str]:
        """The text that the page shows for a role, and the address it leads to."""
        from docutils import nodes
        from sphinx.addnodes import pending_xref

        domain, typ = {"eq": ("math", "eq"), "numref": ("std", "numref"), "cite": ("cite", "p")}.get(role) or role.split(":")
        target = role_target(content)
        words = content.rpartition("<")[0].strip() if target != content else ""
        child = nodes.inline("", words or target)
        node = pending_xref("", child, refdomain=domain, reftype=typ, reftarget=target, refdoc=docname, refexplicit=bool(words))
        found = self.env.get_domain(domain).resolve_xref(self.env, docname, self.builder, typ, target, node, child)
        if found is None:
            raise DownloadError(f"{{{role}}}`{content}` leads nowhere")
        link = next(iter(found.findall(nodes.reference)), None)
        url = link.get("refuri") or f"#{link.get('refid', '')}" if link is not None else ""
        return found.astext(), url

    def statement(self, docname: str, label: str) -> str:
        return self.reference(docname, "prf:ref", label)[0]

    def tag(self, docname: str, label: str) -> str:
        """The number of an equation without its brackets."""
        return self.reference(docname, "eq", label)[0].strip("()")

    def title(self, docname: str) -> str:
        from docutils import nodes

        if docname not in self.env.titles:
            raise DownloadError(f"no page {docname}")
        title = self.env.titles[docname]
        return "".join(f"`{part.astext()}`" if isinstance(part, nodes.literal) else part.astext() for part in title.children)

    def works(self, keys: set[str]) -> list[str]:
        """The entries of the book's bibliography, in its order, as Markdown."""
        from pybtex.backends.markdown import Backend

        class Readable(Backend):
            """Escapes what would be read as Markdown, and not every full stop."""

            def format_str(self, text: str) -> str:
                return re.sub(r"([\\`*_\[\]$])", r"\\\1", text)

        backend = Readable()
        return [
            citation.formatted_entry.text.render(backend).replace("\n", " ")
            for citation in self.env.get_domain("cite").citations
            if citation.key in keys
        ]


# ---- prose


class Prose:
    """Markdown of one chapter, made plain."""

    def __init__(self, book: Any, docname: str, address: str = "") -> None:
        self.book, self.docname, self.address = book, docname, address
        self.cited: set[str] = set()

    def plain(self, text: str) -> str:
        """A cell's text without fences, roles and labels."""
        return "\n".join(self.blocks(list(scan(text)))).strip("\n")

    def linked(self, text: str, url: str, wanted: bool = False) -> str:
        """A link to the book's page if the book has an address, else the text alone."""
        if not self.address or not url:
            return f"*{text}*" if wanted and "*" not in text else text
        base = f"{self.address}/{self.docname}.html"
        return f"[{text}]({base}{url})" if url.startswith("#") else f"[{text}]({join(base, url)})"

    def inline(self, text: str) -> str:
        """Roles and links to other chapters, resolved."""

        def role(match: re.Match[str], _: str) -> str:
            if match[1].startswith("cite"):
                self.cited |= {key.strip() for key in role_target(match[2]).split(",")}
                return str(self.book.reference(self.docname, match[1], match[2])[0])
            return self.linked(*self.book.reference(self.docname, match[1], match[2]))

        def link(match: re.Match[str], original: str) -> str:
            words, url = original[match.start(2) : match.end(2)], match[3]
            path, _, part = url.partition("#")
            if match[1] or re.match(r"https?://|mailto:", url):
                return original[match.start() : match.end()]
            docname = str(Path(join(self.docname, path)).with_suffix("")) if path else self.docname
            address = f"{path.rsplit('.', 1)[0]}.html" if path else ""
            return self.linked(words or self.book.title(docname), f"{address}#{part}" if part else address, wanted=not words)

        return substituted(LINK, substituted(ROLE, text, role), link)

    def blocks(self, lines: list[Line], quoted: bool = False) -> list[str]:
        """Lines of Markdown; in a quotation every equation stands on one line, since Jupyter would take the `>` for mathematics."""
        out: list[str] = []
        i = 0
        while i < len(lines):
            kind = lines[i].kind
            if kind == "open":
                end = closing(lines, i)
                out += apart(out) + self.fence(lines[i].text, lines[i + 1 : end])
                i = end + 1
                if i < len(lines) and lines[i].text.strip():
                    out.append("")
                continue
            end = i + 1
            if kind == "math":
                while not END.fullmatch(lines[end].text):
                    end += 1
                end += 1
                out += self.equation([line.text for line in lines[i:end]], quoted)
            else:
                while end < len(lines) and lines[end].kind == kind:
                    end += 1
                run = "\n".join(line.text for line in lines[i:end])
                out += (self.inline(run) if kind == "prose" else run).split("\n")
            i = end
        return out

    def equation(self, lines: list[str], quoted: bool) -> list[str]:
        match = END.fullmatch(lines[-1])
        assert match
        indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
        body = lines[1:-1]
        if match[1]:
            body[-1] += rf" \tag{{{self.book.tag(self.docname, match[1])}}}"
        if quoted:
            return ["", f"{indent}$$ {' '.join(line.strip() for line in body)} $$", ""]
        return [f"{indent}$$", *body, f"{indent}$$"]

    def fence(self, first: str, inner: list[Line]) -> list[str]:
        """A theorem, a proof or an admonition as a quotation; folded where the book folds it."""
        match = DIRECTIVE.fullmatch(COLONS.match(first)[2])
        if not match:
            raise DownloadError(f"{first}: not a block")
        name, title = match[1], self.inline(match[2])
        options = dict(OPTION.fullmatch(line.text).groups() for line in takewhile(lambda line: line.kind == "option", inner))
        inner = inner[len(options) :]
        folded = "dropdown" in options.get("class", "")
        body = stripped(self.blocks(inner, quoted=not folded and name != "prf:proof"))
        if name == "prf:proof":
            body = [*body[:-1], f"{body[-1]} ∎"] if body and "$$" not in body[-1] else [*body, "", "∎"]
            if not folded:
                return [f"*Proof.* {body[0]}", *body[1:]] if re.match(r"[\w$(*]", body[0]) else ["*Proof.*", "", *body]
            title = "Proof"
        elif name.startswith("prf:"):
            head = f"**{self.book.statement(self.docname, options['label'])}**" if "label" in options else f"**{name[4:].title()}**"
            title = f"{head} ({title})." if title else f"{head}."
        else:
            title = title or name.title()
        if folded:
            return ["<details>", f"<summary>{title.replace('**', '')}</summary>", "", *body, "", "</details>"]
        if not name.startswith("prf:"):
            title = f"**{title}**"
        return [f"> {line}".rstrip() for line in [title, "", *body]]


def join(base: str, path: str) -> str:
    """A relative path as seen from a page, without `..`."""
    scheme, _, rest = base.rpartition("://")
    joined = os.path.normpath(os.path.join(os.path.dirname(rest), path)).replace(os.sep, "/")
    return f"{scheme}://{joined}" if scheme else joined


def substituted(pattern: re.Pattern[str], text: str, replace: Callable[[re.Match[str], str], str]) -> str:
    """Replace matches outside code and mathematics."""
    out, end = [], 0
    for match in pattern.finditer(masked(text)):
        out += [text[end : match.start()], replace(match, text)]
        end = match.end()
    return "".join([*out, text[end:]])


def closing(lines: list[Line], start: int) -> int:
    """Where the fence that is opened on a line is closed."""
    depth = 0
    for i in range(start, len(lines)):
        depth += {"open": 1, "close": -1}.get(lines[i].kind, 0)
        if not depth:
            return i
    raise DownloadError(f"{lines[start].text} is never closed")


def apart(out: list[str]) -> list[str]:
    return [""] if out and out[-1].strip() else []


def stripped(lines: list[str]) -> list[str]:
    """Without blank lines at the ends, and never two in a row."""
    kept = [line for i, line in enumerate(lines) if line.strip() or (i and lines[i - 1].strip())]
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


# ---- what a chapter needs


def settings(root: Path = ROOT) -> Any:
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini", encoding="utf-8")
    return config["DEFAULT"]


def third_party(nb: NotebookNode, root: Path = ROOT) -> set[str]:
    """The top-level modules of other projects that a chapter imports, itself or through the package."""
    package, tree = root / PACKAGE, parse_cells(nb)
    trees: list[ast.AST] = [tree, *(ast.parse((package / f"{m}.py").read_text("utf8")) for m in closure(imported(tree, package), package))]
    names = {
        name.partition(".")[0]
        for node in (node for each in trees for node in ast.walk(each))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    return names - set(sys.stdlib_module_names) - {PACKAGE, "IPython", ""}  # IPython runs the notebook


def normal(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def homes() -> Mapping[str, list[str]]:
    """Module to the distributions that hold it, slow to find out."""
    return packages_distributions()


def needs(nb: NotebookNode, meta: Any, root: Path = ROOT) -> dict[str, str]:
    """Module to requirement, for what the chapter imports beyond the package's core."""

    def listed(key: str) -> dict[str, str]:
        return {normal(re.split(r"[<>=!~\[]", each)[0]): each for each in meta[key].split()}

    core, extra = listed("requirements"), listed("notebook_requirements")
    found = {}
    for module in sorted(third_party(nb, root)):
        names = [normal(name) for name in homes().get(module, [module])]
        if any(name in core for name in names):
            continue
        if not (home := next((name for name in names if name in extra), None)):
            raise DownloadError(f"imports {module}, which is not among settings.ini's notebook_requirements: add what brings it")
        found[module] = extra[home]
    return found


INSTALL = """\
# Installs what this chapter needs, where it is missing.
import importlib
import subprocess
import sys
from importlib.util import find_spec

{refuse}wanted = {wanted}
missing = [what for module, what in wanted.items() if not find_spec(module)]
if missing:
    subprocess.check_call([sys.executable, "-m", "pip", "install", "-q", *missing])
    importlib.invalidate_caches()"""
REFUSE = """\
if not find_spec("{package}"):
    raise ModuleNotFoundError(
        "{package} is on no package index yet. Install it from its wheel:\\n"
        '    pip install "path/to/{package}-{version}-py3-none-any.whl[notebook]"\\n'
        "or, in a clone of its repository:\\n"
        '    pip install ".[notebook]"\\n'
        "In a notebook, write %pip for pip. Then restart the kernel."
    )
"""


def install_cell(nb: NotebookNode, meta: Any, root: Path = ROOT) -> str:
    """The code of the first cell: from the repository if its address is known, else a sentence that says how."""
    wanted, refuse = needs(nb, meta, root), REFUSE.format(package=PACKAGE, version=meta["version"])
    if meta["git_url"]:
        wanted, refuse = {PACKAGE: f"{PACKAGE}[notebook] @ git+{meta['git_url']}@{meta['branch']}", **wanted}, ""
    lines = "".join(f"    {json.dumps(key)}: {json.dumps(value)},\n" for key, value in wanted.items())
    return INSTALL.format(wanted=f"{{\n{lines}}}" if lines else "{}", refuse=refuse)


# ---- a notebook


def code(source: str) -> str:
    """A cell without its directives."""
    lines = source.split("\n")
    while lines and (CELL_DIRECTIVE.match(lines[0]) or not lines[0].strip()):
        lines.pop(0)
    return "\n".join(lines)


def impersonal(text: str) -> str:
    """Without the paths of the machine that ran the notebook."""
    text = re.sub(r"[^\s\"'()]*[/\\]site-packages[/\\]", "site-packages/", text)
    text = re.sub(r"[^\s\"'()]*[/\\]ipykernel_\d+[/\\]", "", text)
    for path, instead in ((str(ROOT) + os.sep, ""), (str(ROOT), "."), (str(Path.home()) + os.sep, "~/")):
        text = text.replace(path, instead) if len(path) > 2 else text
    return text


def output(each: NotebookNode, alt: str) -> NotebookNode:
    """An output without machine paths and counters, images with their alternative text."""
    each = json.loads(json.dumps(each), object_hook=NotebookNode)

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return impersonal(value)
        return [impersonal(line) for line in value] if isinstance(value, list) else value

    if "execution_count" in each:
        each.execution_count = None
    for key in ("text", "traceback", "evalue"):
        if key in each:
            each[key] = clean(each[key])
    for kind in each.get("data", {}):
        if kind.startswith("image/"):
            if alt:
                each.setdefault("metadata", NotebookNode())[kind] = NotebookNode(alt=alt)
        else:
            each.data[kind] = clean(each.data[kind])
    return each


def code_cells(cell: NotebookNode, prose: Prose) -> Iterator[NotebookNode]:
    """A code cell as the reader gets it, and its caption."""
    found, source = directives(cell.source), code(cell.source)
    if not source.strip():
        return
    outputs = [output(each, found.get("fig-alt", "")) for each in cell.outputs]
    if "hide" in found or found.get("output") == "false":
        outputs = []
    metadata: dict[str, Any] = {}
    if "hide" in found or "answer" in found or found.get("echo") == "false" or found.get("code-fold") == "true":
        metadata["jupyter"] = {"source_hidden": True, **({"outputs_hidden": True} if "answer" in found else {})}
    if found.get("error") == "true":
        metadata["tags"] = ["raises-exception"]
    yield new_code_cell(source, id=cell.id, outputs=outputs, metadata=metadata)
    if "fig-cap" in found:
        if "label" not in found:
            raise DownloadError("a figure has no label, hence no number")
        number = prose.book.reference(prose.docname, "numref", found["label"])[0]
        yield new_markdown_cell(f"**{number}** {prose.inline(found['fig-cap'])}", id=f"{cell.id[:56]}-caption")


def images(source: str, folder: Path) -> tuple[str, dict[str, dict[str, str]]]:
    """Local images as attachments of their cell."""
    held: dict[str, dict[str, str]] = {}

    def attach(match: re.Match[str], original: str) -> str:
        whole, path = original[match.start() : match.end()], folder / match[3]
        if not match[1] or re.match(r"\w+:", match[3]):
            return whole
        if not path.is_file():
            raise DownloadError(f"no image {match[3]}")
        held[path.name] = {mimetypes.guess_type(path.name)[0] or "": base64.b64encode(path.read_bytes()).decode()}
        return f"![{original[match.start(2) : match.end(2)]}](attachment:{path.name})"

    return substituted(LINK, source, attach), held


NOTE = (
    "A chapter of the book {book}, version {version}, with the book's numbers for equations, statements and figures. "
    "Some cells are folded, among them the answers to the exercises."
)


def download(nb: NotebookNode, book: Any, docname: str, meta: Any, root: Path = ROOT) -> NotebookNode:
    """The executed notebook of a chapter, made to stand alone."""
    address = (meta["doc_host"] + meta["doc_baseurl"]).rstrip("/") if meta["doc_host"] else ""
    prose = Prose(book, docname, address)
    cells: list[NotebookNode] = []
    for number, cell in enumerate(nb.cells, 1):
        try:
            if cell.cell_type == "code":
                cells += code_cells(cell, prose)
            else:
                text, held = images(prose.plain(cell.source), root / Path(docname).parent)
                cells.append(new_markdown_cell(text, id=cell.id, **({"attachments": held} if held else {})))
        except DownloadError as error:
            raise DownloadError(f"cell {number}: {error}") from None
    note = NOTE.format(book=prose.linked(f"*{meta['title']}*", f"{docname.rpartition('/')[2]}.html"), **meta)
    cells[1:1] = [
        new_markdown_cell(note, id="download-note"),
        new_code_cell(install_cell(nb, meta, root), id="download-install"),
    ]
    if prose.cited:
        entries = "\n".join(f"- {entry}" for entry in book.works(prose.cited))
        cells.append(new_markdown_cell(f"## References\n\n{entries}", id="download-references"))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}, "language_info": {"name": "python"}}
    return nbformat.from_dict({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})


LEFT = {
    r"^\s*:{3,}": "a colon fence",
    r"\{[\w:]+\}`": "a role",
    r"\$\$ *\([\w-]+\)": "a label",
    r"\[\]\(": "a link without text",
    r"^\[[^\]]*\]:": "a citation that reads as the target of a link",
    r"\]\((?!https?://|mailto:|attachment:|#)": "a link to a file that the reader has not got",
}


def faults(nb: NotebookNode) -> list[str]:
    """What a reader of the download would stumble on."""
    try:
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        return [str(error).splitlines()[0]]
    found = []
    for number, cell in enumerate(nb.cells, 1):
        if cell.cell_type == "code":
            if re.match(r"#\|", cell.source):
                found.append(f"cell {number}: a directive is left")
            try:
                compile("\n".join("" if re.match(r"\s*[%!]", line) else line for line in cell.source.split("\n")), "cell", "exec")
            except SyntaxError as error:
                found.append(f"cell {number}: {error}")
        else:
            prose = "\n".join(line.text for line in scan(cell.source) if line.kind != "code")
            found += [f"cell {number}: {what} is left" for pattern, what in LEFT.items() if re.search(pattern, masked(prose), re.M)]
            if any(re.search(r"\n\s*>", equation) for equation in re.findall(r"\$\$.*?\$\$", cell.source, re.S)):
                found.append(f"cell {number}: a quotation cuts an equation, and Jupyter shows the `>`")
    text, private = nbformat.writes(nb), sorted({str(ROOT), sys.prefix, str(Path.home())})
    found += [f"the path {path} of this machine is left" for path in private if f"{path.rstrip(os.sep)}{os.sep}" in text and path != os.sep]
    return found


CITED = re.compile(r'<span class="cite-link">.*?</span>|<details class="cite-this">.*?</details>', re.S)  # for readers of the page only
MARK = re.compile(
    r'<span class="eqno">\((?P<equation>[^)<]*)\)'
    r'|<span class="caption-number">(?P<caption>[^<]*)</span>'
    r'|<a class="reference internal" href="[^"]*#[^"]*"[^>]*>(?P<reference>.*?)</a>',
    re.S,
)


def disagreements(nb: NotebookNode, page: str) -> list[str]:
    """Numbers and references that the page shows and the download does not, in this order."""
    text = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
    found, start = [], 0
    for mark in MARK.finditer(CITED.sub("", page[page.find("<article") : page.find("</article>")])):
        if mark["equation"]:
            wanted = rf"\tag{{{mark['equation']}}}"
        elif mark["caption"]:
            wanted = f"**{mark['caption'].strip()}**"
        else:
            wanted = html.unescape(re.sub(r"<[^>]*>", "", mark["reference"] or ""))
        at = text.find(wanted, start)
        if at < 0:
            found.append(f"the page shows {wanted}, the download does not")
        start = max(at, start)
    return found


# ---- the book's extension


def chapters(app: Any) -> dict[str, Path]:
    """Page name to notebook."""
    paths = {docname: Path(app.env.doc2path(docname)) for docname in sorted(app.env.found_docs)}
    return {docname: path for docname, path in paths.items() if path.suffix == ".ipynb"}


def write_downloads(app: Any, exception: Exception | None) -> None:
    """Write a file for each chapter, or say what is in the way."""
    if exception or app.builder.name != "html":
        return
    from sphinx.errors import ExtensionError

    folder, meta, book, wrong = Path(app.outdir) / FOLDER, settings(), Book(app), []
    folder.mkdir(exist_ok=True)
    for docname, path in chapters(app).items():
        try:
            nb = download(nbformat.read(executed_path(path.read_text("utf8")), as_version=4), book, docname, meta)
        except DownloadError as error:
            wrong.append(f"{docname}, {error}")
            continue
        page = Path(app.outdir) / f"{docname}.html"
        wrong += [f"{docname}, download, {fault}" for fault in faults(nb) + disagreements(nb, page.read_text("utf8"))]
        nbformat.write(nb, folder / path.name)
    if wrong:
        raise ExtensionError("chapters that cannot be downloaded:\n" + "\n".join(wrong))


LINK_TO_DOWNLOAD = '<p class="chapter-download"><a href="{url}" download>Download this chapter as a notebook</a></p>'


def link_downloads(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """The page's download menu offers the file and nothing raw, and a link below the title says so in words."""
    chapter = pagename in app.env.found_docs and str(app.env.doc2path(pagename)).endswith(".ipynb")
    url = context["pathto"](f"{FOLDER}/{pagename.rpartition('/')[2]}.ipynb", 1)
    for group in context.get("header_buttons", []):
        if group.get("label") != "download-buttons":
            continue
        group["buttons"] = [button for button in group["buttons"] if button["label"] == "download-pdf-button"]
        if chapter:
            button = {"type": "link", "url": url, "text": "Notebook (.ipynb)", "tooltip": "Download this chapter", "icon": "fas fa-code"}
            group["buttons"].insert(0, {**button, "label": "download-notebook-button"})
    if chapter and "body" in context:
        context["body"] = context["body"].replace("</h1>", "</h1>\n" + LINK_TO_DOWNLOAD.format(url=url), 1)


def setup(app: Any) -> dict[str, bool]:
    app.connect("html-page-context", link_downloads, priority=900)
    app.connect("build-finished", write_downloads)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# ---- running them elsewhere


def run(path: Path, python: Path, timeout: int = 900) -> str | None:
    """Execute a notebook in an empty folder with another interpreter; what went wrong, or None."""
    from jupyter_client.kernelspec import KernelSpecManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    nb = nbformat.read(path, as_version=4)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    with tempfile.TemporaryDirectory() as temporary:
        specs, folder = Path(temporary) / "kernels", Path(temporary) / "empty"
        (specs / "other").mkdir(parents=True)
        folder.mkdir()
        argv = [str(python.absolute()), "-m", "ipykernel_launcher", "-f", "{connection_file}", "--log-level=40"]
        (specs / "other" / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "other", "language": "python"}))
        clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}}
        environment = {**clean, "IPYTHONDIR": str(Path(temporary) / "ipython"), "OMP_NUM_THREADS": "1"}
        client = NotebookClient(nb, timeout=timeout, kernel_name="other", resources={"metadata": {"path": str(folder)}})
        client.km = client.create_kernel_manager()
        client.km.kernel_spec_manager = KernelSpecManager(kernel_dirs=[str(specs)])
        try:
            client.execute(env=environment)
        except (CellExecutionError, RuntimeError, TimeoutError) as error:  # a cell failed, the kernel died, a cell never ended
            return re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return None


def whereabouts(python: Path) -> str | None:
    """Why an interpreter cannot run the downloads, or None."""
    probe = f"import ipykernel, {PACKAGE}; print({PACKAGE}.__file__)"
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run([str(python.absolute()), "-c", probe], cwd=empty, env=clean, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it does not start"])[-1]
        return f"{python}: {last}; install the wheel with its [notebook] extra there"
    if Path(done.stdout.strip()).is_relative_to(ROOT / PACKAGE):
        return f"{python} imports the working tree, not an installed package; install the wheel there"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Execute downloaded chapters in an empty folder; exit 1 if a cell fails.")
    parser.add_argument("--run", nargs="+", required=True, metavar="NAME", help="chapters, as 04_attention, or paths of notebooks")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="an interpreter that has the package and [notebook]")
    parser.add_argument("--folder", type=Path, default=ROOT / "_build" / "html" / FOLDER, help="where the downloads lie")
    arguments = parser.parse_args()
    if problem := whereabouts(arguments.python):
        print(problem)
        return 1
    failed = 0
    for name in arguments.run:
        path = Path(name) if name.endswith(".ipynb") else arguments.folder / f"{name}.ipynb"
        wrong = run(path, arguments.python) if path.is_file() else f"no file {path}; run `make book` first"
        print(f"{path.name:30} {'FAILED' if wrong else 'runs'}" + (f"\n{wrong}" if wrong else ""), flush=True)
        failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
