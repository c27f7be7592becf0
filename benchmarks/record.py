"""What every benchmark records: the machine, without names of hosts, and the figures, written in one piece."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import torch

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    """What the figures depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text("utf8").splitlines() if cpuinfo.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def write(path: Path, **record: object) -> None:
    """Write a record, the machine first, so that an interrupted run leaves the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"machine": machine(), **record}, indent=1) + "\n", "utf8")
    part.replace(path)
