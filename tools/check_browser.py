"""Open every page of the built book in headless Chromium, one line per fault; exit 1 if there is any.

    python tools/check_browser.py [_build/html] [--only nbs/05*] [--screenshots _build/screenshots]

As a first visit in light and in dark, 1280 and then 390 pixels wide: errors on the console, files that do not load, requests to other
hosts, equations that are not typeset, images, anything wider than the page and outside a box of its own that scrolls, the WCAG A and AA
rules of axe-core with every folded part opened, and the weight of what the browser fetches. Then the search, which must find named
theorems, and a few pages opened as files. The screenshots show the pages as they open. CHROMIUM names another browser than the one found.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gzip
import os
import re
import shutil
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

ROOT = Path(__file__).resolve().parent.parent
AXE = ROOT / "tools" / "vendor" / "axe" / "axe.min.js"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = "no Chromium found: install one (Debian, Ubuntu: apt install chromium), or name one: CHROMIUM=/path/to/chrome"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # a request to another host is reported, and goes nowhere
]
WORKERS = 2
HEAVIEST = 1_200_000
TALLEST = 16_000  # pixels of one screenshot; taller pages are cut into several
PACKED = {".woff", ".woff2", ".ttf", ".png", ".jpg", ".jpeg", ".gif", ".webp", ".avif", ".ico"}


@dataclass(frozen=True)
class View:
    """A theme and a width."""

    theme: str
    width: int

    def __str__(self) -> str:
        return f"{self.theme} {self.width}"


THEMES, WIDTHS, HEIGHT = ("light", "dark"), (1280, 390), 900
VIEWS = [View(theme, width) for theme in THEMES for width in WIDTHS]
FILES = View("light", 1280)
COLOURS = ["color-contrast", "link-in-text-block"]
AXE_RULES = {  # a theme changes colours only, a width does not change them: what need not be judged twice is not
    View("light", 1280): {"runOnly": {"type": "tag", "values": WCAG}},
    View("dark", 1280): {"runOnly": {"type": "rule", "values": COLOURS}},
    View("light", 390): {"runOnly": {"type": "tag", "values": WCAG}, "rules": {name: {"enabled": False} for name in COLOURS}},
}


@dataclass
class Report:
    """Each fault with the views that show it, and what was counted."""

    faults: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    pages: int = 0
    searches: int = 0
    files: int = 0

    def add(self, page: str, fault: str, where: object) -> None:
        seen = self.faults.setdefault((page, " ".join(fault.split())), [])
        if str(where) not in seen:
            seen.append(str(where))

    def lines(self) -> list[str]:
        order = [str(view) for view in VIEWS] + list(THEMES)
        everywhere = (set(map(str, VIEWS)), set(THEMES))
        lines = []
        for (page, fault), seen in sorted(self.faults.items()):
            where = sorted(seen, key=lambda name: (order.index(name) if name in order else len(order), name))
            lines.append(f"{page}: {fault}" + ("" if set(seen) in everywhere else f" ({', '.join(where)})"))
        return lines


# ---- what is looked at inside a page

READY = """async () => {
    if (window.MathJax?.startup?.promise) await MathJax.startup.promise;
    await document.fonts.ready;
}"""

UNFOLD = """() => {
    for (let round = 0; round < 5; round++) {
        const closed = [
            ...document.querySelectorAll("main details:not([open]) > summary"),
            ...document.querySelectorAll(".toggle-button.toggle-button-hidden"),
        ];
        closed.forEach(element => element.click());
        if (!closed.length) return [];
    }
    return ["has a folded part that does not open"];
}"""

LOOK = r"""async () => {
    const faults = [];
    const short = text => { text = text.replace(/\s+/g, " ").trim(); return text.length > 60 ? text.slice(0, 60) + "…" : text; };
    const name = element => {
        const own = element.tagName.toLowerCase() + (element.id ? "#" + element.id : "");
        const classes = [...element.classList].slice(0, 3).map(c => "." + c).join("");
        return own + classes + (element.textContent.trim() ? ` (${short(element.textContent)})` : "");
    };
    const some = (elements, say) => {
        elements.slice(0, 5).forEach(element => faults.push(say(element)));
        if (elements.length > 5) faults.push(`${say(elements[5])}, and ${elements.length - 6} more like it`);
    };

    // Equations
    const equations = [...document.querySelectorAll(".math")].filter(element => !element.parentElement.closest(".math"));
    some(equations.filter(element => !element.querySelector("mjx-container")),
        element => `has an equation that is not typeset: ${short(element.textContent)}`);
    some([...document.querySelectorAll("mjx-merror, mjx-mtext[style*='color: red']")],
        element => `has an equation with an error: ${element.dataset.mjxError || short(element.closest("mjx-container").textContent)}`);
    if (!equations.length && performance.getEntriesByType("resource").some(entry => /mathjax/i.test(entry.name)))
        faults.push("loads MathJax without mathematics");

    // Images and fonts
    const images = [...document.images];
    images.forEach(image => { image.loading = "eager"; });
    await Promise.all(images.map(image => image.decode().catch(() => null)));
    some(images.filter(image => !image.naturalWidth), image => `has an image that does not show: ${image.getAttribute("src")}`);
    some([...document.fonts].filter(font => font.status === "error"), font => `has a font that does not load: ${font.family}`);

    // Width: a scrolling box may hold what is wide, unless it is the frame of the page itself; a drawer that slides out of view has done so
    const sliding = document.getAnimations().filter(animation => animation instanceof CSSTransition);
    await Promise.all(sliding.map(transition => transition.finished.catch(() => null)));
    const room = document.documentElement.clientWidth;
    const scrolls = element => ["auto", "scroll"].includes(getComputedStyle(element).overflowX)
        && element !== document.body && element !== document.documentElement && !element.querySelector("h1");
    const boxed = element => element.parentElement && (scrolls(element.parentElement) || boxed(element.parentElement));
    if (document.documentElement.scrollWidth > innerWidth)
        faults.push(`scrolls sideways: ${document.documentElement.scrollWidth} pixels wide`);
    const wide = [...document.body.querySelectorAll("*")].filter(element => {
        const box = element.getBoundingClientRect();
        return box.right > room + 1 && box.left < room && box.width > 1 && box.height > 1
            && !element.closest("mjx-assistive-mml") && element.checkVisibility({ visibilityProperty: true }) && !boxed(element);
    });
    some(wide.filter(element => !wide.some(other => other !== element && other.contains(element))),
        element => `is too narrow for ${name(element)}`);
    return faults;
}"""

AXE_RUN = """async (options) => {
    const context = { exclude: [["mjx-container > mjx-math"]] };  // drawn glyph by glyph and hidden from assistive technology
    const { violations } = await axe.run(context, { ...options, resultTypes: ["violations"] });
    return violations.map(({ id, help, nodes }) => ({ id, help, targets: nodes.map(node => node.target.flat(9).join(" ")) }));
}"""

LOADED = (
    """() => [...document.querySelectorAll("link[rel~=stylesheet]")].filter(link => !link.sheet).map(link => link.getAttribute("href"))"""
)


# ---- serving, weighing, finding


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def serve(folder: Path) -> ThreadingHTTPServer:
    """A static server of the folder, on a free port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def find_chromium() -> str | None:
    named = os.environ.get("CHROMIUM")
    return next(filter(None, map(shutil.which, [named] if named else BROWSERS)), None)


