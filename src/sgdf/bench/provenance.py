"""Where a result comes from: the machine, the versions, and the source of what was trained."""

from __future__ import annotations

import subprocess
from typing import Any

from ..environment import environment
from .objects import source_digest
from .optimizers import find_optimizer
from .spec import Run
from .store import RunFolder
from .tasks import find_task


def provenance(run: Run) -> dict[str, Any]:
    """Return all that a run's result depends on besides its spec."""
    return {**environment(), "commit": commit(), **sources(run)}


def outdated(run: Run, folder: RunFolder) -> bool:
    """Return whether the source of task or optimizer has changed since the run was done."""
    current = sources(run)
    return any(
        entry.get(key, digest) != digest
        for entry in folder.environments()[-1:]
        for key, digest in current.items()
    )


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
