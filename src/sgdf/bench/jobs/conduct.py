"""How a command carries out a job: look how far the runs are, prepare, work, look again.

The state of a run with a result is asked once: its metrics are read and hashed for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ..errors import SpecError, StoreError
from ..spec.run import Experiment, Run
from ..store.files import store_errors
from ..store.records import RunTable
from ..store.run_folder import State, Store
from ..training.ranks import Ranks
from . import ray_cluster
from .early_stop import task_of
from .events import Display, Event
from .job import TO_DO, Job
from .local import Workers
from .plan import Plan, prepare_data
from .provenance import differences, sources
from .signals import AFTER_STEP, OTHERS, Stop

AHEAD_SECONDS = 0.5
"""So long, before the first run and after each one, folders are made that other processes see."""


@dataclass(frozen=True)
class Crew:
    """The processes that share a job: this one alone, worker processes, or a Ray cluster.

    Attributes:
        workers: how many processes on this machine.
        ray: the address of a Ray cluster, which takes the place of workers.
    """

    workers: int = 1
    ray: str | None = None

    def check(self, ranks: Ranks) -> None:
        """Raise if the options contradict each other, or the cluster cannot be reached.

        Raises:
            SpecError: names the option that does not fit.
        """
        if ranks.count > 1 and self.workers > 1:
            raise SpecError("--workers: must be 1 under torchrun")
        if self.ray and self.workers > 1:
            raise SpecError("--ray: does not go with --workers")
        if self.ray:
            ray_cluster.check(self.ray)
        if self.ray and ranks.count > 1:
            raise SpecError("--ray: cannot be started with torchrun")

    @property
    def is_elsewhere(self) -> bool:
        """Whether the runs are trained on other machines, which may have other devices."""
        return self.ray is not None

    @property
    def threads(self) -> int:
        """How many threads a run gets if its file does not say."""
        return 1 if self.ray else max(1, torch.get_num_threads() // self.workers)

    @property
    def stop_answer(self) -> str:
        """What to say when a stop is asked for."""
        return OTHERS if self.ray or self.workers > 1 else AFTER_STEP

    def work(self, job: Job, display: Display, stop: Stop) -> None:
        """Work on a job until nothing is left to do or ``stop`` is set."""
        if self.ray:
            ray_cluster.RayWorkers(job, self.ray, display).work(stop)
        elif self.workers > 1:
            Workers(job, self.workers, display).work(stop)
        else:
            job.work(display, stop)


@dataclass(frozen=True)
class Conduct:
    """A plan that is carried out, and the state that each of its runs had before.

    Attributes:
        plan: the runs, and where they are kept.
        experiment: where they come from; its name and what it is about are kept beside the runs.
    """

    plan: Plan
    experiment: Experiment | None = None

    @cached_property
    def store(self) -> Store:
        """Where the runs are kept."""
        return Store(self.plan.store)

    @cached_property
    def states(self) -> dict[str, State]:
        """The state of each run before the work, by key."""
        return self.store.states(self.plan.keys)

    @property
    def with_result(self) -> list[Run]:
        """The runs that had a result before the work."""
        return [run for run in self.plan.runs if self.states[run.key].has_result]

    @property
    def without_result(self) -> Plan:
        """The plan of the other runs.

        A task with a result works: no failures of its first runs hold back its other runs.
        """
        runs = tuple(run for run in self.plan.runs if not self.states[run.key].has_result)
        works = {task_of(run) for run in self.with_result} if self.plan.first_runs else set()
        deciding = {t: keys for t, keys in self.plan.first_runs.items() if t not in works}
        return dataclasses.replace(self.plan, runs=runs, first_runs=deciding)

    @cached_property
    def failed(self) -> list[Run]:
        """The runs that had failed before the work."""
        return [run for run in self.plan.runs if self.states[run.key] is State.FAILED]

    @cached_property
    def changed(self) -> frozenset[str]:
        """The keys of failed runs whose task or optimizer had another source when they failed."""
        others = runs_of_other_sources(
            self.failed, lambda key: [self.store.folder(key).failed_sources()]
        )
        return frozenset(run.key for run in others)

    def retried(self, retry: bool) -> frozenset[str]:
        """Return the keys of the failed runs that are tried again; with ``retry``, all of them."""
        return frozenset(run.key for run in self.failed) if retry else self.changed

    def to_do(self, retry: bool) -> list[Run]:
        """Return the runs that will be trained; with ``retry``, all failed ones too."""
        retried = self.retried(retry)
        return [
            run for run in self.plan.runs if self.states[run.key] in TO_DO or run.key in retried
        ]

    def prepare(self, retry: bool) -> None:
        """Prepare the data of the runs without a result, and the folders of as many runs as it can.

        The folders of a large grid would take longer than the first run should wait: the others
        are made whenever a run has ended, and each one at the latest when its run is due.

        Raises:
            SpecError: if an option of a task is invalid.
            StoreError: if data are missing and cannot be downloaded.
        """
        retried = self.retried(retry)
        prepare_data(
            run
            for run in self.plan.runs
            # A process that trains a run may die: then it is this one's to train.
            if self.states[run.key] in (*TO_DO, State.RUNNING) or run.key in retried
        )
        with store_errors(self.plan.store):
            self.plan.store.mkdir(parents=True, exist_ok=True)
        for key in retried:
            with contextlib.suppress(StoreError):  # it is reported when its run is due
                self.store.folder(key).clear_failure()
        if self.experiment is not None:
            with contextlib.suppress(StoreError):  # a report can do without it
                self.store.add_experiment(self.experiment.name, self.experiment.about)
        self._prepare_folders(self._waiting, AHEAD_SECONDS)

    def _prepare_folders(self, runs: Iterator[Run], seconds: float) -> None:
        """Prepare the folders of runs, where the last call ended, for some seconds.

        A folder that cannot be used is reported when its run is due; that of a run with a result
        may be read-only.
        """
        end = time.monotonic() + seconds
        for run in runs:
            with contextlib.suppress(StoreError):
                self.store.folder(run.key).prepare(run.as_table())
            if time.monotonic() > end:
                return

    @cached_property
    def _waiting(self) -> Iterator[Run]:
        return iter(self.without_result.runs)

    def work(self, crew: Crew, display: Display, stop: Stop) -> None:
        """Train the runs without a result; mend the tables of the others."""
        ranks = Ranks()

        def show(run: str, event: Event) -> None:
            display(run, event)
            if event["event"] == "end" and ranks.rank == 0 and not stop.is_set():
                self._prepare_folders(self._waiting, AHEAD_SECONDS)

        # Under torchrun all ranks have to take the same runs, whenever each of them looked.
        plan = self.plan if ranks.count > 1 else self.without_result
        if plan.runs:
            crew.work(plan, show, stop)
        if ranks.rank == 0 and not stop.is_set():
            self._prepare_folders(iter(self.with_result), math.inf)

    def states_now(self) -> dict[str, State]:
        """Return the state of each run now, by key."""
        return {**self.states, **self.store.states(self.without_result.keys)}

    def runs_not_begun(self, states: Mapping[str, State]) -> int:
        """Return how many runs wait because the first runs of their task have failed alike."""
        waiting = (run for run in self.plan.runs if states[run.key] in TO_DO)
        return sum(map(self.plan.early_stop().holds_back, waiting))


def count_other_threads(conduct: Conduct) -> dict[int, int]:
    """Return how many runs with a result are the same but for their threads, by these."""
    wanted = {_without_threads(run.as_table()) for run in conduct.plan.runs}
    own = set(conduct.plan.keys)
    others = (folder for folder in conduct.store.folders() if folder.key not in own)
    tables = [folder.table() for folder in others if folder.result() is not None]
    return Counter(
        table["train"]["threads"] for table in tables if table and _without_threads(table) in wanted
    )


def _without_threads(table: RunTable) -> str:
    train = {key: value for key, value in table["train"].items() if key != "threads"}
    return json.dumps({**table, "train": train}, sort_keys=True)


def count_other_sources(store: Store, runs: Sequence[Run]) -> int:
    """Return how many runs were made with another source of their task or optimizer than now."""
    others = runs_of_other_sources(runs, lambda key: store.folder(key).environments())
    return sum(1 for _ in others)


def runs_of_other_sources(
    runs: Iterable[Run], recorded: Callable[[str], list[dict[str, Any]]]
) -> Iterator[Run]:
    """Yield the runs whose task or optimizer had another source than now.

    Args:
        runs: the runs; the source of each task and optimizer is read once for all of them.
        recorded: returns what was recorded of the run with a key.
    """
    now: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        names = run.task.name, run.optimizer.name
        if names not in now:
            now[names] = sources(run)
        with contextlib.suppress(StoreError):  # of a run without a record nothing is known
            if differences(recorded(run.key), now[names]):
                yield run