@functools.cache
def weight(path: Path) -> int:
    """Bytes as a server sends them: text gzipped, fonts and images as they are."""
    content = path.read_bytes()
    return len(content) if path.suffix in PACKED else len(gzip.compress(content, 9))


def pages_of(html: Path) -> list[str]:
    """Every page; what lies in `_static` belongs to the theme."""
    return sorted(name for path in html.rglob("*.html") if not (name := path.relative_to(html).as_posix()).startswith("_static/"))


def is_redirect(path: Path) -> bool:
    return bool(re.search(r"<meta[^>]+http-equiv=.?refresh", path.read_text("utf8"), re.I))


SAID_ELSEWHERE = (
    "Failed to load resource",  # reported by its name
    "Anchored content block not found",  # Sphinx's search looks for #a.b without escaping the dot; check_book knows all anchors
)
NUMBERED = re.compile(r'<p class="admonition-title">\s*<span class="caption-number">')
TITLE = re.compile(NUMBERED.pattern + r'[^<]*</span>\s*\(([^<>()]+)\)\s*(?:<span class="cite-link">.*?</span>\s*)?</p>', re.S)


def theorems(html: Path, pages: list[str]) -> list[tuple[str, str]]:
    """The first named theorem of each page, to search for."""
    found = [(TITLE.search((html / page).read_text("utf8")), page) for page in pages]
    return [(" ".join(match[1].split()), page) for match, page in found if match]


# ---- the checks


