"""Search for the settings of optimizers with equal budgets: as many trials, of as many epochs.

A search is an experiment whose file says, for each optimizer, what may be tried. Optuna draws
the settings; a trial is a setting, trained with each seed of the search as an ordinary run in the
store, and judged by the mean over the seeds of the metric on validation data. Every optimizer has
a study of its own, so that none is given up for the success of another.

Any number of processes share a search. Trials are dealt out under locks that die with their
process, and one whose process died is taken up where its runs were left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from optuna.trial import Trial

from . import files
from .attempt import Stop, apart
from .files import kept
from .grid import Table, quoted
from .launch import Display, job_line, provide
from .objects import SpecError
from .parts import choice, whole
from .processes import Processes
from .space import Space
from .spec import Run, read, settled
from .storage import open_storage, storage_mark
from .tasks import find_task
from .trials import Attempt, Trials


@dataclass(frozen=True)
class Method:
    """How a search goes about it, the same for every optimizer: ``[search]`` of its file."""

    trials: int = whole(12)
    sampler: str = choice("tpe", ("tpe", "random", "grid"))
    prune: bool = True
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Arm:
    """An optimizer in a search: what is set of it, and what is tried."""

    name: str
    table: Table
    space: Space

    def draw(self, trial: Trial) -> Table:
        """Return the values of a trial, those that it has already as they are."""
        return {option: tried.draw(trial, option) for option, tried in self.space.items()}

    def optimizer(self, values: Table) -> Table:
        """Return it with the values of a trial, as a spec has it."""
        return {**self.table, **quoted(values)}


@dataclass(frozen=True)
class Search:
    """A search: a job for any number of processes.

    Attributes:
        problem: what is trained, as a spec has it, without seeds and optimizers; with no list.
        seeds: those of the comparison to come, which are none of the search's.
        method: how it is searched.
        arms: the optimizers.
        store: the folder that keeps the runs.
        storage: the URL of Optuna's storage.
        checkpoint_every: seconds between checkpoints.
        limit: how many trials a process takes part in at the most.
    """

    problem: Table
    seeds: tuple[int, ...]
    method: Method
    arms: tuple[Arm, ...]
    store: Path
    storage: str
    checkpoint_every: float = 60.0
    limit: float = math.inf

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.problem["name"])

    def runs(self, arm: Arm, values: Table) -> tuple[Run, ...]:
        """Return the runs of a setting."""
        document = {
            **self.problem,
            "seed": list(self.method.seeds),
            "optimizer": arm.optimizer(values),
        }
        return settled(read(document), threads=1, anywhere=True).runs

    @property
    def threads(self) -> int:
        """How many threads a run wants."""
        return self.example.train.threads

    @cached_property
    def example(self) -> Run:
        """One of its runs."""
        arm = self.arms[0]
        return self.runs(arm, {option: tried.examples[0] for option, tried in arm.space.items()})[0]

    @cached_property
    def goal(self) -> tuple[str, bool]:
        """The metric that is chosen by, and whether the largest value is the best."""
        run = self.example
        with apart(run):
            task = find_task(run.task.name)(**run.task.options)
        return task.selects, task.largest

    def prepare(self, retry: bool = False) -> None:
        """Make folder and storage, see to the data; with ``retry``, let failed trials try again."""
        provide([self.example])
        with kept(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        storage = open_storage(self.storage)
        told, mark = self.store / "search" / "storage", storage_mark(self.storage)
        with kept(told):
            told.parent.mkdir(exist_ok=True)
        if files.read(told) not in (b"", mark):
            raise SpecError(f"--storage: the trials of {self.store} are kept in another one")
        files.write(told, mark)
        for arm in self.arms if retry else ():
            Trials(self, arm, storage).retry()

    @property
    def gpus(self) -> int:
        """How many GPUs of CUDA's a run wants."""
        return int(torch.device(self.example.train.device).type == "cuda")

    @property
    def keys(self) -> tuple[str, ...]:
        """No run is known before it is drawn."""
        return ()

    def parts(self) -> list[Search]:
        """Return a search for each trial that is not over, one of each optimizer's at a time."""
        storage = open_storage(self.storage)
        left = [Trials(self, arm, storage).left for arm in self.arms]
        return [
            replace(self, arms=(arm,), limit=1)
            for index in range(max(left))
            for arm, count in zip(self.arms, left, strict=True)
            if index < count
        ]

    def as_json(self) -> str:
        """Return the search as a line for a worker."""
        return job_line(
            "search",
            {
                "document": self.document(),
                "store": str(self.store.absolute()),
                "storage": self.storage,
                "checkpoint_every": self.checkpoint_every,
                "limit": None if math.isinf(self.limit) else self.limit,
            },
        )

    def document(self) -> Table:
        """Return the search as its file could have it, what is searched spelled out."""
        method = self.method
        return {
            **self.problem,
            "seed": list(self.seeds),
            "search": {
                "trials": method.trials,
                "sampler": method.sampler,
                "prune": method.prune,
                "seeds": list(method.seeds),
            },
            "optimizer": [
                {
                    **arm.table,
                    "search": {option: tried.table for option, tried in arm.space.items()},
                }
                for arm in self.arms
            ],
        }

    def work(self, display: Display, stop: Stop) -> None:
        """Take part in trials until none is left: one of each optimizer's after the other."""
        storage, processes = open_storage(self.storage), Processes(alone=True)
        left, open_trials = self.limit, [Trials(self, arm, storage) for arm in self.arms]
        while open_trials:
            for trials in list(open_trials):
                if left <= 0 or stop.is_set():
                    return
                left -= 1
                with trials.next() as trial:
                    if not (trial and Attempt(trials, trial, display, stop, processes).go()):
                        open_trials.remove(trials)
