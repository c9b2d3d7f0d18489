"""Where a result comes from: the machine, the versions, and the source of what was trained."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...environment import environment
from ..catalog.optimizers import find_optimizer
from ..spec.run import Run
from ..store.identity import digest
from ..tasks import find_task

WATCHED = ("python", "torch", "sgdf", "task source", "optimizer source", "data")
"""What a run should have the same from its beginning to its end."""


def provenance(run: Run, data: str = "") -> dict[str, Any]:
    """Return all that a run's result depends on besides its spec.

    Args:
        run: which.
        data: a digest of its data, where they come from files that could be others.
    """
    known = {"data": data} if data else {}
    return {**environment(), "commit": commit(), **sources(run), **known}


def differences(entries: list[dict[str, Any]], current: dict[str, Any]) -> list[str]:
    """Return what the results of a run may hang on that was once another than it is now."""
    return [
        key
        for key in WATCHED
        if key in current and any(entry.get(key, current[key]) != current[key] for entry in entries)
    ]


def sources(run: Run) -> dict[str, str]:
    """Return digests of the files that define task and optimizer."""
    return {
        "task source": source_digest(find_task(run.task.name)),
        "optimizer source": source_digest(find_optimizer(run.optimizer.name)),
    }


def commit() -> str:
    """Return the commit of the working directory, with a + if files differ from it."""
    try:
        command = ["git", "describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def source_digest(target: Callable[..., Any]) -> str:
    """Return a digest of the file that defines ``target``; empty where there is none."""
    try:
        return digest(Path(inspect.getfile(target)).read_bytes())
    except (TypeError, OSError):
        return ""
