"""Sphinx extension: what the LaTeX builder needs to make a book of the pages. Nothing of it touches the HTML.

* parts of `_toc.yml` become parts, numbered chapters keep the numbers of the HTML, the others have none; the first page is an introduction.
* links to HTML pages (a cell's module, an API entry's cell) become links inside the PDF.
* fonts, paper and spacing. Code is set so that 88 columns fit into a line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx_proof.nodes import proof_node

FONTS = {  # files that TeX must find: text, headings, code with its mathematical letters
    "lmroman10-regular.otf": r"""\setmainfont{lmroman10-regular.otf}[
  BoldFont = lmroman10-bold.otf, ItalicFont = lmroman10-italic.otf, BoldItalicFont = lmroman10-bolditalic.otf]""",
    "texgyreheros-regular.otf": r"""\setsansfont{texgyreheros-regular.otf}[
  BoldFont = texgyreheros-bold.otf, ItalicFont = texgyreheros-italic.otf, BoldItalicFont = texgyreheros-bolditalic.otf]""",
    "DejaVuSansMono.ttf": r"""\setmonofont{DejaVuSansMono.ttf}[Scale = 0.8,
  BoldFont = DejaVuSansMono-Bold.ttf, ItalicFont = DejaVuSansMono-Oblique.ttf, BoldItalicFont = DejaVuSansMono-BoldOblique.ttf]""",
    "FreeSerif.otf": r"""\newfontface\greekface{FreeSerif.otf}""",
    "DejaVuSans.ttf": r"""\newfontface\scriptface{DejaVuSans.ttf}[Scale = 0.8]""",
}
# Latin Modern has no Greek, so a Greek letter in running text is taken from FreeSerif; code and mathematics have their own.
# The fixed-width font lacks letters like ℓ, which come from its proportional sister.
PREAMBLE = r"""
\XeTeXinterchartokenstate=1
\newXeTeXintercharclass\greek
\count255="370 \loop\ifnum\count255<"400 \XeTeXcharclass\count255=\greek \advance\count255 by 1 \repeat
\makeatletter
\XeTeXinterchartoks 0 \greek={\begingroup\ifx\f@family\rmdefault\greekface\fi}
\XeTeXinterchartoks 4095 \greek={\begingroup\ifx\f@family\rmdefault\greekface\fi}
\makeatother
\XeTeXinterchartoks \greek 0={\endgroup}
\XeTeXinterchartoks \greek 4095={\endgroup}
\newXeTeXintercharclass\script
\count255="2100 \loop\ifnum\count255<"2150 \XeTeXcharclass\count255=\script \advance\count255 by 1 \repeat
\XeTeXinterchartoks 0 \script={\begingroup\scriptface}
\XeTeXinterchartoks \greek \script={\scriptface}
\XeTeXinterchartoks 4095 \script={\begingroup\scriptface}
\XeTeXinterchartoks \script 0={\endgroup}
\XeTeXinterchartoks \script 4095={\endgroup}
\titleformat{\chapter}[display]{\sffamily\bfseries\raggedright}{\color{gray}\Large\chaptertitlename\ \thechapter}{4pt}{\huge}
\titlespacing*{\chapter}{0pt}{0pt}{24pt}
\titleformat{\part}[display]{\sffamily\bfseries\centering}{\color{gray}\LARGE\partname\ \thepart}{12pt}{\Huge}
\setlength{\tymin}{100pt}
\addto\captionsenglish{\renewcommand{\contentsname}{Contents}}
\setcounter{tocdepth}{1}
\renewcommand{\arraystretch}{1.15}
\emergencystretch=3em
"""
NUMBERED, UNNUMBERED = r"\setcounter{secnumdepth}{2}", r"\setcounter{secnumdepth}{-1}\setcounter{chapter}{0}"


def latex(code: str) -> nodes.raw:
    return nodes.raw("", code + "\n", format="latex")


def elements(app: Sphinx, config: Any) -> None:
    """Appearance."""
    config.latex_elements = {
        "papersize": "a4paper",
        "pointsize": "10pt",
        "extraclassoptions": "openany,oneside",
        "fncychap": "",
        "fontpkg": "\n".join(FONTS.values()),
        "fvset": r"\fvset{fontsize=\small}",
        "sphinxsetup": "hmargin=25mm, vmargin=25mm, verbatimwithframe=false, VerbatimColor={gray}{0.96}, verbatimwrapslines=true",
        "preamble": PREAMBLE,
        "releasename": "Version",
        "maketitle": r"\date{}\sphinxmaketitle",
    } | config.latex_elements
    config.release = config.version
    config.latex_domain_indices = False


def parts(source: Path) -> dict[str, tuple[str, bool]]:
    """First document of each part -> the part's caption, and whether its chapters are numbered."""
    contents = yaml.safe_load((source / "_toc.yml").read_text("utf8"))
    return {part["chapters"][0]["file"]: (part["caption"], bool(part.get("numbered"))) for part in contents["parts"]}


