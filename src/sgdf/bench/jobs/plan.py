"""The job of an experiment: its runs, one after another."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import SpecError, StoreError, first_line
from ..spec.read import read
from ..spec.run import ProbeSpec, Run
from ..store.files import store_errors
from ..store.records import Table
from ..store.run_folder import State, Store
from ..tasks import find_task
from ..training.ranks import Ranks, uses_cuda
from .events import Display
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
    """

    runs: tuple[Run, ...]
    store: Path
    checkpoint_every: float = 60.0
    probes: tuple[ProbeSpec, ...] = ()

    def prepare(self, retry: bool = False) -> None:
        """Prepare the folder and the data of every run; with ``retry``, clear failures.

        A folder that cannot be used is reported when its run is due.

        Raises:
            SpecError: if an option of a task is invalid.
            StoreError: if data are missing and cannot be downloaded.
        """
        wanted = (*TO_DO, State.FAILED) if retry else TO_DO
        prepare_data(
            [run for run in self.runs if Store(self.store).folder(run.key).progress() in wanted]
        )
        with store_errors(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        for run in self.runs:
            folder = Store(self.store).folder(run.key)
            with contextlib.suppress(StoreError):
                folder.prepare(run.as_table())
                if retry:
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
        """Return a plan of each run."""
        return [dataclasses.replace(self, runs=(run,)) for run in self.runs]

    def as_json(self) -> str:
        """Return the plan as a line for a worker."""
        return job_line(
            "sgdf.bench.jobs.plan:Plan.from_table",
            {
                "runs": [run.as_table() for run in self.runs],
                "store": str(self.store.absolute()),
                "checkpoint_every": self.checkpoint_every,
                "probes": [dataclasses.asdict(probe) for probe in self.probes],
            },
        )

    @classmethod
    def from_table(cls, content: Table) -> Plan:
        """Return the plan of a worker's line."""
        runs = tuple(run for table in content["runs"] for run in read(table, build=False).runs)
        probes = tuple(ProbeSpec(**probe) for probe in content["probes"])
        return cls(runs, Path(content["store"]), content["checkpoint_every"], probes)

    def work(self, display: Display, stop: Stop) -> None:
        """Do every run that is left and that no other process has claimed, one after another.

        Runs that another process had claimed get a second look at the end.
        """
        tried: set[str] = set()
        with Ranks() as ranks:
            for run in (*self.runs, *self.runs):
                if run.key not in tried and run_one(
                    run, self.store, self.checkpoint_every, display, stop, ranks, probes=self.probes
                ):
                    tried.add(run.key)


def prepare_data(runs: Iterable[Run]) -> None:
    """Let each distinct task of the runs fetch and check its data."""
    for task in {json.dumps(run.as_table()["task"]): run.task for run in runs}.values():
        try:
            find_task(task.name).provide(**task.options)
        except SpecError as error:
            raise SpecError(f"task {task.name!r}: {error}") from error
        except StoreError:
            raise
        except Exception as error:  # a user's task may raise anything
            raise SpecError(f"task {task.name!r}: {first_line(error)}") from error
