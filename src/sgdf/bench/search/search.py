"""What a search is: the problem, the optimizers, and what may be tried of each.

A search is an experiment whose file says, for each optimizer, what may be tried. Optuna draws
the settings; a trial is a setting, trained with each seed of the search as an ordinary run in the
store, and judged by the mean over the seeds of the metric on validation data. Every optimizer has
a study of its own, so that none is pruned for the success of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from optuna.trial import Trial

from ..spec.fields import choice, whole
from ..spec.grid import quoted
from ..spec.machine import resolve_machine
from ..spec.read import read
from ..spec.run import Run
from ..store.records import Table
from ..tasks import find_task
from ..tasks.base import metric_of
from ..tasks.metric import Metric
from ..training.randomness import isolated
from ..training.ranks import Ranks
from ..training.trainer import Trainer
from .space import Space


@dataclass(frozen=True)
class Method:
    """How a search goes about it, the same for every optimizer: ``[search]`` of its file."""

    trials: int = whole(12)
    sampler: str = choice("tpe", ("tpe", "random", "grid"))
    prune: bool = True
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Candidate:
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
    """A search, as its file describes it.

    Attributes:
        problem: what is trained, as a spec has it, without seeds and optimizers; with no list.
        seeds: those of the comparison to come, which are none of the search's.
        method: how it is searched.
        candidates: the optimizers.
        store: the folder that keeps the runs.
        storage: the URL of Optuna's storage.
        checkpoint_every: seconds between checkpoints.
        limit: how many trials a process takes part in at the most.
    """

    problem: Table
    seeds: tuple[int, ...]
    method: Method
    candidates: tuple[Candidate, ...]
    store: Path
    storage: str
    checkpoint_every: float = 60.0
    limit: float = math.inf

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.problem["name"])

    def runs(self, candidate: Candidate, values: Table) -> tuple[Run, ...]:
        """Return the runs of a setting."""
        document = {
            **self.problem,
            "seed": list(self.method.seeds),
            "optimizer": candidate.optimizer(values),
        }
        return resolve_machine(read(document, build=False), threads=1, anywhere=True).runs

    @property
    def threads(self) -> int:
        """How many threads a run wants."""
        return self.example.train.threads

    @cached_property
    def example(self) -> Run:
        """One of its runs."""
        candidate = self.candidates[0]
        return self.runs(
            candidate, {option: tried.examples[0] for option, tried in candidate.space.items()}
        )[0]

    @cached_property
    def epochs(self) -> int:
        """How many epochs a trial trains at most."""
        run = self.example
        if not run.train.steps:
            return run.train.epochs
        with isolated(run.seed, run.train.threads):
            return Trainer(run, Ranks(alone=True)).epochs

    @cached_property
    def metric(self) -> Metric:
        """What trials are judged by, on validation data."""
        run = self.example
        task = find_task(run.task.name)
        if task.metric is not None:  # declared: no data need be loaded
            return metric_of(task)
        with isolated(run.seed, run.train.threads):
            return metric_of(task(**run.task.options))

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
                    **candidate.table,
                    "search": {option: tried.table for option, tried in candidate.space.items()},
                }
                for candidate in self.candidates
            ],
        }
