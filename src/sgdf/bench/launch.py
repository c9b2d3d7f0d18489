"""Do the runs of an experiment, as one of the processes that share them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch

from .attempt import Stop, Watch, attempt, to_the_end
from .data.archive import DATA_VARIABLE, data_folder
from .files import StoreError, kept
from .grid import Table
from .objects import SpecError
from .processes import Processes
from .spec import Run, read
from .store import State, Store, brief
from .tasks import find_task

TO_DO = (State.WAITING, State.PAUSED, State.DAMAGED)
MAX_DEATHS = 5
"""How often in a row a worker may die over a run, without a checkpoint between, until it failed."""


class Display(Protocol):
    """Shows people what happens."""

    def __call__(self, run: str, event: dict[str, Any]) -> None:
        """Take news of a run, by its key."""


class Job(Protocol):
    """Work on a store that any number of processes can share, on as many machines."""

    @property
    def store(self) -> Path:
        """The folder that keeps the runs."""

    @property
    def threads(self) -> int:
        """How many threads the most demanding run wants."""

    @property
    def gpus(self) -> int:
        """How many GPUs of CUDA's the most demanding run wants."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The runs that it will do, as far as that is known before."""

    def parts(self) -> Sequence[Job]:
        """Return the pieces that can be done without each other, in order."""

    def as_json(self) -> str:
        """Return it as a line that ``read_job`` makes the same job of."""

    def work(self, display: Display, stop: Stop) -> None:
        """Do what is to be done and nobody else is at, until nothing is left or ``stop`` is set."""


@dataclass(frozen=True)
class Plan:
    """What to do and where.

    Attributes:
        runs: in the order in which they are begun.
        store: the folder that keeps them.
        checkpoint_every: seconds between checkpoints.
    """

    runs: tuple[Run, ...]
    store: Path
    checkpoint_every: float = 60.0

    def prepare(self, retry: bool = False) -> None:
        """Make every run's folder and see to its data; with ``retry``, let failed ones try again.

        A folder that cannot be used is told of when its turn comes.

        Raises:
            SpecError: if an option of a task cannot be.
            StoreError: if data are not to be had.
        """
        wanted = (*TO_DO, State.FAILED) if retry else TO_DO
        provide([run for run in self.runs if Store(self.store).folder(run).progress() in wanted])
        with kept(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        for run in self.runs:
            folder = Store(self.store).folder(run)
            with contextlib.suppress(StoreError):
                folder.prepare(run)
                if retry:
                    folder.forgive()

    @property
    def threads(self) -> int:
        """How many threads the most demanding run wants."""
        return max(run.train.threads for run in self.runs)

    @property
    def gpus(self) -> int:
        """How many GPUs of CUDA's the most demanding run wants."""
        return max(int(torch.device(run.train.device).type == "cuda") for run in self.runs)

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
            "plan",
            {
                "runs": [run.as_table() for run in self.runs],
                "store": str(self.store.absolute()),
                "checkpoint_every": self.checkpoint_every,
            },
        )

    @classmethod
    def from_table(cls, content: Table) -> Plan:
        """Return the plan that such a line holds."""
        runs = tuple(run for table in content["runs"] for run in read(table).runs)
        return cls(runs, Path(content["store"]), content["checkpoint_every"])

    def work(self, display: Display, stop: Stop) -> None:
        """Do every run that is to be done and that nobody else is at, one after the other.

        Then it looks again, once, for those that somebody else was at.
        """
        tried: set[str] = set()
        with Processes() as processes:
            for run in self.runs * 2:
                if run.key not in tried and work_on(run, self, display, stop, processes):
                    tried.add(run.key)


def provide(runs: Iterable[Run]) -> None:
    """See to it that the tasks of runs can be made, each of them once."""
    for task in {json.dumps(run.as_table()["task"]): run.task for run in runs}.values():
        try:
            find_task(task.name).provide(**task.options)
        except SpecError as error:
            raise SpecError(f"task {task.name!r}: {error}") from error
        except StoreError:
            raise
        except Exception as error:  # whatever a user's task raises
            raise SpecError(f"task {task.name!r}: {brief(error)}") from error


def job_line(kind: str, content: Table) -> str:
    """Return what ``read_job`` makes a job of, with where this process finds modules and data."""
    data = str(data_folder()) if DATA_VARIABLE in os.environ else None
    return json.dumps({"job": kind, **content, "path": sys.path, "data": data})


def read_job(line: str) -> Job:
    """Return the job that such a line holds, and find modules and data where its writer does.

    What is installed or set here comes first: the writer may sit at another machine.
    """
    content: Table = json.loads(line)
    sys.path += [place for place in content["path"] if place not in sys.path]
    if content["data"]:
        os.environ.setdefault(DATA_VARIABLE, content["data"])
    if content["job"] == "plan":
        return Plan.from_table(content)
    from .search_file import read_search_job  # which needs Optuna, and that takes its time

    return read_search_job(content)


def work_on(
    run: Run,
    plan: Plan,
    display: Display,
    stop: Stop,
    processes: Processes,
    watch: Watch = to_the_end,
) -> bool:
    """Do one run, unless that is not to be; return whether it was tried.

    Args:
        run: which.
        plan: where it is kept, and how often it is saved.
        display: is told of it.
        stop: asks for an end.
        processes: those that train it together.
        watch: may end it before its time; with one process only.
    """
    folder, first = Store(plan.store).folder(run), processes.rank == 0

    def tell(event: dict[str, Any]) -> None:
        if first:
            display(run.key, event)

    try:
        wanted = first and not stop.is_set() and folder.progress() in TO_DO
        with folder.claimed() if wanted else contextlib.nullcontext(False) as ours:
            # Another process may have finished it before the claim.
            if not processes.share(ours and folder.progress() in TO_DO):
                return False
            tell({"event": "begin", "process": os.getpid()})
            state, line = attempt(
                run,
                folder,
                processes,
                checkpoint_every=plan.checkpoint_every,
                stop=stop,
                tell=tell,
                watch=watch,
            )
            for notice in folder.notices:
                tell({"event": "notice", "line": notice})
    except StoreError as error:
        if processes.count > 1:
            raise  # the others would wait for this process
        state, line = State.PAUSED, str(error)
    tell({"event": "end", "state": state.value, "line": line})
    return True


def give_up(store: Path, key: str, line: str, display: Display) -> None:
    """Write down that a run failed whose process could not do so itself."""
    folder = Store(store).folder(key)
    with folder.claimed() as ours:
        if ours:  # else somebody else is at it, and may fare better
            folder.fail(line)
            display(key, {"event": "end", "state": State.FAILED.value, "line": line})


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into a request to save and stop; a second one ends at once."""
    stop = threading.Event()
    before = {}

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        os.write(2, b"\nSaving after the step at hand; once more ends it at once.\n")

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
