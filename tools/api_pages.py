"""Sphinx extension: the API pages and the source pages behind them.

* docstrings may hold `$mathematics$`, `code` and shapes as the notebooks do; a documented field has its type beside its name.
* every entry has a link to the notebook cell that defines it, and every cell of a source page a link back and an anchor.
* `.. api-modules::` is the table of modules and public names.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import nbformat
import yaml
from check_book import toc_files
from docutils import nodes
from docutils.statemachine import StringList
from execute import PACKAGE, ROOT
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import nested_parse_with_titles

# ---- docstrings

ROLE = re.compile(r"\{([\w:]+)\}`([^`]+)`")
SPAN = re.compile(r"(?<![`:])(`[^`]+`)(?![`_])")
SHAPE = re.compile(r"\(([^()`]*\*b[^()`]*)\)")
MATH = re.compile(r"(?<![\\$])\$([^$]+?)\$")
FIELD = re.compile(r"^(\.\. attribute:: \S+\n)((?:\n|   .*\n)*?)\n   :type: (.*)$", re.M)
MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")


def myst_docstring(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Let docstrings be written as the notebooks are: `$math$`, single-backtick code, shapes like (*b, n), and roles."""
    out = []
    for line in lines:
        pieces = SPAN.split(ROLE.sub(r":\1:`\2`", line))
        code = [f"`{piece}`" for piece in pieces[1::2]]
        text = [MATH.sub(r":math:`\1`", SHAPE.sub(r"``(\1)``", piece)) for piece in pieces[::2]]
        out.append("".join(a + b for a, b in zip_longest(text, code, fillvalue="")))
    typed = FIELD.sub(lambda hit: f"{hit[1]}   :type: {MODULE.sub('', hit[3])}\n{hit[2]}", "\n".join(out))
    lines[:] = typed.split("\n")


