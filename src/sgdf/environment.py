"""The machine and the versions that a figure needs beside it."""

from __future__ import annotations

import importlib.util
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

from . import __version__
from .optim.native.step import native_fault


def environment() -> dict[str, str]:
    """Return the machine, versions and date that a figure needs beside it."""
    libraries = ("torch", "pytorch_optimizer")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu_name(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "system": platform.system(),
        "python": platform.python_version(),
        "sgdf": __version__,
        **{name: metadata.version(name) for name in libraries if importlib.util.find_spec(name)},
        "native step": native_fault() or "built",
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
