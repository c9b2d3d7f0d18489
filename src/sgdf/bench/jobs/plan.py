"""The job of an experiment: its runs, one after another."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import SpecError, StoreError, first_line
from ..spec.read import read_runs
from ..spec.run import ProbeSpec, Run
from ..store.files import store_errors
from ..store.records import Table
from ..store.run_folder import State, Store
from ..tasks import find_trained
from ..tasks.function import TrainingFunction
from ..training.ranks import Ranks, uses_cuda
from .early_stop import EarlyStop, task_of
from .events import Display, End
from .job import TO_DO, job_line
from .run_one import run_one
from .signals import Stop


@dataclass(frozen=True)
class Plan:
    """The runs to do, and the store that keeps them.

    Attributes:
        runs: in the order in which they are begun.
        store: the folder that keeps them.
        checkpoint_every: seconds between checkpoints.
        probes: probes that look at the gradients of each run.
        first_runs: by task, the runs after which the others are not begun if all of these failed
            alike (see ``early_stop``); without an entry, every run is tried.
    """

    runs: tuple[Run, ...]
    store: Path
    checkpoint_every: float = 60.0
    probes: tuple[ProbeSpec, ...] = ()
    first_runs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def prepare(self, retry: Collection[str] = ()) -> None:
        """Prepare the folder and the data of every run.

        A folder that cannot be used is reported when its run is due.

        Args:
            retry: the keys of the failed runs that are to be tried again.

        Raises:
            SpecError: if an option of a task is invalid.
            StoreError: if data are missing and cannot be downloaded.
        """
        store = Store(self.store)
        here = (*TO_DO, State.RUNNING)  # a run of another process too: that process may die
        prepare_data(
            run for run in self.runs if run.key in retry or store.folder(run.key).state() in here
        )
        with store_errors(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        for run in self.runs:
            folder = store.folder(run.key)
            with contextlib.suppress(StoreError):
                folder.prepare(run.as_table())
                if run.key in retry:
                    folder.clear_failure()

    @property
    def threads(self) -> int:
        """The largest number of threads that one of the runs needs."""
        return max(run.train.threads for run in self.runs)

    @property
    def gpus(self) -> int:
        """The largest number of CUDA GPUs that one of the runs needs."""
        return max(int(uses_cuda(run.train.device)) for run in self.runs)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its runs."""
        return tuple(run.key for run in self.runs)

    def parts(self) -> list[Plan]:
        """Return a plan of each run, in the order in which they are begun."""
        return [
            dataclasses.replace(self, runs=(run,), first_runs=self._first_runs_like(run))
            for run in self.in_order
        ]

    @property
    def in_order(self) -> list[Run]:
        """The runs in the order in which they are begun: those that decide about others first."""
        deciding = {key for keys in self.first_runs.values() for key in keys}
        return sorted(self.runs, key=lambda run: run.key not in deciding)

    def early_stop(self) -> EarlyStop:
        """Return what decides which of the runs are not begun."""
        return EarlyStop(Store(self.store), self.runs, self.first_runs)

    def _first_runs_like(self, run: Run) -> dict[str, tuple[str, ...]]:
        task = task_of(run) if self.first_runs else ""
        return {task: self.first_runs[task]} if task in self.first_runs else {}

    def as_json(self) -> str:
        """Return the plan as a line for a worker."""
        return job_line(
            "sgdf.bench.jobs.plan:Plan.from_table",
            {
                "runs": [run.as_table() for run in self.runs],
                "store": str(self.store.absolute()),
                "checkpoint_every": self.checkpoint_every,
                "probes": [dataclasses.asdict(probe) for probe in self.probes],
                "first_runs": self.first_runs,
            },
        )

    @classmethod
    def from_table(cls, content: Table) -> Plan:
        """Return the plan of a worker's line."""
        runs = read_runs(content["runs"])
        probes = tuple(ProbeSpec(**probe) for probe in content["probes"])
        first_runs = {task: tuple(keys) for task, keys in content["first_runs"].items()}
        return cls(runs, Path(content["store"]), content["checkpoint_every"], probes, first_runs)

    def work(self, display: Display, stop: Stop) -> None:
        """Do every run that is left and that no other process has claimed, one after another.

        Runs that another process had claimed get a second look at the end.
        """
        done: set[str] = set()
        runs, early_stop = self.in_order, self.early_stop()
        with Ranks() as ranks:
            for run in (*runs, *runs):
                if run.key in done:
                    continue
                if ranks.broadcast(early_stop.holds_back(run)):
                    done.add(run.key)
                    end: End = {"event": "end", "state": State.WAITING.value, "line": ""}
                    display(run.key, {**end, "quiet": True})
                elif run_one(
                    run, self.store, self.checkpoint_every, display, stop, ranks, probes=self.probes
                ):
                    done.add(run.key)


def prepare_data(runs: Iterable[Run]) -> None:
    """Let each distinct task of the runs fetch and check its data."""
    for task in {json.dumps(run.as_table()["task"]): run.task for run in runs}.values():
        try:
            trained = find_trained(task.name)
            if not isinstance(trained, TrainingFunction):
                trained.provide(**task.options)
        except SpecError as error:
            raise SpecError(f"task {task.name!r}: {error}") from error
        except StoreError:
            raise
        except Exception as error:  # a user's task may raise anything
            raise SpecError(f"task {task.name!r}: {first_line(error)}") from error
