"""What the test files share: one thread, and throw-away copies of the working tree for breaking things on purpose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "_build", "build", "dist", "*.egg-info", ".*cache", "__pycache__", ".hypothesis", "node_modules"
)

torch.set_num_threads(1)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the working tree that a test may break."""
    return Path(shutil.copytree(ROOT, tmp_path / "tree", ignore=LEFT_OUT))


@pytest.fixture
def run(tree: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of this environment inside the copy, the copy's own package first on the path."""

    def call(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        variables = {**os.environ, "PATH": path, "PYTHONPATH": str(tree), **environment}
        return subprocess.run(command, cwd=tree, env=variables, capture_output=True, text=True)

    return call
