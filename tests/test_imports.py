"""The dependence rules of tools/imports.toml: the library keeps them, and each rule, broken on purpose in a small package, is caught."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from check_imports import check, read_table
from conftest import ROOT

CHAPTERS = ["00_checks", "02_kernels", "03_regression", "04_attention", "05_solvers", "06_plots", "10_ols_transformer", "32_probing"]


def test_the_library_keeps_the_rules() -> None:
    assert check(ROOT) == []


def test_every_module_of_the_library_is_read() -> None:
    table = read_table(ROOT)
    modules = {path.stem for path in (ROOT / "transformer_ols").glob("*.py")} - set(table.exempt)
    assert {"checks", "prompts", "kernels", "regression", "attention", "plots", "ols_transformer"} <= modules
    assert modules <= table.side.keys() & table.number.keys()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A package of empty modules under the project's own table and settings."""
    for folder in ("nbs", "transformer_ols", "tools"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "tools" / "imports.toml", tmp_path / "tools")
    shutil.copy(ROOT / "settings.ini", tmp_path)
    for name in CHAPTERS:
        (tmp_path / "nbs" / f"{name}.ipynb").touch()
        (tmp_path / "transformer_ols" / f"{name[3:]}.py").touch()
    return tmp_path


def write(root: Path, module: str, source: str) -> None:
    (root / "transformer_ols" / f"{module}.py").write_text(source)


ALLOWED = {
    "kernels": "import math\nfrom collections import abc\nimport torch.nn.functional as F\nfrom .checks import x",
    "attention": "from transformer_ols.checks import x\nfrom .kernels import y",
    "ols_transformer": "from . import attention\nimport transformer_ols.checks as c\nfrom importlib.resources import files",
    "solvers": "from .regression import ols\nimport scipy.linalg\nimport numpy as np",
    "plots": "import matplotlib.pyplot as plt\nfrom .checks import x",
    "probing": "from .regression import ols\nfrom .ols_transformer import OLSTransformer\nfrom safetensors.torch import load\nimport tqdm",
    "__init__": "from .attention import linear_attention\nfrom .regression import ols\nfrom .plots import curves\nimport sphinx",
    "__main__": "from .plots import curves",
    "_modidx": "from .plots import curves",
}


def test_what_is_allowed_passes(small: Path) -> None:
    for module, source in ALLOWED.items():
        write(small, module, source)
    assert check(small) == []