@dataclass
class Checker:
    """One browser and one server; each visit has a profile of its own."""

    html: Path
    browser: Any
    base: str
    screenshots: Path | None
    report: Report = field(default_factory=Report)

    @asynccontextmanager
    async def visit(self, address: str, page: str, view: View, where: object) -> AsyncIterator[tuple[Any, list[str]]]:
        """Open an address as a first visit; what goes wrong while it is open is reported. Yields the tab and what it fetched."""
        context = await self.browser.new_context(viewport={"width": view.width, "height": HEIGHT}, color_scheme=view.theme)
        tab, fetched, home = (
            await context.new_page(),
            [],
            address[: len(self.base)] if address.startswith(self.base) else self.html.as_uri(),
        )

        def add(fault: str) -> None:
            self.report.add(page, fault, where)

        def request(request: Any) -> None:
            if request.url.startswith(home):
                fetched.append(request.url)
            elif not request.url.startswith(("data:", "blob:", "about:")):
                add(f"asks another host for {request.url}")

        def failed(request: Any) -> None:
            if request.url.startswith(home) and "ERR_ABORTED" not in (request.failure or ""):
                add(f"does not get {request.url.removeprefix(home)}: {request.failure}")

        def console(message: Any) -> None:
            if message.type in {"error", "warning"} and not message.text.startswith(SAID_ELSEWHERE):
                add(f"console {message.type}: {message.text}")

        def response(response: Any) -> None:
            if response.status >= 400:
                add(f"does not get {response.url.removeprefix(home)}: {response.status}")

        for event, hear in (("request", request), ("requestfailed", failed), ("console", console), ("response", response)):
            tab.on(event, hear)
        tab.on("pageerror", lambda error: add(f"script error: {error}"))
        try:
            await tab.goto(address, wait_until="load")
            if not is_redirect(self.html / page):
                await tab.evaluate(READY)
            yield tab, fetched
        finally:
            await context.close()

    async def guard(self, page: str, where: str, job: Any) -> None:
        """A visit that breaks off is a fault, not the end of the check."""
        try:
            await job
        except Exception as error:
            self.report.add(page, f"could not be looked at: {str(error).splitlines()[0]}", where)

    async def look(self, page: str, theme: str) -> None:
        """A page in one theme: wide, then narrow, then with its folded parts opened, narrow and wide again."""
        wide, narrow = (View(theme, width) for width in WIDTHS)
        async with self.visit(self.base + quote(page), page, wide, theme) as (tab, fetched):
            for view in (wide, narrow):
                await self.resize(tab, view)
                await self.shoot(tab, page, view)
                self.add(page, await tab.evaluate(LOOK), view)
            self.weigh(page, fetched, theme)
            self.add(page, await tab.evaluate(UNFOLD), theme)
            await tab.evaluate(READY)
            for view in (narrow, wide):
                await self.resize(tab, view)
                self.add(page, await tab.evaluate(LOOK), view)
                self.add(page, await self.accessible(tab, view), view)

    def add(self, page: str, faults: list[str], where: object) -> None:
        for fault in faults:
            self.report.add(page, fault, where)

    async def resize(self, tab: Any, view: View) -> None:
        if tab.viewport_size["width"] != view.width:
            await tab.set_viewport_size({"width": view.width, "height": HEIGHT})

    async def accessible(self, tab: Any, view: View) -> list[str]:
        if view not in AXE_RULES:
            return []
        if not await tab.evaluate("Boolean(window.axe)"):
            await tab.evaluate(AXE.read_text("utf8"))
        violations = await tab.evaluate(AXE_RUN, AXE_RULES[view])
        faults = []
        for found in violations:
            first, more = found["targets"][:3], len(found["targets"]) - 3
            faults += [f"{found['id']}: {found['help']}, at {target}" for target in first]
            if more > 0:
                faults.append(f"{found['id']}: {found['help']}, at {more} more places")
        return faults

    def weigh(self, page: str, fetched: list[str], theme: str) -> None:
        paths = {self.html / unquote(urlsplit(url).path).lstrip("/") for url in fetched}
        total = sum(weight(path) for path in paths if path.is_file())
        self.report.weights[page] = max(total, self.report.weights.get(page, 0))
        if total > HEAVIEST:
            self.report.add(page, f"weighs {total / 1e6:.2f} MB gzipped, at most {HEAVIEST / 1e6} MB", theme)

    async def shoot(self, tab: Any, page: str, view: View) -> None:
        if not self.screenshots:
            return
        height = await tab.evaluate("document.documentElement.scrollHeight")
        stem = f"{page.removesuffix('.html').replace('/', '_')}_{view.width}_{view.theme}"
        for number, top in enumerate(range(0, height, TALLEST)):
            await tab.screenshot(
                path=self.screenshots / f"{stem}{f'_{number + 1}' if height > TALLEST else ''}.jpg",
                type="jpeg",
                quality=60,
                full_page=True,
                clip={"x": 0, "y": top, "width": view.width, "height": min(TALLEST, height - top)},
            )

    async def search(self, title: str, page: str) -> None:
        """Searching for a theorem's name must list its page."""
        address = f"{self.base}search.html?q={quote(title)}"
        async with self.visit(address, "search.html", FILES, "searching") as (tab, _):
            links = tab.locator(f'main a[href*="{page}"]')
            try:
                await links.first.wait_for(state="attached", timeout=10_000)
            except Exception:
                self.report.add("search.html", f"does not find {page} by the name of its theorem, {title!r}", "searching")
        self.report.searches += 1

    async def open_file(self, page: str) -> None:
        """A page without a server: styles, equations, and the way to the next page."""
        async with self.visit((self.html / page).as_uri(), page, FILES, "as a file") as (tab, _):
            if is_redirect(self.html / page):
                await tab.wait_for_url(lambda url: url != (self.html / page).as_uri(), timeout=10_000)
                await tab.wait_for_load_state("load")
                await tab.evaluate(READY)
            for sheet in await tab.evaluate(LOADED):
                self.report.add(page, f"does not get its stylesheet {sheet}", "as a file")
            self.add(page, await tab.evaluate(LOOK), "as a file")
            onward = tab.locator("a.right-next, a[rel=next]").first
            if await onward.count():
                before = tab.url
                await onward.click()
                await tab.wait_for_url(lambda url: url.split("#")[0] != before.split("#")[0], timeout=10_000)
                await tab.evaluate(READY)
        self.report.files += 1


