"""The checker that looks at the book in a browser, on a site of small pages: sound ones, and one for each fault put in on purpose."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from check_browser import NO_BROWSER, VIEWS, Report, check, find_chromium, theorems
from conftest import ROOT

pytestmark = pytest.mark.skipif(find_chromium() is None, reason=NO_BROWSER)

STYLE = """\
:root { color-scheme: light dark; } body { font: 16px sans-serif; margin: 1rem; }
.box { overflow-x: auto; } .wide { width: 1500px; } td { padding: 2px; } h1 { overflow-wrap: anywhere; }
"""
PAGE = """\
<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>T</title><link rel="icon" href="data:,"><link rel="stylesheet" href="style.css">{head}</head>
<body><main><article><h1>A page</h1>{body}</article></main></body></html>
"""
MATHJAX = '<script defer src="mathjax/tex-chtml.js"></script>'
IMAGE = '<img alt="A black dot." src="dot.png">'
TABLE = '<table class="wide"><tr><th>name</th><th>value</th></tr><tr><td>a</td><td>1</td></tr></table>'
CITE = '<span class="cite-link">cite</span>'
THEOREM = f'<div class="proof"><p class="admonition-title"><span class="caption-number">Theorem 1 </span> ({{}}) {CITE}</p></div>'
LATE = '<script>localStorage.getItem("seen") || console.error("never seen"); localStorage.setItem("seen", "yes");</script>'
SEARCH = """\
<p>Search</p><div id="found"></div><script>
const asked = new URLSearchParams(location.search).get("q");
if (asked === "Sound theorem") setTimeout(() => { found.innerHTML = '<a href="sound.html">A page</a>'; }, 100);
</script>"""

SOUND = {
    "sound": (
        "",
        THEOREM.format("Sound theorem")
        + IMAGE
        + f'<div class="box" tabindex="0">{TABLE}</div><details><summary>More</summary>text</details>',
    ),
    "equations": (
        MATHJAX,
        '<p>By <span class="math">\\(x^2\\)</span>:</p><div class="math box" tabindex="0">\\[ x^2 = \\frac{1}{2} \\]</div>',
    ),
    "redirect": ('<meta http-equiv="Refresh" content="0; url=sound.html">', ""),
}
# page: its head, its body, what must be said of it, and where ("" is everywhere)
BROKEN = {
    "external": ('<script src="https://elsewhere.example/x.js"></script>', "", "asks another host for https://elsewhere.example/x.js", ""),
    "fetched": ("<script>fetch('http://elsewhere.example/').catch(() => null)</script>", "", "asks another host for", ""),
    "no_alt": ("", '<img src="dot.png">', "image-alt: Images must have alternative text, at img", "light 1280, light 390"),
    "no_image": ("", '<img alt="A dot." src="gone.png">', "has an image that does not show: gone.png", ""),
    "not_found": ('<link rel="stylesheet" href="gone.css">', "", "does not get gone.css: 404", ""),
    "wide_table": ("", TABLE, "is too narrow for table.wide", ""),
    "scrolls": ("", TABLE, "scrolls sideways: 15", ""),
    "hidden_overflow": ("<style>html, body { overflow-x: hidden; }</style>", TABLE, "is too narrow for table.wide", ""),
    "whole_page_scrolls": ("<style>main { overflow-x: auto; }</style>", TABLE, "is too narrow for table.wide", ""),
    "narrow_only": ("", '<p style="width: 600px">text</p>', "is too narrow for p (text)", "light 390, dark 390"),
    "contrast": ("", '<p style="color: #888; background: #fff">grey</p>', "color-contrast: Elements must meet", "light 1280, dark 1280"),
    "dark_contrast": (
        "<style>@media (prefers-color-scheme: dark) { p { color: #555; background: #222; } }</style>",
        "<p>grey</p>",
        "color-contrast: Elements must meet minimum color contrast ratio thresholds, at p",
        "dark 1280",
    ),
    "folded_contrast": (
        "",
        '<details><summary>More</summary><p style="color: #888; background: #fff">grey</p></details>',
        "color-contrast: Elements must meet",
        "light 1280, dark 1280",
    ),
    "folded_table": ("", f"<details><summary>More</summary>{TABLE}</details>", "is too narrow for table.wide", ""),
    "folded_for_good": ("", '<button class="toggle-button toggle-button-hidden">More</button>', "has a folded part that does not open", ""),
    "folded_error": ("", "<details ontoggle='console.error(\"torn\")'><summary>More</summary>text</details>", "console error: torn", ""),
    "console_error": ("<script>console.error('broken')</script>", "", "console error: broken", ""),
    "console_warning": ("<script>console.warn('hm')</script>", "", "console warning: hm", ""),
    "first_visit": (LATE, "", "console error: never seen", ""),
    "script_error": ("<script>missing()</script>", "", "script error: missing is not defined", ""),
    "untypeset": ("", '<p><span class="math">\\(x^2\\)</span></p>', r"has an equation that is not typeset: \(x^2\)", ""),
    "bad_equation": (MATHJAX, '<div class="math">\\[ \\left( x \\]</div>', "has an equation with an error: ", ""),
    "unknown_macro": (MATHJAX, '<div class="math">\\[ \\nosuchmacro \\]</div>', r"has an equation with an error: \nosuchmacro", ""),
    "idle_mathjax": (MATHJAX, "", "loads MathJax without mathematics", ""),
    "heavy": ('<script src="heavy.js"></script>', "", "MB gzipped, at most 1.2 MB", ""),
    "unlabelled": (
        "",
        '<button><span class="icon"></span></button>',
        "button-name: Buttons must have discernible text",
        "light 1280, light 390",
    ),
    "unfound": ("", THEOREM.format("Lost theorem"), None, ""),
    "index": ("<script>fetch('data.json').then(answer => answer.json()).catch(() => null)</script>", "", "console error: ", "as a file"),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "book_static" / "mathjax", folder / "mathjax")
    for name, (head, body, *_) in {**SOUND, **BROKEN, "search": ("", SEARCH)}.items():
        (folder / f"{name}.html").write_text(PAGE.format(head=head, body=body))
    (folder / "style.css").write_text(STYLE)
    (folder / "data.json").write_text("{}")
    (folder / "heavy.js").write_text(f"/* {base64.b64encode(os.urandom(1_250_000)).decode()} */")
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    (folder / "dot.png").write_bytes(base64.b64decode(dot))
    (folder / "_static").mkdir()
    (folder / "_static" / "part.html").write_text("<p>a part of the theme, not a page")
    return folder


@pytest.fixture(scope="module")
def report(site: Path) -> Report:
    return asyncio.run(check(site, site.parent / "screenshots"))


def said_of(report: Report, page: str) -> list[str]:
    return [line for line in report.lines() if line.startswith(f"{page}.html: ")]


@pytest.mark.parametrize("page", SOUND)
def test_a_sound_page_passes(report: Report, page: str) -> None:
    assert not said_of(report, page)


@pytest.mark.parametrize("page", [page for page in BROKEN if page != "unfound"])
def test_each_fault_is_reported_in_the_views_that_show_it(report: Report, page: str) -> None:
    *_, fault, where = BROKEN[page]
    lines = [line for line in said_of(report, page) if fault in line]
    assert lines, said_of(report, page)
    assert any(line.endswith(f"({where})") if where else not line.endswith(("390)", "1280)", "light)", "dark)")) for line in lines), lines


def test_the_search_finds_a_theorem_by_its_name(report: Report, site: Path) -> None:
    assert theorems(site, ["sound.html", "equations.html"]) == [("Sound theorem", "sound.html")]
    assert said_of(report, "search") == ["search.html: does not find unfound.html by the name of its theorem, 'Lost theorem' (searching)"]
    assert report.searches == 2


def test_every_page_is_seen_and_kept_as_a_picture(report: Report, site: Path) -> None:
    pictures = {path.name for path in (site.parent / "screenshots").iterdir()}
    seen = {*SOUND, *BROKEN, "search"} - {"redirect"}
    assert pictures == {f"{page}_{view.width}_{view.theme}.jpg" for page in seen for view in VIEWS}
    assert report.pages == len(seen)


def test_the_weight_is_that_of_a_cold_cache(report: Report, site: Path) -> None:
    assert 250_000 < report.weights["equations.html"] < 400_000, "MathJax and its fonts"
    assert report.weights["sound.html"] < 2_000
    assert max(report.weights, key=lambda page: report.weights[page]) == "heavy.html"


def test_an_empty_folder_is_a_fault(tmp_path: Path) -> None:
    assert "holds no page" in "".join(asyncio.run(check(tmp_path)).lines())


def test_a_missing_browser_is_one_clear_line() -> None:
    environment = {**os.environ, "CHROMIUM": "no-such-browser"}
    done = subprocess.run([sys.executable, ROOT / "tools" / "check_browser.py"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [NO_BROWSER]
