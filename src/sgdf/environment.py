"""The machine and the versions that a measurement depends on."""

from __future__ import annotations

import importlib.util
import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

from . import __version__
from .optim.native.step import native_status


def environment() -> dict[str, str]:
    """Return the machine, the versions and the date to record beside a measurement.

    Nothing is built: "native step" is "built" once this process has used it.
    """
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
        "native step": native_status(),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
