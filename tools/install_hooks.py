"""Set up a clone for work on notebooks: `python tools/install_hooks.py [--venv .venv]`, or `make hooks`.

* a merge driver, which `.gitattributes` names: conflicting notebooks keep opening, with both versions of a cell side by side;
* a check before every commit: pre-commit's if it is installed, else a plain git hook that runs the same make targets.

Only this clone's `.git` is written.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

MARK = "# written by make hooks"
HOOK = f"""#!/bin/sh
{MARK}
exec make -s VENV="%s" style check
"""


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()


def merge_driver(folder: Path) -> str:
    """Tell git how to merge notebooks, with the environment's own nbdev."""
    git("config", "merge.nbdev-merge.name", "merge notebooks cell by cell")
    git("config", "merge.nbdev-merge.driver", f"'{folder / 'nbdev_merge'}' %O %A %B %P")
    return "notebooks: merged by nbdev_merge"


def before_commit(venv: str) -> str:
    """Install pre-commit's hook, or a plain one; a hook of somebody else's is left alone."""
    path = Path(git("rev-parse", "--git-path", "hooks")) / "pre-commit"
    if shutil.which("pre-commit"):
        subprocess.run(["pre-commit", "install"], check=True, stdout=subprocess.DEVNULL)
        return "before a commit: pre-commit runs .pre-commit-config.yaml"
    if path.exists() and MARK not in path.read_text("utf8"):
        return f"before a commit: left your own {path}; add to it: make -s style check"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HOOK % venv, "utf8")
    path.chmod(0o755)
    return "before a commit: make style check"


def main() -> int:
    parser = argparse.ArgumentParser(description="Install the notebook merge driver and the check before commits in this clone.")
    parser.add_argument("--venv", default=".venv", help="the environment, as make knows it")
    venv = parser.parse_args().venv
    if not Path(".git").exists():
        print("not a git clone, so there are no hooks to install: git clone the repository, or git init")
        return 1
    print(merge_driver(Path(os.path.abspath(sys.executable)).parent))
    print(before_commit(venv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
