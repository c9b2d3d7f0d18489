"""The origin of a result: the machine, the versions, and the source of task and optimizer."""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...environment import environment
from ..catalog.optimizers import find_optimizer
from ..errors import first_line, is_users_own
from ..spec.run import Run
from ..store.identity import digest
from ..tasks import Task, find_trained
from ..tasks.function import TrainingFunction
from .function_source import function_digest
from .imported_source import imported_files

WATCHED = (
    *("python", "torch", "sgdf"),
    *("task source", "imported source", "optimizer source", "data"),
)
"""Entries that should not change between the attempts of one run."""


def provenance(run: Run, task: Task | None = None) -> dict[str, Any]:
    """Return everything that a run's result depends on besides its table.

    Args:
        run: the run.
        task: its task, with its data; a function that trains by itself has none.
    """
    facts = sources(run)
    if task is not None:
        facts |= {"data": str(task.digest)} if task.digest else {}
        facts |= _data_facts(task)
    return {**environment(), "commit": commit(), **facts}


def _data_facts(task: Task) -> dict[str, str]:
    """Return what a task says about its data, as text; an error of a user's task instead."""
    try:
        return {str(name): str(value) for name, value in task.describe_data().items()}
    except Exception as error:  # which costs a check of the report, and should cost no training
        return {"describe_data": first_line(error)}


def differences(entries: list[dict[str, Any]], current: dict[str, Any]) -> list[str]:
    """Return which watched entries differ from those of an earlier attempt."""
    return [
        key
        for key in current
        if (key in WATCHED or key.startswith("data of "))
        and any(entry.get(key, current[key]) != current[key] for entry in entries)
    ]


def sources(run: Run) -> dict[str, str]:
    """Return digests of the files that define task and optimizer; of a function, its own code.

    The files that the user's own task imports from its folder have a digest of their own: earlier
    versions did not record it, and it must not make their runs differ from today's.
    """
    task = find_trained(run.task.name)
    is_function = isinstance(task, TrainingFunction)
    defined: Callable[..., Any] = task.call if isinstance(task, TrainingFunction) else task
    imported = imported_digest(defined)
    return {
        "task source": (function_digest(defined) if is_function else "") or source_digest(defined),
        **({"imported source": imported} if imported else {}),
        "optimizer source": source_digest(find_optimizer(run.optimizer.name)),
    }


def commit() -> str:
    """Return the commit of the working directory, with a + if files differ from it."""
    try:
        head = _ask_git("rev-parse", "--verify", "--quiet", "HEAD")
        return head and head + "+" * bool(_ask_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _ask_git(*arguments: str) -> str:
    """Return the answer of git, which writes nothing.

    A lock on its index would stay if this process were killed, and stop the user's own commands.
    """
    command = ["git", "--no-optional-locks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip()


def source_digest(target: Callable[..., Any]) -> str:
    """Return a digest of the file that defines ``target``; empty where there is none."""
    try:
        return digest(Path(inspect.getfile(target)).read_bytes())
    except (TypeError, OSError):
        return ""


def imported_digest(target: Callable[..., Any]) -> str:
    """Return a digest of what the file of ``target`` imports from its folder, if it is the user's.

    It is empty if the file imports nothing from there.
    """
    try:
        file = Path(inspect.getfile(target))
        paths = imported_files(file) if is_users_own(str(file)) else []
        return digest(b"\0".join(path.read_bytes() for path in paths)) if paths else ""
    except (TypeError, OSError):
        return ""
