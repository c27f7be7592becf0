"""Sphinx extension: pages that load only what they use, and that a screen reader can name.

* the icons come from FontAwesome's stylesheet and one font; its script, 1.5 MB, and the early loading of fonts no page shows are left out;
* MathJax is loaded where there is mathematics, sphinx-thebe nowhere: the book has no live kernel;
* a first visit knows its theme before anything is drawn, and the theme's own script has nothing to complain of;
* what the theme leaves without a name, or under one that hides the visible text, is named.

The theme is pinned; a piece of it that is no longer found stops the build, so that nothing comes back unnoticed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

HEAD = [
    (r'\s*<script src="[^"]*fontawesome[^"]*/js/all\.min\.js[^"]*"></script>', ""),
    (r'\s*<link rel="preload" as="font"[^>]*fontawesome[^>]*/>', ""),
    (r'localStorage\.getItem\("mode"\) \|\| ""', 'localStorage.getItem("mode") || "auto"'),
    (
        r'localStorage\.getItem\("theme"\) \|\| ""',
        'localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")',
    ),
]
BODY = [
    (r'(<button class="btn search-button-field [^>]*) aria-label="[^"]*"', r"\1"),
]
WHERE_PRESENT = [
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'<summary>(<span class="toctree-toggle")', r'<summary aria-label="Pages of this section">\1'),
    (r'role="doc-biblioentry"', 'role="listitem"'),  # deprecated, and not what its parent, a list, holds
    (
        r'<dl>\n((?:<dd><em class="sig-param">.*</dd>\n)+)</dl>',
        r'<div class="sig-params">\n\1</div>',
    ),  # a long signature: no terms to define
    (r'<dd>(<em class="sig-param">.*)</dd>', r"<div>\1</div>"),
]


def replaced(html: str, changes: list[tuple[str, str]], required: bool = True) -> str:
    for pattern, new in changes:
        html, count = re.subn(pattern, new, html)
        if required and not count:
            raise ExtensionError(f"tools/lean_pages.py: the theme no longer holds {pattern!r}; look at its templates and adapt the pattern")
    return html


def lean_head(html: str) -> str:
    return replaced(html, HEAD)


def sound_body(html: str) -> str:
    return replaced(replaced(html, BODY), WHERE_PRESENT, required=False)


def add_filters(app: Sphinx) -> None:
    """The filters of templates/layout.html."""
    environment = getattr(getattr(app.builder, "templates", None), "environment", None)
    if environment is not None:
        environment.filters |= {"lean_head": lean_head, "sound_body": sound_body}


def has_mathematics(doctree: nodes.document | None) -> bool:
    return doctree is not None and any(doctree.findall(lambda node: isinstance(node, nodes.math | nodes.math_block)))


def drop_scripts(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Sphinx loads MathJax on a page also for the mathematics of the pages below it, and Jupyter Book loads sphinx-thebe twice."""
    unused = ["thebe"] if has_mathematics(doctree) else ["thebe", "mathjax"]
    for kind in ("script_files", "css_files"):
        context[kind] = [
            file
            for file in context.get(kind, [])
            if not any(
                name in f"{getattr(file, 'filename', file)} {getattr(file, 'attributes', {}).get('body', '')}".lower() for name in unused
            )
        ]


def add_templates(app: Sphinx, config: Any) -> None:
    config.templates_path = [*config.templates_path, str(Path(__file__).parent / "templates")]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", add_templates)
    app.connect("builder-inited", add_filters)
    app.connect("html-page-context", drop_scripts, priority=999)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
