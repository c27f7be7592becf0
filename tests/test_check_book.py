"""The checker of the built pages, on a tiny book: one that is right, and each fault put into it on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from check_book import check, displays, srcset_urls, toc_files
from conftest import ROOT

TOC = """\
format: jb-book
root: nbs/index
parts:
  - caption: Chapters
    chapters:
      - file: nbs/01_line.ipynb
        sections:
          - file: nbs/notation
"""
SETTINGS = "[DEFAULT]\nrepo = transformer_ols\ngit_url = {}\n"
CELLS = [
    "#| default_exp line",
    "#| hide\nimport torch",
    "x = 1\nx",
    "#| label: fig-line\n#| fig-cap: A line.\nplot();",
    "#| output: false\nx",
]
HEAD = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/><title>T</title>
<link rel="stylesheet" href="../_static/book.css?v=1"/><link rel="next" href="notation.html"/>
<script src="../_static/book.js"></script>"""
BIBTEX = """\
<details class="cite-this"><summary>Cite this page</summary><div class="highlight"><pre>@misc{line,
  title = {A line},
}
</pre></div>"""
CITE = f"""\
{BIBTEX}<ul>
<li id="cite-eq-line"><p class="cite-note"><code>note = {{Equation (1), label eq-line}}</code></p></li>
<li id="cite-fig-line"><p class="cite-note"><code>note = {{Figure 1, label fig-line}}</code></p></li>
<li id="cite-thm-line"><p class="cite-note"><code>note = {{Theorem 1, label thm-line}}</code></p></li>
</ul></details>"""
LINE = f"""{HEAD}
<script defer="defer" src="../_static/mathjax/tex-chtml.js"></script>
<script>let hint = 'Click to show';</script></head><body>
<form action="../search.html"></form><a href="#main">Skip</a><a href="#">Top</a>
<main id="main"><article>
<h1>A line</h1>
<p>By <a class="reference internal" href="#equation-eq-line">(1)</a>,
<a href="notation.html#symbols"><span class="std std-doc">Notation</span></a>,
<a class="reference download internal" download="" href="../_downloads/line.csv"><span class="xref download myst">line.csv</span></a>,
<span class="bibtex-citation">[<a href="#entry">Gauss, 1809</a>]</span> and <a href="https://doi.org/10.1000/1">a paper</a>;
write <code>{{eq}}</code>, <code>??</code> or <code class="xref py py-class">Tensor</code>, <kbd>:::</kbd> in code.</p>
<p id="entry">Gauss</p>
<div class="math notranslate" id="equation-eq-line">
<span id="eq-line"></span><span class="eqno">(1)</span>\\[ y = a x ?? \\]</div>
<div class="proof theorem admonition" id="thm-line"><p class="admonition-title">Theorem 1</p>Two points make a line.</div>
<div class="proof admonition" id="proof-1"><p>Proof. Draw it.</p></div>
<div class="cell docutils container" id="cell-1">
<div class="cell_input"><div class="highlight"><pre><span></span><span class="n">x</span> = 1
x
</pre></div></div>
<div class="cell_output"><div class="output text_plain"><pre>1
</pre></div></div></div>
<div class="cell"><div class="cell_output"><figure id="fig-line">
<img alt="A rising line through three points." src="../_images/0123456789abcdef.png"/><figcaption><p>A line.</p></figcaption>
</figure></div></div>
<div class="cell tag_raises-exception"><div class="cell_output"><div class="output traceback"><pre>ValueError: meant
</pre></div></div></div>
{CITE}
</article></main></body></html>
"""
PAGES = {
    "index.html": '<meta http-equiv="Refresh" content="0; url=nbs/index.html"/>\n',
    "search.html": "<html><body><h1>Search</h1><input id='search-input'/><input id='search-input'/></body></html>",
    "genindex.html": '<html><body><h1>Index</h1><a href="nbs/notation.html#symbols">symbols</a></body></html>',
    "nbs/index.html": f"{HEAD}</head><body><article><h1>Home</h1><a href='01_line.html'>A line</a></article></body></html>",
    "nbs/notation.html": f"{HEAD}</head><body><article><h1 id='symbols'>Notation</h1>{BIBTEX}</details></article></body></html>",
    "nbs/01_line.html": LINE,
    "_static/third-party.html": '<img src="https://elsewhere.example/x.png">',
    "_static/book.js": "const where = 'https://elsewhere.example/is-only-text';",
    "_static/book.css": "/* url(https://far.example/x) */ a{b:url(\"data:image/svg+xml;xmlns='http://w3.org/'\")} p{b:url(dot.svg)}",
    "_static/dot.svg": "<svg/>",
    "_static/mathjax/tex-chtml.js": "",
    "_static/mathjax/output/chtml/fonts/woff-v2/main.woff": "",
    "_images/0123456789abcdef.png": "",
    "_downloads/line.csv": "",
}


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A folder with sources and a built book in which nothing is wrong."""
    (tmp_path / "nbs").mkdir()
    cells = [{"cell_type": "code", "source": source.splitlines(True)} for source in CELLS]
    (tmp_path / "nbs" / "01_line.ipynb").write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# A line"}, *cells]}))
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "settings.ini").write_text(SETTINGS.format(""))
    for name, text in PAGES.items():
        path = tmp_path / "html" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def faults(book: Path) -> list[str]:
    return check(book / "html", book).faults


def edit(book: Path, name: str, old: str, new: str) -> None:
    path = book / "html" / name
    text = path.read_text()
    assert old in text, "the fault must go somewhere"
    path.write_text(text.replace(old, new, 1))


def test_a_good_book_passes(book: Path) -> None:
    report = check(book / "html", book)
    assert report.faults == []
    assert report.notes == []
    assert report.counts["pages"] == 6
    assert report.counts["outputs"] == 3


@pytest.mark.parametrize("good", [True, False])
def test_the_exit_status_tells(book: Path, good: bool) -> None:
    if not good:
        (book / "html" / "nbs" / "notation.html").unlink()
    command = [sys.executable, str(ROOT / "tools" / "check_book.py"), str(book / "html"), "--source", str(book)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == (0 if good else 1), done.stderr
    assert done.stdout.splitlines()[-1].endswith(": 0 faults" if good else ": 5 faults")
    assert ("nbs/notation.html: the page is missing, _toc.yml lists it" in done.stdout) is not good


# ---- missing things


def test_an_empty_folder_fails(book: Path, tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    found = check(empty, book).faults
    assert "no pages; build the book first" in found[0]
    assert [f.split(":")[0] for f in found[1:]] == ["index.html", "nbs/index.html", "nbs/01_line.html", "nbs/notation.html"]


@pytest.mark.parametrize("name", ["nbs/index.html", "nbs/01_line.html", "nbs/notation.html", "index.html"])
def test_a_missing_page_is_named(book: Path, name: str) -> None:
    (book / "html" / name).unlink()
    assert f"{name}: the page is missing" in "\n".join(faults(book))


def test_an_empty_page_fails(book: Path) -> None:
    (book / "html" / "nbs" / "notation.html").write_text("")
    assert "nbs/notation.html: has no title" in faults(book)


def test_an_executed_page_without_outputs_fails(book: Path) -> None:
    path = book / "html" / "nbs" / "01_line.html"
    path.write_text(path.read_text().replace("cell_output", "cell_nothing"))
    assert "nbs/01_line.html: shows 0 cell outputs, an executed page must have one" in faults(book)


def test_an_output_block_with_nothing_in_it_does_not_count(book: Path) -> None:
    path = book / "html" / "nbs" / "01_line.html"
    kept, _, rest = path.read_text().partition('<div class="cell docutils')
    path.write_text(f'{kept}<div class="cell_output"> \n </div>{rest[rest.index("</article>") :]}')
    assert "nbs/01_line.html: shows 0 cell outputs, an executed page must have one" in faults(book)


@pytest.mark.parametrize("content", ["<p>1</p>", '<img alt="A dot." src="../_static/dot.svg"/>', "<svg></svg>"])
def test_text_or_a_picture_is_an_output(book: Path, content: str) -> None:
    edit(book, "nbs/01_line.html", "<h1>", f'<div class="cell_output">{content}</div><h1>')
    report = check(book / "html", book)
    assert report.faults == []
    assert report.counts["outputs"] == 4


def test_hidden_cells_promise_nothing_but_any_code_promises_an_output(book: Path) -> None:
    path = book / "nbs" / "notation.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# Notation"}]}))
    assert faults(book) == []
    hidden = "#| hide\n#| label: fig-hidden\nprint(1)"
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": hidden}, {"cell_type": "code", "source": hidden}]}))
    assert faults(book) == ["nbs/notation.html: shows 0 cell outputs, an executed page must have one"]


def test_decorative_images_need_no_description(book: Path) -> None:
    for how in ('role="presentation"', 'aria-hidden="true"'):
        edit(book, "nbs/notation.html", "</article>", f'<img alt="" {how} src="../_static/dot.svg"/></article>')
    assert faults(book) == []


def test_a_file_name_with_spaces_is_no_description(book: Path) -> None:
    (book / "html" / "_images" / "my line.png").touch()
    edit(book, "nbs/01_line.html", IMG, 'alt="my line" src="../_images/my%20line.png"')
    assert faults(book) == ["nbs/01_line.html: has only a file name as alt text: my line"]


def test_a_link_to_a_folder_means_its_index(book: Path) -> None:
    edit(book, "nbs/notation.html", "</article>", '<a href="../nbs/">Home</a><a href="./#gone">Home</a></article>')
    assert faults(book) == ["nbs/notation.html: points to an anchor that is not there: ./#gone"]


def test_fewer_outputs_than_the_notebook_displays_fail(book: Path) -> None:
    path = book / "nbs" / "01_line.ipynb"
    cells = [{"cell_type": "code", "source": f"print({i})"} for i in range(9)]
    path.write_text(json.dumps({"cells": cells}))
    assert "nbs/01_line.html: shows 3 cell outputs, its notebook displays at least 9" in faults(book)


# ---- one fault each

IMG = 'alt="A rising line through three points." src="../_images/0123456789abcdef.png"'
FAR = "https://cdn.example/x"
LOADS = {
    "script": f'<script src="{FAR}"></script>',
    "protocol-relative": '<script src="//cdn.example/x"></script>',
    "stylesheet": f'<link rel="stylesheet" href="{FAR}"/>',
    "preload": f'<link rel="preload" as="font" href="{FAR}"/>',
    "modulepreload": f'<link rel="modulepreload" href="{FAR}"/>',
    "icon": f'<link rel="shortcut icon" href="{FAR}"/>',
    "prefetch": f'<link rel="prefetch" href="{FAR}"/>',
    "preconnect": f'<link rel="preconnect" href="{FAR}"/>',
    "dns-prefetch": '<link rel="dns-prefetch" href="//cdn.example"/>',
    "manifest": f'<link rel="manifest" href="{FAR}"/>',
    "link without rel that is harmless": f'<link rel="next preload" href="{FAR}"/>',
    "img": f'<img alt="A dot." src="{FAR}"/>',
    "img srcset": f'<img alt="A dot." src="../_static/dot.svg" srcset="../_static/dot.svg 1x, {FAR} 2x"/>',
    "link imagesrcset": f'<link rel="preload" href="../_static/dot.svg" imagesrcset="{FAR} 2x"/>',
    "iframe": f'<iframe src="{FAR}"></iframe>',
    "video": f'<video src="{FAR}"></video>',
    "poster": f'<video poster="{FAR}"></video>',
    "audio": f'<audio src="{FAR}"></audio>',
    "source": f'<video><source src="{FAR}"/></video>',
    "source srcset": f'<picture><source srcset="{FAR} 2x"/></picture>',
    "track": f'<video><track src="{FAR}"/></video>',
    "object": f'<object data="{FAR}"></object>',
    "embed": f'<embed src="{FAR}"/>',
    "svg image": f'<svg><image href="{FAR}"/></svg>',
    "svg use": f'<svg><use xlink:href="{FAR}"/></svg>',
    "style attribute": f"<p style=\"background: url('{FAR}')\">p</p>",
    "style element": f"<style>p {{ background: url({FAR}) }}</style>",
    "style import": f'<style>@import "{FAR}";</style>',
    "style import url": f"<style>@import url({FAR});</style>",
    "script import()": f'<script>import("{FAR}")</script>',
    "script import from": f"<script type='module'>import a from '{FAR}'</script>",
    "script bare import": f"<script type='module'>import '{FAR}'</script>",
    "script fetch": f"<script>fetch(`{FAR}`)</script>",
    "script src": f"<script>s.src = '{FAR}'</script>",
    "script worker": f"<script>new Worker('{FAR}')</script>",
    "importmap": f'<script type="importmap">{{"imports": {{"a": "{FAR}"}}}}</script>',
    "other scheme": '<img alt="A dot." src="ftp://cdn.example/x"/>',
}


@pytest.mark.parametrize("element", LOADS.values(), ids=LOADS.keys())
def test_anything_loaded_from_another_host_fails(book: Path, element: str) -> None:
    edit(book, "nbs/01_line.html", "<h1>", f"{element}<h1>")
    (fault,) = faults(book)
    assert fault.startswith("nbs/01_line.html: loads from another host: ")
    assert "cdn.example" in fault


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("book.css", f"@import '{FAR}';"),
        ("book.css", f"@import url({FAR});"),
        ("book.css", f'.a{{src:url("{FAR}")}}'),
        ("book.css", ".a{src:url(//cdn.example/x)}"),
        ("book.js", f'import("{FAR}")'),
        ("book.js", f'import a from"{FAR}"'),
        ("book.js", f"importScripts('{FAR}')"),
    ],
)
def test_stylesheets_and_scripts_load_nothing_from_another_host(book: Path, name: str, text: str) -> None:
    (book / "html" / "_static" / name).write_text(text)
    (fault,) = faults(book)
    assert fault.startswith(f"_static/{name}: loads from another host: ")


CITATION = '[<a href="#entry">Gauss, 1809</a>]'
EDITS = {  # what is replaced on the chapter's page, by what, and the fault that must follow
    "alt missing": ('alt="A rising line through three points."', "", "has no alt text for the image ../_images/0123456789abcdef.png"),
    "alt empty": ("A rising line through three points.", "", "has no alt text for the image"),
    "alt is the path": ("A rising line through three points.", "../_images/0123456789abcdef.png", "has only a file name as alt text"),
    "alt is the source's path": ("A rising line through three points.", "figures/line.svg", "has only a file name as alt text"),
    "alt is the name": ("A rising line through three points.", "0123456789abcdef.png", "has only a file name as alt text"),
    "alt is the hash": ("A rising line through three points.", "0123456789abcdef", "has only a file name as alt text"),
    "figure without image": (f"<img {IMG}/>", "<p>Figure(640x480)</p>", "lacks the image of the figure 'fig-line'"),
    "traceback": ("tag_raises-exception", "", "shows a cell's traceback"),
    "stderr": ("output text_plain", "output stderr", "shows what a cell printed to stderr"),
    "docutils message": ("<h1>", '<aside class="system-message">Unknown role</aside><h1>', "shows a docutils error message"),
    "directive": ("<span></span>", "<span></span><span>#| export</span>\n", "shows the directive '#| export' in a code cell"),
    "broken link": ('href="notation.html#symbols"', 'href="notations.html"', "points to a file that is not there: notations.html"),
    "broken anchor": ("notation.html#symbols", "notation.html#symbol", "points to an anchor that is not there: notation.html#symbol"),
    "broken own anchor": ("#equation-eq-line", "#equation-eq-lime", "points to an anchor that is not there: #equation-eq-lime"),
    "broken download": ("line.csv", "lime.csv", "points to a file that is not there: ../_downloads/lime.csv"),
    "broken image": ("0123456789abcdef.png", "fedcba.png", "points to a file that is not there: ../_images/fedcba.png"),
    "broken script": ("_static/book.js", "_static/boot.js", "points to a file that is not there: ../_static/boot.js"),
    "broken stylesheet": ("_static/book.css", "_static/boot.css", "points to a file that is not there: ../_static/boot.css?v=1"),
    "broken form": ("../search.html", "../find.html", "points to a file that is not there: ../find.html"),
    "folder": ("notation.html#symbols", "../_images", "points to a file that is not there: ../_images"),
    "server root": ("notation.html#symbols", "/nbs/notation.html", "points to the root of the server"),
    "machine path": ("notation.html#symbols", "file:///home/me/notation.html", "points into one machine's files"),
    "number": ("<h1>", "<p>See Fig. ??.</p><h1>", "has an unresolved number in its text: 'See Fig. ??.'"),
    "role eq": ("<h1>", "<p>By {eq}<code>eq-x</code></p><h1>", "has a raw role in its text: 'By {eq}'"),
    "role cite": ("<h1>", "<p>By {cite:p}<code>x</code></p><h1>", "has a raw role in its text: 'By {cite:p}'"),
    "role prf": ("<h1>", "<p>By {prf:ref}`thm-x`</p><h1>", "has a raw role in its text"),
    "role numref": ("<h1>", "<p>By {numref}`fig-x`</p><h1>", "has a raw role in its text"),
    "fence": ("<h1>", "<p>:::{admonition} Title</p><h1>", "has a raw fence in its text: ':::{admonition} Title'"),
    "fence's end": ("<h1>", "<p>:::</p><h1>", "has a raw fence in its text: ':::'"),
    "option": ("<h1>", "<p>\n:label: thm-x</p><h1>", "has a raw option in its text"),
    "dollars": ("<h1>", "<p>$$ a = b $$ (eq-x)</p><h1>", "has raw mathematics in its text"),
    "raw link": ("<h1>", "<p>[](03_regression.ipynb)</p><h1>", "has a raw link in its text"),
    "unresolved eq": ("<h1>", '<p><code class="xref eq docutils">eq-x</code></p><h1>', "has an unresolved reference to 'eq-x'"),
    "unresolved ref": ("<h1>", '<p><span class="xref std std-ref">x y</span></p><h1>', "has an unresolved reference to 'x y'"),
    "unresolved link": ("<h1>", '<a href="#"><span class="xref myst">x</span></a><h1>', "has an unresolved reference to 'x'"),
    "no citation": (CITATION, "[]", "has a citation without its entry"),
    "same id": ('<p id="entry">', '<p id="entry"></p><p id="entry">', "gives the id 'entry' to 2 elements"),
    "no MathJax": ('<script defer="defer" src="../_static/mathjax/tex-chtml.js"></script>', "", "has mathematics but loads no MathJax"),
}


@pytest.mark.parametrize("case", EDITS)
def test_one_fault_on_a_page_is_caught(book: Path, case: str) -> None:
    old, new, message = EDITS[case]
    edit(book, "nbs/01_line.html", old, new)
    found = faults(book)
    assert [fault for fault in found if not fault.startswith(f"nbs/01_line.html: {message}")] == [], "and nothing else"
    assert found


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("genindex.html", "#symbols", "#gone", "genindex.html: points to an anchor that is not there: nbs/notation.html#gone"),
        (
            "search.html",
            "</body>",
            "<a href='nbs/gone.html'>x</a></body>",
            "search.html: points to a file that is not there: nbs/gone.html",
        ),
        ("search.html", "search-input", "x'/><b id='x", "search.html: gives the id 'x' to 2 elements"),
        (
            "genindex.html",
            "</body>",
            "<b id='search-input'/><b id='search-input'/></body>",
            "genindex.html: gives the id 'search-input' to 2 elements",
        ),
        ("index.html", "nbs/index.html", "nbs/home.html", "index.html: points to a file that is not there: nbs/home.html"),
        ("_static/book.css", "dot.svg", "dots.svg", "_static/book.css: points to a file that is not there: dots.svg"),
    ],
)
def test_one_fault_elsewhere_is_caught(book: Path, name: str, old: str, new: str, message: str) -> None:
    edit(book, name, old, new)
    assert faults(book) == [message]


def test_mathjax_without_its_fonts_fails(book: Path) -> None:
    (book / "html" / "_static" / "mathjax" / "output" / "chtml" / "fonts" / "woff-v2" / "main.woff").unlink()
    assert faults(book) == ["_static/mathjax/tex-chtml.js: has no fonts in output/chtml/fonts/woff-v2 beside it"]


def test_mathjax_without_mathematics_is_only_noted(book: Path) -> None:
    edit(book, "nbs/notation.html", "</head>", '<script src="../_static/mathjax/tex-chtml.js"></script></head>')
    report = check(book / "html", book)
    assert report.faults == []
    assert report.notes == ["nbs/notation.html: loads MathJax without mathematics"]


# ---- addresses of repositories

PLACEHOLDERS = [
    "https://github.com/",
    "https://github.com//tree/main",
    "https://github.com/owner",
    "https://github.com/example/anything",
    "https://github.com/someone/transformer_ols/edit/main/nbs/index.ipynb",
    "https://github.com/someone/book/issues/new?title=x",
    "https://gitlab.com/None/x",
    "https://example.org/transformer_ols",
    "https://someone.github.io/transformer_ols/",
    "https://mybinder.org/v2/gh//main",
    "https://colab.research.google.com/github/a/b/blob/main/nbs/index.ipynb",
]
NO_HOST = ["https:///tree/main", "https://.github.io", "http://"]


@pytest.mark.parametrize("url", PLACEHOLDERS + NO_HOST)
def test_no_repository_is_linked_while_none_is_known(book: Path, url: str) -> None:
    edit(book, "nbs/notation.html", "</article>", f'<a href="{url}">source</a></article>')
    assert faults(book) == [f"nbs/notation.html: points to a repository though settings.ini names none: {url}"]


@pytest.mark.parametrize("url", PLACEHOLDERS)
def test_a_known_repository_may_be_linked(book: Path, url: str) -> None:
    edit(book, "nbs/notation.html", "</article>", f'<a href="{url}">source</a></article>')
    (book / "settings.ini").write_text(SETTINGS.format("https://github.com/example/transformer_ols"))
    assert faults(book) == []


@pytest.mark.parametrize("url", ["https://github.com/pytorch/pytorch", "https://arxiv.org/abs/2604.13656", "mailto:a@b.org", "#top"])
def test_other_links_are_free(book: Path, url: str) -> None:
    edit(book, "nbs/notation.html", "</article>", f'<a href="{url}">elsewhere</a></article>')
    assert faults(book) == []


# ---- small parts


def test_every_kind_of_entry_of_the_contents_is_read() -> None:
    toc = {"root": "a", "chapters": [{"file": "b.md", "sections": [{"file": "c"}, {"url": "https://x.org"}]}]}
    assert toc_files(toc) == ["a", "b", "c"]
    assert toc_files({"root": "a", "parts": [{"caption": "P", "chapters": [{"file": "d.ipynb"}]}]}) == ["a", "d"]
    assert toc_files({"root": "a", "subtrees": [{"entries": [{"file": "e"}]}]}) == ["a", "e"]


@pytest.mark.parametrize(
    ("source", "shown"),
    [("x", True), ("x;", False), ("f(x)", False), ("print(x)\ny = 1", True), ("x = 1", False), ("", False), ("%time x\nx, y", True)],
)
def test_what_surely_displays(source: str, shown: bool) -> None:
    assert displays(source) is shown


def test_srcset() -> None:
    assert srcset_urls("a.png 1x, b,c.png 2x") == ["a.png", "b,c.png"]
    assert srcset_urls("") == []


# ---- labels, citations, API entries


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('id="thm-line"', 'id="theorem-0"', "has a theorem without a label thm-..., its id is 'theorem-0'"),
        ('id="thm-line"', "", "has a theorem without a label thm-..., its id is ''"),
        ('<figure id="fig-line">', "<figure>", "lacks the image of the figure 'fig-line'"),
        ("theorem admonition", "algorithm admonition", "has an algorithm without a label alg-..., its id is 'thm-line'"),
        ('id="equation-eq-line"', 'id="equation-7f3a"', "has an equation without a label eq-..., its id is '7f3a'"),
        ('<span id="eq-line"></span>', "", "has no anchor 'eq-line' for its equation"),
        ('<figure id="fig-line">', '<div id="fig-line"></div><figure id="id1">', "has a figure without a label fig-..., its id is 'id1'"),
        ('id="cite-thm-line"', "", "has no line for 'thm-line' under \"Cite this page\""),
        ('id="cite-eq-line"', "", "has no line for 'eq-line' under \"Cite this page\""),
        ("title = {A line},", "title = {A line,", "has BibTeX that does not parse: "),
        ("label fig-line}", "label fig-line", "has BibTeX that does not parse: "),
        ("  title = {A line},\n", "", "has BibTeX with an empty entry: '@misc{line,"),
        ("@misc{line,\n  title = {A line},\n}\n", "line", "has BibTeX that does not parse: "),
    ],
)
def test_labels_and_citations(book: Path, old: str, new: str, fault: str) -> None:
    edit(book, "nbs/01_line.html", old, new)
    assert f"nbs/01_line.html: {fault}" in "\n".join(faults(book))


def test_a_chapter_without_its_bibtex_fails(book: Path) -> None:
    edit(book, "nbs/01_line.html", '<details class="cite-this">', "<details>")
    assert 'nbs/01_line.html: has no BibTeX under "Cite this page"' in faults(book)


def test_a_label_given_on_two_pages_fails(book: Path) -> None:
    theorem = '<div class="proof theorem admonition" id="thm-line">Again.</div><p id="cite-thm-line"></p></article>'
    edit(book, "nbs/notation.html", "</article>", theorem)
    assert faults(book) == ["nbs/01_line.html: gives the label 'thm-line' that nbs/notation.html gives too"]


LOST = {
    "lem-lost": ":::{prf:lemma} A name\n:label: lem-lost\n\nText.\n:::",
    "eq-lost": "$$\nx\n$$ (eq-lost)",
    "fig-lost": "#| label: fig-lost\nx",
}


@pytest.mark.parametrize("label", LOST)
def test_a_label_of_the_notebook_that_is_no_anchor_fails(book: Path, label: str) -> None:
    path = book / "nbs" / "01_line.ipynb"
    content = json.loads(path.read_text())
    content["cells"].append({"cell_type": "code" if label.startswith("fig") else "markdown", "source": LOST[label]})
    path.write_text(json.dumps(content))
    assert f"nbs/01_line.html: has no anchor for the label {label!r} of its notebook" in faults(book)


ENTRY = '<dt class="sig sig-object py" id="lib.line.{0}">{0}<a href="../01_line.html#cell-1">[notebook]</a><a href="#x">#</a></dt>'


@pytest.fixture
def documented(book: Path) -> Path:
    """The tiny book with a package of one module, and its API page."""
    (book / "settings.ini").write_text(SETTINGS.format("") + "lib_path = lib\n")
    (book / "lib").mkdir()
    (book / "lib" / "line.py").write_text("__all__ = ['fit', 'Line']\n")
    (book / "html" / "nbs" / "api").mkdir()
    page = f"{HEAD.replace('../', '../../').replace('notation.html', '../notation.html')}</head><body><h1 id='x'>line</h1><dl>"
    entries = "".join(ENTRY.format(name) for name in ("fit", "Line", "Line.slope"))
    (book / "html" / "nbs" / "api" / "line.html").write_text(f"{page}{entries}</dl></body></html>")
    return book


def test_every_public_name_has_an_entry(documented: Path) -> None:
    assert faults(documented) == []
    (documented / "lib" / "line.py").write_text("__all__ = ['fit', 'Line', 'forgotten']\n")
    assert faults(documented) == ["lib.line.forgotten: has 0 entries on the API pages, one is needed"]
    (documented / "lib" / "line.py").write_text("")
    assert faults(documented) == ["lib: no module with public names, settings.ini says that they are there"]


def test_an_entry_on_two_pages_fails(documented: Path) -> None:
    edit(documented, "nbs/notation.html", "</article>", ENTRY.format("fit").replace("../", "") + "<p id='x'></p></article>")
    assert faults(documented) == ["lib.line.fit: has 2 entries on the API pages, one is needed: nbs/api/line.html, nbs/notation.html"]


@pytest.mark.parametrize("url", ["../01_line.html", "../01_line.html#cell-gone", "../gone.html#cell-1"])
def test_an_entry_that_does_not_lead_to_its_cell_fails(documented: Path, url: str) -> None:
    edit(documented, "nbs/api/line.html", 'Line.slope<a href="../01_line.html#cell-1"', f'Line.slope<a href="{url}"')
    assert "nbs/api/line.html: the entry lib.line.Line.slope does not lead to its notebook cell" in faults(documented)