async def in_turn(*jobs: Any) -> None:
    """Run the jobs, a few at a time."""
    queue = iter(jobs)

    async def work() -> None:
        for job in queue:
            await job

    await asyncio.gather(*(work() for _ in range(WORKERS)))


def some_files(html: Path, pages: list[str]) -> list[str]:
    """The first page, and three more: the one with the most mathematics, the one with the most images, one with neither."""
    texts = {page: (html / page).read_text("utf8") for page in pages if not is_redirect(html / page) and page != "search.html"}
    most = [max(texts, key=lambda page: texts[page].count(sign)) for sign in ('class="math', "<img")] if texts else []
    plain = next((page for page in texts if "<img" not in texts[page] and 'class="math' not in texts[page]), None)
    return list(dict.fromkeys([page for page in ["index.html", *most, plain] if page in pages]))


async def check(html: Path, screenshots: Path | None = None, only: str = "*") -> Report:
    """Look at a built book. Pages that only send the reader on are left to the visit as a file."""
    from playwright.async_api import async_playwright

    html = html.resolve()
    chromium = find_chromium()
    if chromium is None:
        raise FileNotFoundError(NO_BROWSER)
    if not AXE.exists():
        raise FileNotFoundError(f"{AXE.relative_to(ROOT)} is missing: run `make vendor`")
    pages = [page for page in pages_of(html) if fnmatch(page, only)]
    if screenshots:
        shutil.rmtree(screenshots, ignore_errors=True)
        screenshots.mkdir(parents=True)
    server = serve(html)
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            checker = Checker(html, browser, f"http://127.0.0.1:{server.server_port}/", screenshots)
            seen = [page for page in pages if not is_redirect(html / page)]
            jobs = [checker.guard(page, theme, checker.look(page, theme)) for page in seen for theme in THEMES]
            jobs += [checker.guard("search.html", "searching", checker.search(title, page)) for title, page in theorems(html, seen)]
            jobs += [checker.guard(page, "as a file", checker.open_file(page)) for page in some_files(html, pages)]
            await in_turn(*jobs)
            checker.report.pages = len(seen)
            await browser.close()
    finally:
        server.shutdown()
        server.server_close()
    if not checker.report.searches and any(NUMBERED.search((html / page).read_text("utf8")) for page in seen):
        checker.report.add("search.html", "was not tried: no theorem's name was found in its title", "searching")
    if not pages:
        checker.report.add(html.name, "holds no page; run `make book` first", "nothing to look at")
    return checker.report


def main() -> int:
    parser = argparse.ArgumentParser(description="Look at the built book in headless Chromium; exit 1 if there is a fault.")
    parser.add_argument("html", nargs="?", type=Path, default=ROOT / "_build" / "html")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="the pages to look at, for example 'nbs/05*'")
    parser.add_argument("--screenshots", type=Path, default=ROOT / "_build" / "screenshots", help="the folder for them, emptied first")
    arguments = parser.parse_args()
    try:
        report = asyncio.run(check(arguments.html, arguments.screenshots, arguments.only))
    except FileNotFoundError as error:
        sys.exit(str(error))
    for line in report.lines():
        print(line)
    seen = f"{report.pages} pages in {len(VIEWS)} views, {report.searches} searches, {report.files} pages as files"
    print(f"{seen}: {len(report.faults)} faults; screenshots in {os.path.relpath(arguments.screenshots)}")
    if report.weights:
        heaviest = max(report.weights, key=lambda page: report.weights[page])
        print(f"heaviest page: {heaviest}, {report.weights[heaviest] / 1e6:.2f} MB gzipped with a cold cache")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
