"""The first pages: what they show is what a run gives, and what they point at is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from configparser import ConfigParser
from pathlib import Path

import numpy as np
import pytest
import readme_figure
import torch
from conftest import ROOT

from transformer_ols import OLSTransformer

README = (ROOT / "README.md").read_text("utf8")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
SVG = "{http://www.w3.org/2000/svg}"


def fenced(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def prose(notebook: Path) -> str:
    cells = json.loads(notebook.read_text("utf8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


# ---- the README


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_run_as_written(tmp_path: Path, number: int) -> None:
    codes, outputs, tables = (fenced(language, README) for language in ("python", "text", "csv"))
    assert (len(codes), len(outputs), len(tables)) == (3, 2, 1)
    code, printed = codes[number], outputs[number]
    (tmp_path / "data.csv").write_text(tables[0])
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == printed
    assert 8 <= len(code.splitlines()) <= 16


def test_the_chapter_runs_on_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = np.random.default_rng(0).normal(size=(30, 3))
    np.savetxt(tmp_path / "mine.csv", table, delimiter=",", header="a,b,c", comments="")
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "nbs" / "10_ols_transformer.ipynb").read_text("utf8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert any("import numpy as np" in cell for cell in code) and any("class OLSTransformer" in cell for cell in code)
    names = {"np": np, "torch": torch, "OLSTransformer": OLSTransformer}
    for cell in (next(cell for cell in code if "def double(" in cell), fenced("python", README)[2]):
        exec(cell, names)
    answers, _ = names["layer"].attend(torch.tensor(table[:, :-1]))
    centred = table - table.mean(0)
    slope = np.linalg.lstsq(centred[:, :-1], centred[:, -1], rcond=None)[0]
    np.testing.assert_allclose(answers.numpy(), centred[:, :-1] @ slope + table[:, -1].mean(), atol=1e-12)


@pytest.mark.parametrize("target", sorted({target for _, target in LINK.findall(README)}))
def test_relative_links_resolve(target: str) -> None:
    assert "://" not in target, "no public address is known yet"
    assert (ROOT / target).exists()


def test_every_make_target_is_explained() -> None:
    explained = set(re.findall(r"^\| `make ([a-z-]+)` \|", README, re.M))
    assert explained == set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text("utf8"), re.M))


def test_every_variable_and_extra_exists() -> None:
    makefile, settings = (ROOT / "Makefile").read_text("utf8"), (ROOT / "settings.ini").read_text("utf8")
    for variable in set(re.findall(r"\b([A-Z_]+)=", "\n".join(line for line in README.splitlines() if "make " in line))):
        assert re.search(rf"\b{variable}\b", makefile), variable
    extras = {extra for group in re.findall(r"\[([a-z,]+)\]\"", README) for extra in group.split(",")}
    assert extras == {"dev", "book", "notebook", "plot", "sklearn"}
    assert all(f"{extra}_requirements" in settings for extra in extras)


# ---- its figure


def coordinates(svg: Path) -> dict[str, np.ndarray]:
    """Positions on the page of what the groups of the figure show."""
    groups = {group.get("id"): group for group in ET.parse(svg).getroot().iter(f"{SVG}g")}
    marks = {
        name: [(float(u.get("x", "nan")), float(u.get("y", "nan"))) for u in groups[name].iter(f"{SVG}use")]
        for name in ("patients", "attention")
    }
    path = next(groups["least-squares"].iter(f"{SVG}path")).get("d", "")
    line = [tuple(map(float, pair)) for pair in re.findall(r"[ML] (\S+) (\S+)", path)]
    return {name: np.array(values) for name, values in {**marks, "least-squares": line}.items()}


def test_the_figure_is_what_a_run_draws(tmp_path: Path) -> None:
    readme_figure.draw(tmp_path / "again.svg")
    committed, again = coordinates(readme_figure.TARGET), coordinates(tmp_path / "again.svg")
    assert {name: len(values) for name, values in committed.items()} == {"patients": 442, "attention": 9, "least-squares": 2}
    for name, values in committed.items():
        np.testing.assert_allclose(again[name], values, atol=1e-3, err_msg=name)  # a page is 460 points wide, written to six decimals
    assert readme_figure.TARGET.stat().st_size <= 100_000


def test_the_figure_says_what_its_caption_says() -> None:
    drawn = coordinates(readme_figure.TARGET)
    (x0, y0), (x1, y1) = drawn["least-squares"]
    x, y = drawn["attention"].T
    np.testing.assert_allclose(y, y0 + (x - x0) * (y1 - y0) / (x1 - x0), atol=1e-5)  # rounding of the six decimals
    assert f"({readme_figure.TARGET.relative_to(ROOT)})" in README


# ---- the book's first and last pages


def test_the_first_page_links_by_title() -> None:
    text = prose(ROOT / "nbs" / "index.ipynb")
    links = [(label, target) for label, target in LINK.findall(text) if target.endswith(".ipynb")]
    assert links
    for label, target in [*links, *((a, b.removeprefix("nbs/")) for a, b in LINK.findall(README) if "10_" in b)]:
        assert prose(ROOT / "nbs" / target).splitlines()[0] == f"# {label}", target


def test_the_first_page_maps_every_chapter() -> None:
    text = prose(ROOT / "nbs" / "index.ipynb").split("## The map")[1]
    chapters = {path.name for path in (ROOT / "nbs").glob("*.ipynb")} - {"index.ipynb"}
    assert chapters == {target for _, target in LINK.findall(text) if target.endswith(".ipynb")}


def test_citations_are_those_of_the_bibliography_and_the_settings() -> None:
    (entries,) = fenced("bibtex", prose(ROOT / "nbs" / "index.ipynb"))
    *papers, book = entries.strip().split("\n\n")
    bibliography = (ROOT / "nbs" / "references.bib").read_text("utf8")
    assert len(papers) == 2 and all(paper in bibliography for paper in papers)
    config = ConfigParser()
    config.read(ROOT / "settings.ini", encoding="utf8")
    for key, value in {"title": "title", "author": "author", "version": "version"}.items():
        assert re.search(rf"^\s*{key}\s*= {{+{re.escape(config['DEFAULT'][value])}}}+,$", book, re.M), key


def test_every_citation_has_an_entry_and_every_entry_is_complete() -> None:
    from pybtex.database import parse_file

    entries = parse_file(str(ROOT / "nbs" / "references.bib")).entries
    cited = {
        key
        for path in (ROOT / "nbs").glob("*.ipynb")
        for group in re.findall(r"\{cite:\w+\}`([^`]+)`", prose(path))
        for key in group.split(",")
    }
    assert cited <= set(entries)
    for key, entry in entries.items():
        assert entry.persons["author"] and entry.fields["title"] and entry.fields["year"].isdigit(), key