def name_chapter(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Say on top of a module's page which chapter it comes from."""
    if what == "module" and (found := cells(name)):
        notebook = found[0][1]
        lines += ["", f"The module ``{name}`` is derived and tested in :doc:`{title(notebook)} </nbs/{notebook}>`.", ""]


def title(notebook: str) -> str:
    """The first heading of a notebook."""
    first = nbformat.read(ROOT / "nbs" / f"{notebook}.ipynb", as_version=4).cells[0].source
    return str(first.splitlines()[0].lstrip("# "))


# ---- where a name is defined

CELL = re.compile(r"^# %% \S*?([^/\s]+)\.ipynb #([\w-]+)", re.M)


@cache
def source(module: str) -> str:
    return Path(inspect.getfile(import_module(module))).read_text("utf8")


@cache
def cells(module: str) -> list[tuple[int, str, str]]:
    """First line, notebook and id of every cell that a generated module was made from."""
    return [(source(module).count("\n", 0, hit.start()) + 1, hit[1], hit[2]) for hit in CELL.finditer(source(module))]


@cache
def defined_at(module: str, name: str) -> tuple[str, int] | None:
    """The module and line of a definition; a field stands where its class does."""
    found, value = assigned(module).get(name), import_module(module)
    for part in name.split("."):
        value = getattr(value, part, None)
        function = inspect.unwrap(getattr(value, "fget", getattr(value, "__func__", value)))
        if getattr(function, "__module__", "").startswith(f"{PACKAGE}.") and (inspect.isfunction(function) or inspect.isclass(function)):
            try:
                found = function.__module__, inspect.getsourcelines(function)[1]
            except OSError:  # a method that the dataclass decorator wrote
                continue
    return found


@cache
def assigned(module: str) -> dict[str, tuple[str, int]]:
    """Where a module assigns its constants."""
    body = [node for node in ast.parse(source(module)).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [(target, node.lineno) for node in body for target in getattr(node, "targets", [getattr(node, "target", None)])]
    return {target.id: (module, line) for target, line in targets if isinstance(target, ast.Name)}


def cell_of(module: str, name: str) -> tuple[str, str] | None:
    """Notebook and id of the cell that defines a name."""
    if not (place := defined_at(module, name)):
        return None
    before = [(notebook, cell) for line, notebook, cell in cells(place[0]) if line <= place[1]]
    return before[-1] if before else None


class LinkEntries(SphinxPostTransform):
    """Put `[notebook]` beside every entry, and take away what says nothing: `Bases: object`, empty lists of fields."""

    default_priority = 50
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for signature in self.document.findall(addnodes.desc_signature):
            if cell := cell_of(signature["module"], signature["fullname"]) if signature.get("module") else None:
                url = self.app.builder.get_relative_uri(self.env.docname, f"nbs/{cell[0]}") + f"#cell-{cell[1]}"
                text = nodes.inline("", "[notebook]", classes=["viewcode-link"])
                signature += nodes.reference("", "", text, internal=True, refuri=url)
        for content in self.document.findall(addnodes.desc_content):
            for node in list(content):
                empty = isinstance(node, nodes.field_list) and not len(node)
                if empty or (isinstance(node, nodes.paragraph) and node.astext() == "Bases: object"):
                    content.remove(node)


# ---- source pages

COMMENT = re.compile(r'<span class="c1"># %% (\S*?([^/\s]+)\.ipynb #([\w-]+))</span>')


def link_cells(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Give each cell's comment on a source page an anchor and a link to the cell in the book."""
    if pagename.startswith(f"_modules/{PACKAGE}/"):
        up = "../" * pagename.count("/")
        link = rf'<span class="c1" id="cell-\3"># %% <a href="{up}nbs/\2.html#cell-\3">\1</a></span>'
        context["body"] = COMMENT.sub(link, context["body"])


@cache
def definitions(modname: str) -> tuple[str, dict[str, tuple[str, int, int]]]:
    """A module's source and what it defines, a method that was written outside its class under its name in the class too."""
    analyzer = ModuleAnalyzer.for_module(modname)
    analyzer.find_tags()
    starts = {tag[1]: tag for tag in analyzer.tags.values() if tag[0] == "def"}
    module = import_module(modname)
    for name in getattr(module, "__all__", ()):
        for member in vars(getattr(module, name)) if inspect.isclass(getattr(module, name)) else ():
            place = defined_at(modname, f"{name}.{member}")
            if place and place[0] == modname and place[1] in starts:
                analyzer.tags.setdefault(f"{name}.{member}", starts[place[1]])
    return analyzer.code, analyzer.tags


# ---- the table of modules


class ModuleTable(SphinxDirective):
    """`.. api-modules::`: what each module holds and its public names, in the order of the book."""

    def run(self) -> list[nodes.Node]:
        pages = toc_files(yaml.safe_load((Path(self.env.srcdir) / "_toc.yml").read_text("utf8")))
        rows = [".. list-table::", "   :header-rows: 1", "   :widths: 15 40 45", "   :class: api-modules", ""]
        rows += ["   * - module", "     - what it holds", "     - public names"]
        for page in pages:
            if page.startswith("nbs/api/") and not page.endswith("/index"):
                module = import_module(f"{PACKAGE}.{Path(page).name}")
                names = ", ".join(f":py:obj:`~{module.__name__}.{name}`" for name in module.__all__)
                rows += [f"   * - :doc:`/{page}`", f"     - {(module.__doc__ or '').strip()}", f"     - {names}"]
        holder = nodes.Element()
        nested_parse_with_titles(self.state, StringList(rows, source=self.env.docname), holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    for extension in ("autodoc", "napoleon", "viewcode"):
        app.setup_extension(f"sphinx.ext.{extension}")
    app.add_directive("api-modules", ModuleTable)
    app.add_post_transform(LinkEntries)
    app.connect("autodoc-process-docstring", myst_docstring, priority=800)
    app.connect("autodoc-process-docstring", name_chapter, priority=900)
    app.connect("viewcode-find-source", lambda app, modname: definitions(modname))
    app.connect("html-page-context", link_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
