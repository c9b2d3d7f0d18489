"""The job of an experiment: its runs, one after the other."""

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
    """What to do and where.

    Attributes:
        runs: in the order in which they are begun.
        store: the folder that keeps them.
        checkpoint_every: seconds between checkpoints.
        probes: what looks at the gradients of each run.
    """

    runs: tuple[Run, ...]
    store: Path
    checkpoint_every: float = 60.0
    probes: tuple[ProbeSpec, ...] = ()

    def prepare(self, retry: bool = False) -> None:
        """Make every run's folder and see to its data; with ``retry``, let failed ones try again.

        A folder that cannot be used is told of when its turn comes.

        Raises:
            SpecError: if an option of a task cannot be.
            StoreError: if data are not to be had.
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
        """How many threads the most demanding run wants."""
        return max(run.train.threads for run in self.runs)

    @property
    def gpus(self) -> int:
        """How many GPUs of CUDA's the most demanding run wants."""
        return max(int(uses_cuda(run.train.device)) for run in self.runs)

    @property
    def keys(self) -> tuple[str, ...]:
        """The runs that it will do."""
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
        """Return the plan that such a line holds."""
        runs = tuple(run for table in content["runs"] for run in read(table).runs)
        probes = tuple(ProbeSpec(**probe) for probe in content["probes"])
        return cls(runs, Path(content["store"]), content["checkpoint_every"], probes)

    def work(self, display: Display, stop: Stop) -> None:
        """Do every run that is to be done and that nobody else is at, one after the other.

        Then it looks again, once, for those that somebody else was at.
        """
        tried: set[str] = set()
        with Ranks() as ranks:
            for run in (*self.runs, *self.runs):
                if run.key not in tried and run_one(
                    run, self.store, self.checkpoint_every, display, stop, ranks, probes=self.probes
                ):
                    tried.add(run.key)


def prepare_data(runs: Iterable[Run]) -> None:
    """See to it that the tasks of runs can be made, each of them once."""
    for task in {json.dumps(run.as_table()["task"]): run.task for run in runs}.values():
        try:
            find_task(task.name).provide(**task.options)
        except SpecError as error:
            raise SpecError(f"task {task.name!r}: {error}") from error
        except StoreError:
            raise
        except Exception as error:  # whatever a user's task raises
            raise SpecError(f"task {task.name!r}: {first_line(error)}") from error
