"""What `make dist-check` and `make oldest` find without installing anything, broken on purpose one by one; short reprs and a busy port."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import ROOT
from dist_check import BARE, EXTRAS, NEEDS, content_faults, example_faults, examples, metadata_faults, settings, tracked
from oldest import bounds, constraints, imported

from transformer_ols import (
    ConjugateGradient,
    Gaussian,
    kernel_ridge,
    nist_problem,
    ols,
    solve,
    spectral_factor,
)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def as_repository(tree: Path) -> None:
    """The copy has no .git; make one, as the tool asks git what is tracked."""
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tree, check=True, capture_output=True)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), "utf8")


def checked(tree: Path, run: Run) -> list[str]:
    as_repository(tree)
    done = run(sys.executable, "tools/dist_check.py", "--dist-only", str(tree))
    assert done.returncode in (0, 1), done.stderr
    assert (done.returncode == 0) == (done.stdout == "sdist and wheel are complete\n")
    return done.stdout.splitlines()


# ---- sdist and wheel


def test_a_checkpoint_travels(tree: Path, run: Run) -> None:
    (tree / "transformer_ols" / "checkpoints").mkdir()
    for name in ("tiny.safetensors", "tiny.json"):
        (tree / "transformer_ols" / "checkpoints" / name).write_bytes(b"{}")
    assert checked(tree, run) == ["sdist and wheel are complete"]


def test_a_file_that_stays_behind_is_named(tree: Path, run: Run) -> None:
    edit(tree / "setup.py", '"*.mplstyle", ', "")
    edit(tree / "MANIFEST.in", "*.mplstyle *.json", "*.json")
    edit(tree / "settings.ini", " tqdm>=4.65", " tqdm>=4.65 pandas>=2.0")
    found = checked(tree, run)
    style = "transformer_ols/transformer_ols.mplstyle"
    assert f"wheel: {style} is missing; add it to package_data in setup.py" in found
    assert f"sdist: {style} is missing; add it to MANIFEST.in" in found
    assert "METADATA: the core requires pandas, which belongs into an extra" in found


def test_an_untracked_file_and_a_lost_requirement_are_named(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in tracked(ROOT, "transformer_ols"):
            archive.write(ROOT / name, name)
        archive.writestr("transformer_ols/notes.txt", "left over")
        archive.writestr("tests/test_x.py", "")
        lines = ["Requires-Python: >=3.10", "Requires-Dist: numpy>=1.26", "Requires-Dist: torch", "Provides-Extra: plot"]
        archive.writestr("transformer_ols-0.dist-info/METADATA", "\n".join(lines) + "\n\n")
    sdist = Path(shutil.make_archive(str(tmp_path / "x"), "gztar", ROOT, "LICENSE"))
    found = list(content_faults(wheel, sdist, ROOT))
    assert "wheel: transformer_ols/notes.txt is no tracked file of transformer_ols/" in found
    assert "wheel: tests/test_x.py is no tracked file of transformer_ols/" in found
    assert "sdist: transformer_ols/py.typed is missing; add it to MANIFEST.in" in found
    said = "\n".join(metadata_faults(wheel, ROOT))
    for part in ("does not require scipy", "does not require tqdm", "the extras are plot, not", "Requires-Python is >=3.10", "no LICENSE"):
        assert part in said


def test_every_extra_is_declared() -> None:
    assert {name.removesuffix("_requirements") for name in settings(ROOT) if name.endswith("_requirements")} == EXTRAS
    assert set(NEEDS.values()) <= EXTRAS


# ---- use


class Here:
    """This interpreter in place of the empty environment."""

    def __init__(self, desk: Path) -> None:
        self.desk = desk

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=self.desk, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("attention weights: 42 400", "attention weights: 42 401", "prints 'attention weights: 42 400', the page says"),
        ("import torch\nfrom sklearn", "import torche\nfrom sklearn", "No module named 'torche'"),
    ],
)
def test_a_readme_that_says_something_else_is_caught(tmp_path: Path, old: str, new: str, said: str) -> None:
    readme = (ROOT / "README.md").read_text("utf8")
    assert len(examples(readme)) == 2
    assert readme.count(old) == 1
    (found,) = example_faults(Here(tmp_path), readme.replace(old, new))
    assert found.startswith("README.md, example 1: ") and said in found


BLOCKED = "import sys\nfor extra in ('matplotlib', 'sklearn', 'statsmodels', 'pandas', 'sympy', 'fastcore'): sys.modules[extra] = None\n"


def test_without_extras_only_what_needs_them_is_missing_and_says_what_to_do(tmp_path: Path) -> None:
    pairs = [f"{module}={extra}" for module, extra in NEEDS.items()]
    done = Here(tmp_path).run("-c", BLOCKED + BARE, *pairs)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    without = Here(tmp_path).run("-c", BLOCKED + BARE)
    assert "transformer_ols.plots needs matplotlib: pip install 'transformer_ols[plot]'" in without.stdout
    unneeded = Here(tmp_path).run("-c", BARE, *pairs, "regression=plot")
    assert "transformer_ols.regression was to need [plot] and does not" in unneeded.stdout


# ---- the oldest versions


def test_lower_bounds_become_pins() -> None:
    lowest, pins = bounds(ROOT), constraints(ROOT).splitlines()
    assert {"numpy", "scipy", "torch", "safetensors", "tqdm", "scikit-learn", "matplotlib"} == set(lowest)
    assert all(f"{name}=={version}" in pins for name, version in lowest.items())
    names = [line.partition("==")[0] for line in pins]
    assert len(names) == len(set(names)) and "pytest" in names
    assert not {"pandas", "statsmodels"} & set(names)


def test_a_requirement_without_a_lower_bound_is_refused(tree: Path) -> None:
    edit(tree / "settings.ini", "scipy>=1.12", "scipy<2")
    with pytest.raises(SystemExit, match="scipy<2 must be written NAME>=X"):
        bounds(tree)


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text("import os.path\nfrom a.b import c\nfrom . import d\ndef f():\n    import e as g\n")
    assert imported(path) == {"os", "a", "e"}


# ---- short reprs


def test_reprs_are_short() -> None:
    x = torch.eye(4, dtype=torch.float64)[:, :2].expand(3, 4, 2) * torch.tensor([1.0, 2.0], dtype=torch.float64)
    y = torch.ones(3, 4, dtype=torch.float64)
    assert repr(ols(x[0], y[0])) == "LinearFit(coef=(2,), rank=2, condition=1, float64)"
    ranks = x.clone()
    ranks[1, :, 1] = 0
    assert repr(ols(ranks, y)) == "LinearFit(coef=(3, 2), rank=1 to 2, condition=1, float64)"
    assert repr(spectral_factor(x[0])) == "SpectralFactor(L=(2, 2), rank=2, condition=1, float64)"
    fit = repr(kernel_ridge(x.float(), y.float(), Gaussian(1.0), 1.0))
    assert re.fullmatch(r"KernelFit\(dual_coef=\(3, 4\), kernel=Gaussian\(bandwidth=1.0\), residual=\S+( to \S+)?, float32\)", fit)
    A = torch.eye(50, dtype=torch.float64)
    assert repr(solve(A, A[0], ConjugateGradient(), steps=3)).startswith("Solution(message='ConjugateGradient: ")
    assert len(repr(nist_problem("Longley"))) < 300


# ---- make serve


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_a_busy_port_is_one_clear_line() -> None:
    recipe = (ROOT / "Makefile").read_text("utf8").split("\nserve: book")[1].split("\n\n")[0].partition("\n")[2]
    makefile = f"BIN := {Path(sys.executable).parent}\nPORT ?= 8000\nserve:\n{recipe}\n"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(["make", "-s", "-f", "-", f"PORT={port}"], input=makefile, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert done.stdout == f"port {port} is busy; choose another: make serve PORT={port + 1}\n"
