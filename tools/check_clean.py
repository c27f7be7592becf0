"""Check that the notebooks carry no outputs or stray metadata, and that the library is exactly what they export.

    python tools/check_clean.py [ROOT]

A copy is cleaned and exported afresh and compared with what is there; the working tree is only read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "transformer_ols"
CURES = (
    ("nbs", ".ipynb", "not clean: run `make clean`"),
    (PACKAGE, ".py", "not what the notebooks export: run `make export`"),
)
HANDWRITTEN = {"__init__.py", "__main__.py"}
IGNORED = shutil.ignore_patterns("__pycache__", ".last_checked", ".ipynb_checkpoints")


def run(command: str, folder: Path) -> None:
    """Run one of nbdev's commands from the interpreter's own folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(command.split(), cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command} failed:\n{done.stdout}{done.stderr}")


def files(folder: Path, suffix: str) -> dict[str, bytes]:
    """Relative path to content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix == suffix and not {"__pycache__", ".ipynb_checkpoints"} & set(path.parts)
    }


def differences(root: Path) -> list[str]:
    """What is unclean or out of step, one line each."""
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        for name in ("nbs", PACKAGE):
            shutil.copytree(root / name, fresh / name, ignore=IGNORED)
        for name in ("settings.ini", "pyproject.toml"):
            shutil.copy(root / name, fresh / name)
        for path in (fresh / PACKAGE).rglob("*.py"):
            if path.name not in HANDWRITTEN:
                path.unlink()
        run("nbdev_clean --clear_all", fresh)
        run("nbdev_export", fresh)
        found = []
        for folder, suffix, cure in CURES:
            here, there = files(root / folder, suffix), files(fresh / folder, suffix)
            found += [f"{folder}/{name}: {cure}" for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)]
        if (root / "pyproject.toml").read_bytes() != (fresh / "pyproject.toml").read_bytes():
            found.append("pyproject.toml: not what settings.ini says: run `make export`")
    return found


if __name__ == "__main__":
    problems = differences(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve())
    print("\n".join(problems) if problems else "notebooks clean, library = notebooks")
    sys.exit(bool(problems))
