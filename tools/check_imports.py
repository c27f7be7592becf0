"""Check that every module imports only what tools/imports.toml allows; one line per fault, exit 1 if there is any.

    python tools/check_imports.py [ROOT]

The modules' syntax trees are read, nothing is imported: an import inside a function, under `TYPE_CHECKING` or by `import_module` counts
like any other.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DYNAMIC = {"import_module", "__import__"}


@dataclass(frozen=True)
class Table:
    """What imports.toml, settings.ini and the notebooks' numbers say."""

    package: str
    side: dict[str, str]
    may_import: dict[str, list[str]]
    exceptions: dict[str, list[str]]
    extras: dict[str, list[str]]
    exempt: list[str]
    core: set[str]
    number: dict[str, int]


@dataclass(frozen=True)
class Import:
    """One imported module by its full dotted name, `None` if the name is computed, and its line."""

    name: str | None
    line: int


def read_table(root: Path) -> Table:
    """Read the table; a module on two sides, or a side without a rule, is an error of the table."""
    raw: dict[str, Any] = tomllib.loads((root / "tools" / "imports.toml").read_text("utf8"))
    config = ConfigParser(delimiters=["="])
    config.read(root / "settings.ini", encoding="utf-8")
    meta = config["DEFAULT"]
    side: dict[str, str] = {}
    for name, modules in raw["sides"].items():
        for module in modules:
            if module in side:
                raise SystemExit(f"tools/imports.toml: {module} stands on two sides, {side[module]} and {name}; name it once")
            side[module] = name
    if missing := raw["sides"].keys() ^ raw["may_import"].keys():
        raise SystemExit(
            f"tools/imports.toml: [sides] and [may_import] must name the same sides, only one has {', '.join(sorted(missing))}"
        )
    core = {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in meta["requirements"].split()}
    numbers = (re.fullmatch(r"(\d+)_(\w+)", path.stem) for path in (root / meta["nbs_path"]).glob("*.ipynb"))
    number = {match[2]: int(match[1]) for match in numbers if match}
    return Table(meta["lib_path"], side, raw["may_import"], raw["exceptions"], raw["extras"], raw["exempt"]["modules"], core, number)


def imports(tree: ast.AST, package: str) -> Iterator[Import]:
    """Every import of a syntax tree, wherever it stands; relative names are made absolute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(filter(None, [package if node.level else "", node.module]))
            names = [f"{base}.{alias.name}" for alias in node.names] if base == package else [base]
            yield from (Import(name, node.lineno) for name in names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in DYNAMIC:
            argument = node.args[0] if node.args else None
            name = argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None
            yield Import(package + name if name and name.startswith(".") else name, node.lineno)


def fault(module: str, item: Import, table: Table) -> str | None:
    """The rule that an import of `module` breaks, if any."""
    if item.name is None:
        return "imports by a computed name; name the module"
    top, _, rest = item.name.partition(".")
    if top != table.package:
        allowed = top in sys.stdlib_module_names or top in table.core or top in table.extras.get(module, [])
        return None if allowed else f"imports {top}, neither a core requirement of settings.ini nor an extra of {module}"
    target = rest.partition(".")[0]
    if target not in table.side:
        return f"imports {item.name}, which is no module of the table; import names from the module that defines them"
    ours, theirs = table.side[module], table.side[target]
    if theirs not in table.may_import[ours] and target not in table.exceptions.get(module, []):
        return f"imports {target} ({theirs}), but {ours} may import only {', '.join(table.may_import[ours])}"
    if table.number.get(target, -1) >= table.number[module]:
        return f"imports {target} ({table.number[target]:02}), but only lower numbers than its own {table.number[module]:02} are allowed"
    return None


def module_faults(path: Path, module: str, table: Table) -> Iterator[str]:
    """The faults of one module."""
    if module not in table.side:
        yield "is on no side; name it in tools/imports.toml"
    elif module not in table.number:
        yield f"has no notebook of its name, nbs/NN_{module}.ipynb"
    else:
        for item in imports(ast.parse(path.read_text("utf8")), table.package):
            if found := fault(module, item, table):
                yield f"line {item.line}: {found}"


def check(root: Path = ROOT) -> list[str]:
    """Every import that is not allowed, one line each."""
    table = read_table(root)
    package = root / table.package
    paths = [path for path in sorted(package.rglob("*.py")) if path.relative_to(package).with_suffix("").as_posix() not in table.exempt]
    names = [".".join(path.relative_to(package).with_suffix("").parts) for path in paths]
    found = [
        f"{table.package}.{name}: {text}" for path, name in zip(paths, names, strict=True) for text in module_faults(path, name, table)
    ]
    return found if paths else [f"{table.package}: no modules; run `make export`"]


if __name__ == "__main__":
    problems = check(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT)
    print("\n".join(problems) if problems else "every module imports only what tools/imports.toml allows")
    sys.exit(bool(problems))
