"""Where a result comes from: the machine, the versions, and the source of what was trained."""

from __future__ import annotations

import subprocess
from typing import Any

from ..environment import environment
from .objects import source_digest
from .optimizers import find_optimizer
from .spec import Run
from .tasks import find_task

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
