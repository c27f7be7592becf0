r"""Sphinx extension: a folded "Cite this page" at the foot of every chapter.

It holds the chapter's BibTeX entry (and those of the works that its theorems name as their source), and for each theorem, equation and
figure its number, its permanent anchor and the note to cite it by. The anchor is the label that the author wrote; for an equation,
whose id Sphinx makes from the label, the label itself becomes an anchor too. The block and its links exist in the HTML book only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from nbdev_book import settings
from pybtex.database import parse_file
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

# ---- BibTeX

SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def tex(text: str) -> str:
    """Plain text, safe in a BibTeX field."""
    return re.sub(r"[\\~^&%$#_{}]", lambda hit: SPECIAL.get(hit[0], "\\" + hit[0]), text)


def tex_of(node: nodes.Node) -> str:
    """The text of a title or caption, its mathematics as LaTeX."""
    if isinstance(node, nodes.math):
        return f"${node.astext()}$"
    if isinstance(node, nodes.Text):
        return tex(" ".join(node.astext().split("\n")))
    return "".join(tex_of(child) for child in node.children)


def entry(kind: str, key: str, **fields: str) -> str:
    """A BibTeX entry, one field on a line; empty fields are left out."""
    width = max(map(len, fields))
    lines = [f"  {name:<{width}} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"])


def author(names: str) -> str:
    """Names separated by commas; a group ("The ... authors") is kept in one piece."""
    return " and ".join(f"{{{tex(name)}}}" if name.startswith("The ") else tex(name) for name in names.split(", "))


def page_entry(docname: str, title: str, meta: Any) -> str:
    """The entry of one chapter, or of the whole book on its first page."""
    who, where = {"author": author(meta["author"])}, {"year": meta["copyright"][:4], "note": version(meta), "url": meta["git_url"]}
    book, name = f"{{{tex(meta['title'])}}}", re.sub(r"^\d+_", "", Path(docname).name)
    if name == "index":
        return entry("misc", meta["lib_name"], **who, title=book, **where)
    return entry("incollection", f"{meta['lib_name']}:{name}", **who, title=f"{{{title}}}", booktitle=book, **where)


def version(meta: Any) -> str:
    return f"Version {tex(meta['version'])}"


# ---- what a page has to cite


@dataclass(frozen=True)
class Item:
    """A theorem, equation or figure: its anchor, "Theorem 2.1", its name, the keys of its sources, and the title that shows it."""

    anchor: str
    number: str
    name: str = ""
    sources: tuple[str, ...] = ()
    title: nodes.Element | None = None

    def note(self, meta: Any) -> str:
        named = f"{self.number} ({self.name})" if self.name else self.number
        return f"note = {{{version(meta)}, {named}, label {tex(self.anchor)}}}"


def items(document: nodes.document, numbers: dict[str, dict[str, tuple[int, ...]]]) -> Iterator[Item]:
    """All that has a number on the page, in its order."""

    def number(kind: str, node: nodes.Element) -> str:
        found = (numbers.get(kind, {}).get(name) for name in node["ids"])
        return ".".join(map(str, next(filter(None, found), ())))

    for node in document.findall(nodes.Element):
        if "realtype" in node:
            title = node[0]
            named = f"{node['realtype'].title()} {number(node['countertype'], node)}"
            yield Item(node["ids"][0], named, tex_of(title).strip(" ()"), tuple(cited(node)), title)
        elif isinstance(node, nodes.math_block) and node.get("label"):
            yield Item(node["label"], f"Equation ({number('displaymath', node)})")
        elif isinstance(node, nodes.figure) and number("figure", node):
            caption = next(child for child in node if isinstance(child, nodes.caption))
            sentence = re.split(r"[.;:] ", tex_of(caption))[0].rstrip(".")
            yield Item(node["ids"][0], f"Figure {number('figure', node)}", sentence, tuple(cited(node)), caption)


def cited(node: nodes.Element) -> dict[str, None]:
    """The keys of the works that a statement cites, each once."""
    roles = [xref for xref in node.findall(pending_xref) if xref.get("refdomain") == "cite"]
    return dict.fromkeys(key.strip() for xref in roles for key in xref["reftarget"].split(","))


# ---- the block


class CiteThis(SphinxPostTransform):
    """Add the block to the foot of a chapter, and beside every theorem and figure a link to its line there."""

    default_priority = 5  # before citations are resolved
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        found = list(items(self.document, self.env.toc_fignumbers.get(self.env.docname, {})))
        if not found and Path(self.env.doc2path(self.env.docname)).suffix != ".ipynb":
            return
        for block in self.document.findall(nodes.math_block):
            if block.get("label") and block["label"] not in block["ids"]:
                block["ids"].append(block["label"])
        next(self.document.findall(nodes.section), self.document).extend(self.block(found))
        for item in found:
            if item.title is not None:
                link = nodes.reference("", "cite", internal=True, refid=f"cite-{item.anchor}", reftitle=f"Cite {item.number}")
                item.title.extend([nodes.Text(" "), nodes.inline("", "", link, classes=["cite-link"])])

    def block(self, found: list[Item]) -> list[nodes.Node]:
        meta = settings()
        title = next(self.document.findall(nodes.title), nodes.title())
        works = [page_entry(self.env.docname, tex_of(title), meta), *self.works(found)]
        parts: list[nodes.Node] = [nodes.raw("", '<details class="cite-this"><summary>Cite this page</summary>', format="html")]
        parts.append(nodes.literal_block("", "\n\n".join(works), language="bibtex"))
        if found:
            advice = "To cite one result, put its note in place of the page’s. Numbers belong to a version; labels stay."
            parts.append(nodes.paragraph("", advice))
            parts.append(nodes.bullet_list("", *(self.line(item, meta) for item in found)))
        return [*parts, nodes.raw("", "</details>", format="html")]

    def works(self, found: list[Item]) -> list[str]:
        """The BibTeX of the statements' sources, from the book's own bibliography."""
        keys = dict.fromkeys(key for item in found for key in item.sources)
        files = [parse_file(Path(self.env.srcdir) / name) for name in self.config.bibtex_bibfiles] if keys else []
        known = {key: entry for file in files for key, entry in file.entries.items()}
        people = {key: {role: " and ".join(map(str, names)) for role, names in known[key].persons.items()} for key in keys if key in known}
        return [entry(known[key].type, key, **named, **known[key].fields) for key, named in people.items()]

    def line(self, item: Item, meta: Any) -> nodes.list_item:
        text = nodes.paragraph("", "", nodes.reference("", item.number, internal=True, refid=item.anchor))
        if item.title is not None:
            words = [deepcopy(child) for child in item.title if isinstance(child, nodes.Text | nodes.math | nodes.literal | nodes.emphasis)]
            text += [nodes.Text(" "), *words]
        if item.sources:
            text += nodes.Text("; source, to be cited as well: " + ", ".join(item.sources))
        note = nodes.paragraph("", "", nodes.literal("", item.note(meta)), classes=["cite-note"])
        return nodes.list_item("", text, note, ids=[f"cite-{item.anchor}"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(CiteThis)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
