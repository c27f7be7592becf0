"""Run the library's tests under the oldest versions that settings.ini allows; exit 1 if they fail.

    python tools/oldest.py [--list] [ROOT]

Each lower bound `>=X` of the core and of the extras plot and sklearn becomes `==X`; everything else is as in constraints.txt, except pandas
and statsmodels, peers in some tests, which must fit the old NumPy. Test files that import more (the tools, the book) are left out, by name.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from dist_check import ROOT, Reader, build, clean, copy_tracked, settings

TESTING = ["pytest", "pytest-xdist", "hypothesis", "statsmodels"]
FREE = {"pandas", "statsmodels"}
WARNINGS = "error\nignore::DeprecationWarning:matplotlib"  # an old matplotlib calls a new pyparsing by old names
FIND = "import importlib.util as u, json, sys; print(json.dumps([n for n in sys.argv[1:] if u.find_spec(n) is None]))"


def bounds(root: Path) -> dict[str, str]:
    """Package to lower bound; a requirement without one is an error."""
    meta = settings(root)
    found = {}
    for requirement in " ".join(meta[f"{part}requirements"] for part in ("", "plot_", "sklearn_")).split():
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement)
        if not match:
            raise SystemExit(f"settings.ini: {requirement} must be written NAME>=X")
        found[match[1]] = match[2]
    return found


def constraints(root: Path) -> str:
    """constraints.txt with the lower bounds in place of the pins."""
    lowest = bounds(root)
    pins = [line for line in (root / "constraints.txt").read_text("utf8").splitlines() if "==" in line]
    kept = [line for line in pins if line.partition("==")[0] not in lowest.keys() | FREE]
    return "\n".join([*(f"{name}=={version}" for name, version in lowest.items()), *kept]) + "\n"


def imported(path: Path) -> set[str]:
    """The top names of everything that a file imports, wherever."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def chosen(reader: Reader, root: Path) -> tuple[list[str], list[str]]:
    """Test files that this environment can import, and why the others are left out."""
    neighbours = {path.stem for path in (root / "tests").glob("*.py")}
    run, left = [], []
    for path in sorted((root / "tests").glob("test_*.py")):
        missing = json.loads(reader.run("-c", FIND, *sorted(imported(path) - neighbours)).stdout)
        if missing:
            left.append(f"left out: {path.name}, which imports {', '.join(missing)}")
        else:
            run.append(f"tests/{path.name}")
    return run, left


def main() -> int:
    """Install, choose, run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, metavar="ROOT", help="the checkout, by default this one")
    parser.add_argument("--list", action="store_true", help="print the versions and stop")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    print("oldest versions:", ", ".join(f"{name} {version}" for name, version in bounds(root).items()), flush=True)
    if arguments.list:
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        source, pins = copy_tracked(root, folder / "tree"), folder / "oldest.txt"
        pins.write_text(constraints(root))
        wheel = build(source, folder / "wheel", "wheel")
        reader = Reader(folder)
        reader.install("torch", constraints=pins)
        reader.install(f"{wheel}[plot,sklearn]", *TESTING, constraints=pins)
        files, left = chosen(reader, source)
        print("\n".join(left), flush=True)
        if not files:
            raise SystemExit("no test file is left; was the package installed?")
        command = [str(reader.environment / "bin" / "pytest"), "-n", "2", "-o", f"filterwarnings={WARNINGS}", *files]
        return subprocess.run(command, cwd=source, env=clean(reader.environment)).returncode


if __name__ == "__main__":
    sys.exit(main())
