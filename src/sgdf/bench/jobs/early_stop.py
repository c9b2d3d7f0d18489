"""When the rest of a grid is not begun: the first runs of all optimizers have failed alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from ..spec.run import Run
from ..store.run_folder import Store


def task_of(run: Run) -> str:
    """Return what names the task of a run, with its options."""
    return json.dumps(run.as_table()["task"], sort_keys=True)


def first_runs(runs: Iterable[Run]) -> dict[str, tuple[str, ...]]:
    """Return by task the keys of the runs that show whether the task works at all.

    They are the first run of each optimizer. If there is only one optimizer, they are its first
    two runs, because one failure alone may be that of a setting.
    """
    by_task: dict[str, list[Run]] = {}
    for run in runs:
        by_task.setdefault(task_of(run), []).append(run)
    chosen = {}
    for task, own in by_task.items():
        firsts = {run.optimizer.name: run.key for run in reversed(own)}
        keys = tuple(run.key for run in own if run.key in firsts.values())
        chosen[task] = keys if len(keys) > 1 else tuple(run.key for run in own[:2])
    return chosen


def common_failure(store: Store, keys: Sequence[str]) -> str | None:
    """Return the failure that several runs have in common; None if they have not all failed so."""
    if len(keys) < 2:
        return None
    common = store.folder(keys[0]).failure()
    alike = common is not None and all(store.folder(key).failure() == common for key in keys)
    return common if alike else None