def make_book(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the pages, all in one tree by now, into the order and under the headings of a book."""
    if app.builder.name != "latex" or docname != app.config.root_doc:
        return
    for file in doctree.findall(addnodes.start_of_file):  # Sphinx moves the children here and leaves them their old parent
        for child in file.children:
            child.parent = file
    first = next(doctree.findall(nodes.section))
    files = [node for node in doctree.findall(addnodes.start_of_file) if not within_file(node)]
    book = nodes.section("", nodes.title("", app.config.project))
    for file in files:
        file.parent.remove(file)
    first["docname"] = docname
    first[0].children = [nodes.Text("Introduction")]
    book += [latex(UNNUMBERED), first]
    numbered, last, found = False, 0, parts(Path(app.confdir))
    for file in files:
        if file["docname"] in found:
            caption, numbered = found[file["docname"]]
            book += latex(rf"\part{{{caption}}}")
            book += latex(NUMBERED + rf"\setcounter{{chapter}}{{{last}}}" if numbered else UNNUMBERED)
        last += numbered
        book += file
    doctree.children = []
    doctree += book
    link_inside(doctree, app.env.found_docs)
    for table in doctree.findall(nodes.table):
        if "api-modules" in table["classes"]:  # paper has no room to spare for the longest name of a module
            for column, width in zip(table.findall(nodes.colspec), (25, 40, 35), strict=True):
                column["colwidth"] = width
    for proof in list(doctree.findall(proof_node)):
        unbox(proof)


def unbox(proof: proof_node) -> None:
    """A proof in the running text, from an italic first word to a square; sphinx-proof gives it a box whose title is empty."""
    paragraphs = [node for node in proof.findall(nodes.paragraph) if not isinstance(node.parent, nodes.list_item)]
    word, _, rest = paragraphs[0][0].astext().partition(" ")
    paragraphs[0][0:1] = [nodes.emphasis("", word), nodes.Text(f" {rest}")]
    paragraphs[-1] += nodes.raw("", r"\hfill\(\square\)", format="latex")
    proof.parent.replace(proof, [node for box in proof for node in box])


def within_file(node: nodes.Node) -> bool:
    above = node.parent
    while above is not None and not isinstance(above, addnodes.start_of_file):
        above = above.parent
    return above is not None


def link_inside(doctree: nodes.document, documents: set[str]) -> None:
    """Let links to our HTML pages lead to the same place in the PDF; others of that kind keep just their text."""
    for cell in list(doctree.findall(nodes.container)):
        names = [name for name in cell["ids"] if name.startswith("cell-")]
        if names and cell.get("cell_metadata", {}).get("nbdev_export"):
            file = cell.parent
            while not isinstance(file, addnodes.start_of_file):
                file = file.parent
            cell.insert(0, latex(rf"\phantomsection\label{{\detokenize{{{file['docname']}:{names[0]}}}}}"))
    for link in list(doctree.findall(nodes.reference)):
        if not re.match(r"[^:/?#%]+\.html|(\.\./)+|_modules/", uri := link.get("refuri", "")):
            continue
        page, _, anchor = uri.partition("#")
        stem = re.sub(r"\.html$", "", page).rpartition("/")[2]
        name = f"nbs/api/{stem}" if "_modules/" in page else f"nbs/{stem}"
        anchor = "" if "_modules/" in page else anchor  # source pages become API pages, which have no cells
        if name in documents:
            link["refuri"], link["internal"] = f"%{name}" + (f"#{anchor}" if anchor else ""), True
        else:
            link.parent.replace(link, link.children)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", elements, priority=200)  # before the builder reads them
    app.connect("doctree-resolved", make_book, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
