"""The package as a whole: what it re-exports, how light it is, and that its metadata agree."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from configparser import ConfigParser

import pytest
from conftest import ROOT

import transformer_ols

OWN_NAMESPACE = {"checks", "plots"}  # helpers, used under their module's name
MODULES = {path.stem for path in (ROOT / "transformer_ols").glob("[!_]*.py")} - OWN_NAMESPACE


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_every_public_name_is_re_exported() -> None:
    public = {module: set(importlib.import_module(f"transformer_ols.{module}").__all__) for module in MODULES}
    assert {module: set(names) for module, names in transformer_ols._PUBLIC.items()} == public


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "transformer_ols" / "__init__.py").read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = [(node.module, alias.asname) for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(seen) == sorted((module, name) for module, names in transformer_ols._PUBLIC.items() for name in names)


def test_names_are_what_their_modules_define() -> None:
    for module, names in transformer_ols._PUBLIC.items():
        for name in names:
            assert getattr(transformer_ols, name) is getattr(importlib.import_module(f"transformer_ols.{module}"), name)
    assert set(transformer_ols.__all__) <= set(dir(transformer_ols))
    with pytest.raises(AttributeError, match="has no attribute 'olz'"):
        _ = transformer_ols.olz


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = python("import sys, transformer_ols; print(*sorted(sys.modules))").split()
    assert not {"torch", "numpy", "scipy", "matplotlib"} & set(loaded)


def test_a_star_import_needs_no_extra() -> None:
    code = (
        "import sys\n"
        "for extra in ('matplotlib', 'sklearn', 'statsmodels', 'pandas', 'sympy', 'fastcore'): sys.modules[extra] = None\n"
        "from transformer_ols import *\nprint(ols.__name__, OLSTransformer.__name__)"
    )
    assert python(code) == "ols OLSTransformer"


def test_the_version_is_that_of_settings() -> None:
    config = ConfigParser(delimiters=["="])
    config.read(ROOT / "settings.ini")
    assert transformer_ols.__version__ == config["DEFAULT"]["version"]
