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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from optuna.trial import Trial

from .attempt import Stop, apart
from .files import kept
from .grid import Table, grid, quoted
from .launch import Display, job_line
from .objects import SpecError
from .optimizers import optimizer_options
from .parts import choice, read_part, whole
from .processes import Processes
from .space import Choices, Range, Space, default_space, filled, read_space
from .spec import Run, read, settled
from .storage import open_storage
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
        problem: what is trained, as a spec has it, without seeds and optimizers.
        seeds: those of the comparison to come, which are none of the search's.
        method: how it is searched.
        arms: the optimizers.
        store: the folder that keeps the runs.
        storage: the URL of Optuna's storage.
        threads: of each run.
        checkpoint_every: seconds between checkpoints.
        limit: how many trials a process takes part in at the most.
    """

    problem: Table
    seeds: tuple[int, ...]
    method: Method
    arms: tuple[Arm, ...]
    store: Path
    storage: str
    threads: int = 1
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
        return settled(read(document), self.threads).runs

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

    def check(self) -> None:
        """Find out whether what is to be tried can be.

        Raises:
            SpecError: if an option is not known, or does not take one of the values.
        """
        for arm in self.arms:
            for option, tried in arm.space.items():
                for value in tried.examples:
                    others = {o: t.examples[0] for o, t in arm.space.items()}
                    self.runs(arm, {**others, option: value})

    def prepare(self, retry: bool = False) -> None:
        """Make the folder; with ``retry``, let failed trials be tried again."""
        with kept(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        storage = open_storage(self.storage)
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
                "threads": self.threads,
                "checkpoint_every": self.checkpoint_every,
                "limit": None if math.isinf(self.limit) else self.limit,
            },
        )

    def document(self) -> Table:
        """Return the search as its file could have it, with nothing left to a default."""
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

    @classmethod
    def from_table(cls, content: Table) -> Search:
        """Return the search that such a line holds."""
        return read_search(
            content["document"],
            store=Path(content["store"]),
            storage=content["storage"],
            threads=content["threads"],
            checkpoint_every=content["checkpoint_every"],
            limit=content["limit"] or math.inf,
        )

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


def read_search(document: Table, only: Sequence[str] | None = None, **options: Any) -> Search:
    """Return the search that a parsed TOML document describes.

    Args:
        document: an experiment, whose optimizers may have tables of what to search.
        only: search these optimizers, whether the document has them or not.
        options: the attributes of a search that the document does not say.
    """
    document = dict(document)
    tables, table = document.pop("optimizer", None), document.pop("search", {})
    seeds = document.pop("seed", 0)
    seeds = tuple(seeds) if isinstance(seeds, list) else (seeds,)
    if tables is None and not only:
        raise SpecError("[optimizer]: missing")
    if document.get("protocol", "validation") != "validation":
        raise SpecError(
            'protocol = "paper": holds back no data to choose by; it must be "validation"'
        )
    if len(list(grid(document))) > 1:
        raise SpecError(
            "a search is for one problem, but a list stands in its task, schedule or training; "
            "choose one of its values, as with --set train.batch_size=64"
        )
    train = document.get("train", {})
    if isinstance(train, dict) and "threads" in options:
        options["threads"] = train.get("threads") or options["threads"]
        document["train"] = {**train, "threads": options["threads"]}
    method = _method(table, seeds)
    found = list(_optimizers(tables))
    if only:
        named = {str(one.get("name")): one for one in found}
        found = [named.get(name, {"name": name, "search": {}}) for name in dict.fromkeys(only)]
    arms = [_arm(one, method) for one in found]
    twice = {arm.name for arm in arms if sum(arm.name == other.name for other in arms) > 1}
    if twice:
        raise SpecError(
            f"optimizer {', '.join(sorted(twice))}: is there more than once; what is to be tried "
            "of it belongs into one [optimizer.search]"
        )
    search = Search(document, seeds, method, tuple(arms), **options)
    search.check()
    return search


def _method(table: Any, compared: tuple[int, ...]) -> Method:
    if not isinstance(table, dict):
        raise SpecError(f"search = {table!r}: must be a table, [search]")
    table = dict(table)
    numbers = all(isinstance(seed, int) for seed in compared)
    seeds = table.pop("seeds", [max(compared) + 1 if numbers else 0])
    if not isinstance(seeds, list) or not seeds or len(set(map(repr, seeds))) < len(seeds):
        raise SpecError(f"search.seeds = {seeds!r}: must be a list of different seeds")
    if set(seeds) & set(compared):
        raise SpecError(
            f"search.seeds = {seeds!r}: must be none of those that are compared with, seed = "
            f"{list(compared)!r}"
        )
    return read_part(Method, table, "search", seeds=tuple(seeds))


def _optimizers(tables: Any) -> Iterator[Table]:
    """Yield each optimizer's table, what is to be searched left as it is."""
    for table in tables if isinstance(tables, list) else filter(None, [tables]):
        if not isinstance(table, dict):
            raise SpecError(f"optimizer = {table!r}: must be a table, [optimizer]")
        rest = {key: value for key, value in table.items() if key != "search"}
        searched = table.get("search", {})
        if not isinstance(searched, dict):
            raise SpecError(f"optimizer.search = {searched!r}: must be a table, [optimizer.search]")
        for one in grid(rest):
            yield {**quoted(one), "search": searched}


def _arm(table: Table, method: Method) -> Arm:
    table = dict(table)
    name, searched = table.get("name"), table.pop("search")
    if not isinstance(name, str):
        raise SpecError(f"optimizer.name = {name!r}: must be a string")
    try:
        space = read_space(searched) if searched else default_space(name, method.sampler)
        if method.sampler == "grid":
            space = filled(space, method.trials)
        table = {key: value for key, value in table.items() if key not in space}
        examples = {option: tried.examples[0] for option, tried in space.items()}
        given = {
            key: value
            for key, value in {**table, **examples}.items()
            if key not in ("name", "train")
        }
        known = optimizer_options(name, {key: _unquoted(value) for key, value in given.items()})
    except SpecError as error:
        raise SpecError(f"optimizer {name!r}: {error}") from error
    return Arm(name, table, {o: _fitted(tried, known[o]) for o, tried in space.items()})


def _unquoted(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], list) else value


def _fitted(tried: Range | Choices, example: Any) -> Range | Choices:
    """Return a range of whole numbers as one of all numbers, if the option takes such."""
    if isinstance(tried, Range) and isinstance(example, float):
        return replace(tried, low=float(tried.low), high=float(tried.high))
    return tried
