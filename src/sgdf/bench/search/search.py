"""A search: the problem, the optimizers, and the values that may be tried for each.

Optuna draws the settings. A trial is one setting: it is trained with each seed of the search as an
ordinary run in the store, and judged by the mean over the seeds of the metric on validation data.
Every optimizer has its own study, so that the success of one does not prune the trials of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from optuna.trial import Trial

from ..spec.fields import choice, whole
from ..spec.grid import quote_lists
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
    """How the settings are searched, the same for every optimizer: ``[search]`` of the file."""

    trials: int = whole(12)
    sampler: str = choice("tpe", ("tpe", "random", "grid"))
    prune: bool = True
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Candidate:
    """An optimizer in a search.

    Attributes:
        name: its name in the file.
        table: the options that are set, as in an experiment.
        space: the options that are searched, and the values to try.
    """

    name: str
    table: Table
    space: Space

    def draw(self, trial: Trial) -> Table:
        """Return the setting of a trial; options that were drawn before keep their values."""
        return {option: values.draw(trial, option) for option, values in self.space.items()}

    def optimizer(self, setting: Table) -> Table:
        """Return ``[optimizer]`` of an experiment with this setting."""
        return {**self.table, **quote_lists(setting)}

    @property
    def example(self) -> Table:
        """One setting that could be drawn."""
        return {option: values.examples[0] for option, values in self.space.items()}


@dataclass(frozen=True)
class Search:
    """A search, as its file describes it.

    Attributes:
        problem: the experiment without seeds, optimizers and ``[search]``; it contains no lists.
        seeds: those of the later comparison; the search itself uses others.
        method: how the settings are searched.
        candidates: the optimizers.
        store: the folder that keeps the runs.
        storage: the URL of Optuna's storage.
        checkpoint_every: seconds between checkpoints.
    """

    problem: Table
    seeds: tuple[int, ...]
    method: Method
    candidates: tuple[Candidate, ...]
    store: Path
    storage: str
    checkpoint_every: float = 60.0

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.problem["name"])

    def experiment(self, candidate: Candidate, setting: Table) -> Table:
        """Return the document of an experiment: one setting with every seed of the search."""
        return {
            **self.problem,
            "seed": list(self.method.seeds),
            "optimizer": candidate.optimizer(setting),
        }

    def runs(self, candidate: Candidate, setting: Table) -> tuple[Run, ...]:
        """Return the runs of a setting, one for each seed of the search."""
        # Nothing is built here: the file was checked by building when it was read.
        document = read(self.experiment(candidate, setting), build=False)
        return resolve_machine(document, threads=1, anywhere=True).runs

    @property
    def threads(self) -> int:
        """How many threads a run uses."""
        return self.example.train.threads

    @cached_property
    def example(self) -> Run:
        """One run that the search could make."""
        candidate = self.candidates[0]
        return self.runs(candidate, candidate.example)[0]

    @cached_property
    def epochs(self) -> int:
        """How many epochs a trial trains at most."""
        run = self.example
        if not run.train.steps:
            return run.train.epochs
        with isolated(run.seed, run.train.threads):  # only the data tell how many steps make one
            return Trainer(run, Ranks(alone=True)).epochs

    @cached_property
    def metric(self) -> Metric:
        """The metric that trials are judged by, on validation data."""
        run = self.example
        task = find_task(run.task.name)
        if isinstance(task.metric, Metric):  # declared by the class: no data are loaded
            return metric_of(task)
        with isolated(run.seed, run.train.threads):
            return metric_of(task(**run.task.options))

    def document(self) -> Table:
        """Return a file of this search, in which every space is written out."""
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
                    "search": {option: values.table for option, values in candidate.space.items()},
                }
                for candidate in self.candidates
            ],
        }
