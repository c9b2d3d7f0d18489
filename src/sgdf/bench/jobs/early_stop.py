"""When the rest of a grid is not begun: the first runs of all optimizers have failed alike."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence

from ..errors import StoreError
from ..spec.run import Run
from ..store.run_folder import Store


class EarlyStop:
    """Which runs are not begun: those of a task whose first runs failed alike.

    A result of any run shows that the task works. The runs of a task are searched for one when its
    first runs have failed, and not again for each run: there may be thousands.

    Args:
        store: where the runs are kept.
        runs: those that may have a result.
        first_runs: by task, the keys of the runs that decide about the others.
    """

    def __init__(
        self, store: Store, runs: Iterable[Run], first_runs: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.store, self.runs, self.first_runs = store, tuple(runs), first_runs
        self._stopped: dict[str, bool] = {}

    def holds_back(self, run: Run) -> bool:
        """Return whether a run is not begun because the first runs of its task failed alike."""
        task = task_of(run) if self.first_runs else ""
        deciding = self.first_runs.get(task, ())
        if run.key in deciding:
            return False
        if task not in self._stopped:
            if common_failure(self.store, deciding) is None:
                return False
            own = (other.key for other in self.runs if task_of(other) == task)
            self._stopped[task] = not any(map(self._has_result, own))
        return self._stopped[task]

    def _has_result(self, key: str) -> bool:
        with contextlib.suppress(StoreError):
            return self.store.folder(key).progress().has_result
        return False


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