SIDES = "attention: line 1: imports regression (classical), but transformer may import only neutral, transformer"
BROKEN = {  # the module, what it holds, the fault
    "from the other side": ("attention", "from transformer_ols.regression import ols", SIDES),
    "relative": ("attention", "from .regression import ols", SIDES),
    "relative module": ("attention", "from . import regression", SIDES),
    "module with a new name": ("attention", "import transformer_ols.regression as r", SIDES),
    "from the package": ("attention", "from transformer_ols import regression", SIDES),
    "among others": ("attention", "from . import checks, regression", SIDES),
    "in a function": ("attention", "def f():\n    from .regression import ols\n    return ols", SIDES.replace("line 1", "line 2")),
    "for type checking": (
        "attention",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .regression import OLS",
        SIDES.replace("line 1", "line 3"),
    ),
    "in a try": (
        "attention",
        "try:\n    import transformer_ols.regression\nexcept ImportError:\n    pass",
        SIDES.replace("line 1", "line 2"),
    ),
    "import_module": ("attention", "m = importlib.import_module('transformer_ols.regression')", SIDES),
    "relative import_module": ("attention", "m = import_module('.regression', 'transformer_ols')", SIDES),
    "__import__": ("attention", "m = __import__('transformer_ols.regression')", SIDES),
    "computed name": ("attention", "m = import_module(f'transformer_ols.{name}')", "attention: line 1: imports by a computed name"),
    "classical from transformer": (
        "solvers",
        "from .attention import linear_attention",
        "solvers: line 1: imports attention (transformer), but classical may import only neutral, classical",
    ),
    "neutral from a side": (
        "kernels",
        "from .regression import ols",
        "kernels: line 1: imports regression (classical), but neutral may import only neutral",
    ),
    "a side from above": (
        "ols_transformer",
        "from .probing import probe",
        "ols_transformer: line 1: imports probing (above), but transformer",
    ),
    "plots from a module": (
        "attention",
        "from .plots import curves",
        "attention: line 1: imports plots (notebook_only), but transformer may",
    ),
    "plots from above": (
        "probing",
        "from .plots import curves",
        "probing: line 1: imports plots (notebook_only), but above may import only",
    ),
    "plots from a side": (
        "plots",
        "from .regression import ols",
        "plots: line 1: imports regression (classical), but notebook_only may import",
    ),
    "higher number": (
        "attention",
        "from .ols_transformer import OLSTransformer",
        "attention: line 1: imports ols_transformer (10), but only lower numbers than its own 04 are allowed",
    ),
    "itself": ("attention", "import transformer_ols.attention", "attention: line 1: imports attention (04), but only lower numbers"),
    "neutral higher number": ("checks", "from .kernels import Gaussian", "checks: line 1: imports kernels (02), but only lower numbers"),
    "whole package": ("attention", "import transformer_ols", "attention: line 1: imports transformer_ols, which is no module of the table"),
    "public name of the package": (
        "attention",
        "from transformer_ols import ols",
        "attention: line 1: imports transformer_ols.ols, which is no",
    ),
    "everything": (
        "attention",
        "from transformer_ols import *",
        "attention: line 1: imports transformer_ols.*, which is no module of the table",
    ),
    "stranger": (
        "attention",
        "import pandas",
        "attention: line 1: imports pandas, neither a core requirement of settings.ini nor an extra",
    ),
    "stranger in a function": ("kernels", "def f():\n    from sklearn import svm", "kernels: line 2: imports sklearn, neither a core"),
    "another's extra": ("kernels", "import matplotlib.pyplot", "kernels: line 1: imports matplotlib, neither a core requirement"),
    "unknown module": ("utils", "", "utils: is on no side; name it in tools/imports.toml"),
    "module without a notebook": ("memory", "", "memory: has no notebook of its name, nbs/NN_memory.ipynb"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_broken_rule_is_caught(small: Path, case: str) -> None:
    module, source, message = BROKEN[case]
    write(small, module, source)
    (fault,) = check(small)
    assert fault.startswith(f"transformer_ols.{message}")


def test_a_module_in_a_subfolder_needs_a_side_too(small: Path) -> None:
    (small / "transformer_ols" / "more").mkdir()
    (small / "transformer_ols" / "more" / "__init__.py").touch()
    (small / "transformer_ols" / "more" / "attention.py").touch()
    assert [fault.split(": ")[0] for fault in check(small)] == ["transformer_ols.more.__init__", "transformer_ols.more.attention"]


def test_an_exception_is_for_one_module_only(small: Path) -> None:
    for name in ("20_bounds", "22_richardson_transformer"):
        (small / "nbs" / f"{name}.ipynb").touch()
        write(small, name[3:], "")
    write(small, "richardson_transformer", "from .bounds import depth_for")
    assert check(small) == []
    write(small, "richardson_transformer", "from .regression import ols")
    assert "imports regression (classical)" in check(small)[0]


def test_an_empty_package_fails(small: Path) -> None:
    shutil.rmtree(small / "transformer_ols")
    assert check(small) == ["transformer_ols: no modules; run `make export`"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('neutral = ["checks", ', 'neutral = ["checks", "regression", ', "regression stands on two sides, neutral and classical"),
        ('above = ["neutral", ', 'over = ["neutral", ', "must name the same sides, only one has above, over"),
    ],
)
def test_a_wrong_table_is_refused(small: Path, old: str, new: str, message: str) -> None:
    path = small / "tools" / "imports.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(SystemExit, match=message):
        check(small)


def test_the_command_on_the_real_library_and_on_a_sabotaged_copy(tree: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "check_imports.py"), str(tree)]
    good = subprocess.run(command, capture_output=True, text=True)
    assert good.returncode == 0, good.stdout
    with (tree / "transformer_ols" / "attention.py").open("a") as module:
        module.write("\ndef shortcut(x, y):\n    from transformer_ols.regression import ols\n    return ols(x, y)\n")
    bad = subprocess.run(command, capture_output=True, text=True)
    assert bad.returncode == 1
    assert "transformer_ols.attention: line" in bad.stdout
    assert "imports regression (classical), but transformer may import only neutral, transformer" in bad.stdout
