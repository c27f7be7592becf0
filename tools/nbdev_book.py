"""Sphinx extension: show nbdev notebooks as clean book pages.

* `read_nb` (used through `nb_custom_formats`) takes a notebook's outputs from `_build/executed` and turns `#|` directives into tags.
* a transform strips the `#|` lines from what the reader sees and links an exported cell to its place in the module's source page.
* links to the public repository appear when, and only when, settings.ini names its address.
"""

from __future__ import annotations

import ast
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

sys.path.insert(0, str(Path(__file__).parent))
from execute import DIRECTIVE, PACKAGE, ROOT, directives, executed_path

TAGS = {
    ("default_exp", None): "remove-cell",
    ("hide", None): "remove-cell",
    ("echo", "false"): "remove-input",
    ("output", "false"): "remove-output",
    ("code-fold", "true"): "hide-input",
    ("answer", None): "hide-cell",
    ("error", "true"): "raises-exception",
}
EXPORTS = ("export", "exports", "exporti")


def read_nb(text: str) -> nbformat.NotebookNode:
    """The executed copy of a notebook, its directives turned into what myst-nb understands."""
    executed = executed_path(text)
    if not executed.exists():
        raise ExtensionError(f"no executed copy {executed.name} of this notebook; run `make book`, which executes it first")
    nb = nbformat.read(executed, as_version=4)
    module = None
    for cell in nb.cells:
        if cell.cell_type != "code":
            continue
        found = directives(cell.source)
        module = found.get("default_exp", module)
        cell.metadata["tags"] = [tag for (name, value), tag in TAGS.items() if name in found and value in (None, found[name].lower())]
        if "export" in found and only_imports(cell.source):
            cell.metadata["tags"].append("hide-input")
        cell.metadata["mystnb"] = figure(found)
        for name in EXPORTS:
            if name in found:
                cell.metadata["nbdev_export"] = found[name] or module
        cell.metadata["nbdev_id"] = cell.get("id", "")
    return nb


def only_imports(source: str) -> bool:
    """Whether a cell does nothing but import, which a reader of the book need not see unfolded."""
    return all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in ast.parse(source).body)


def figure(found: dict[str, str]) -> dict[str, Any]:
    """Caption, label and alt text of a cell's figure."""
    options: dict[str, Any] = {}
    if "fig-cap" in found:
        options["figure"] = {"caption": found["fig-cap"], **({"name": found["label"]} if "label" in found else {})}
    if "fig-alt" in found:
        options["image"] = {"alt": found["fig-alt"]}
    return options


class CleanCells(SphinxTransform):
    """Strip the `#|` lines, anchor each cell by its id, and say where an exported cell goes."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        for number, node in enumerate(self.document.findall(nodes.Element)):
            if node.get("ids") in (["proof"], ["proof-content"]):  # sphinx-proof gives all proofs of a page the same two ids
                node["ids"] = [f"{node['ids'][0]}-{number}"]
        for cell in list(self.document.findall(nodes.container)):
            if cell.get("nb_element") != "cell_code":
                continue
            meta = cell.get("cell_metadata", {})
            if meta.get("nbdev_id"):
                cell["ids"].append(f"cell-{meta['nbdev_id']}")
            for source in cell.findall(nodes.container):
                if source.get("nb_element") != "cell_code_source":
                    continue
                for block in source.findall(nodes.literal_block):
                    lines = block.astext().split("\n")
                    while lines and (DIRECTIVE.match(lines[0]) or not lines[0].strip()):
                        lines.pop(0)
                    block.rawsource = "\n".join(lines)
                    block.children = [nodes.Text(block.rawsource)]
                if module := meta.get("nbdev_export"):
                    source += self.exported_to(module, meta["nbdev_id"])

    def exported_to(self, module: str, cell: str) -> nodes.paragraph:
        url = "../" * self.env.docname.count("/") + f"_modules/{PACKAGE}/{module}.html#cell-{cell}"
        link = nodes.reference("", "", nodes.literal("", f"{PACKAGE}.{module}"), refuri=url)
        return nodes.paragraph("", "", nodes.Text("exported to "), link, classes=["nbdev-export"])


def settings(root: Path = ROOT) -> Any:
    """The one source of metadata."""
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini", encoding="utf-8")
    return config["DEFAULT"]


def metadata(app: Sphinx, config: Any) -> None:
    """Author, version and, if its address is known, the repository's buttons come from settings.ini."""
    meta = settings()
    config.author, config.copyright, config.version = meta["author"], meta["copyright"], meta["version"]
    if meta["git_url"]:
        buttons = ("use_repository_button", "use_issues_button", "use_edit_page_button", "use_source_button")
        config.html_theme_options |= {
            "repository_url": meta["git_url"],
            "repository_provider": next((name for name in ("gitlab", "bitbucket") if name in meta["git_url"]), "github"),
            "repository_branch": meta["branch"],
            **dict.fromkeys(buttons, True),
        }


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(CleanCells)
    app.connect("config-inited", metadata, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
