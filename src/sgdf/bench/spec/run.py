"""A run and its parts as dataclasses, and the table that the run is known by."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property

from ...present.words import plural
from ..store.identity import run_key
from ..store.records import RunTable, Table
from .fields import choice, rule, whole
from .grid import quote_lists

PURE_BFLOAT16 = "pure-bfloat16"
PRECISIONS = ("float32", "bfloat16", "float16", PURE_BFLOAT16)
OF_FUNCTIONS = ("by_function", "threads")
"""The keys of ``[train]`` for a task that is a function, which has a loop of its own."""


def _is_device(value: str) -> bool:
    if value in ("auto", "cpu"):
        return True
    import torch  # which takes a second: most files name no other device

    try:
        torch.device(value)
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True)
class Named:
    """An object by its name in an experiment, with all of its options."""

    name: str
    options: Table

    @cached_property
    def table(self) -> Table:
        """The part of a run's table about it; the runs of a grid share it."""
        return {"name": self.name, **quote_lists(self.options)}


@dataclass(frozen=True)
class Schedule(Named):
    """The schedule of the learning rate; ``every`` is the unit of all its numbers."""

    every: str = choice("epoch", ("epoch", "step"))
    warmup: int = whole(0, least=0)

    @cached_property
    def table(self) -> Table:
        """The part of a run's table about it; the runs of a grid share it."""
        own = {"name": self.name, "every": self.every, "warmup": self.warmup}
        return {**own, **quote_lists(self.options)}


@dataclass(frozen=True)
class Training:
    """How a run trains, including the settings of the machine that its numbers depend on."""

    epochs: int = whole(10)
    batch_size: int = whole(64)
    accumulate: int = whole(1)
    clip_norm: float = rule(math.inf, "a number above 0; inf for none", lambda value: value > 0)
    ema_decay: float = rule(
        0.0, "a number of at least 0 and below 1; 0 for none", lambda value: 0 <= value < 1
    )
    evaluate_every: int = whole(1)
    log_every: int = whole(50)
    diverges_at: float = rule(
        1000.0, "a number above 1, in units of the first loss", lambda value: value > 1
    )
    precision: str = choice("float32", PRECISIONS)
    device: str = rule("auto", 'a device of torch\'s, or "auto"', _is_device)
    compile: bool = False
    threads: int = rule(0, "a whole number; 0 for a share of the machine", lambda value: value >= 0)
    processes: int = rule(
        0, "a whole number; 0 for as many as torchrun started", lambda value: value >= 0
    )
    steps: int = rule(0, "a whole number; 0 for a length in epochs", lambda value: value >= 0)
    costly_every: int = rule(0, "a whole number; 0 for the last epoch alone", lambda v: v >= 0)
    by_function: bool = False

    @property
    def length(self) -> str:
        """How long the run is, in words."""
        return length_in_words(dataclasses.asdict(self))

    @cached_property
    def table(self) -> Table:
        """The part of a run's table about it; the newest keys stand in it only where they are used.

        So runs of earlier versions keep their names. A function that trains by itself has none of
        the bench's settings but the threads.
        """
        table = dataclasses.asdict(self)
        if self.by_function:
            return {key: table[key] for key in OF_FUNCTIONS}
        unused = [key for key in ("steps", "costly_every", "by_function") if not table[key]]
        if self.steps:
            unused.append("epochs")
        return {key: value for key, value in table.items() if key not in unused}


def length_in_words(train: Table) -> str:
    """Return how long a run is, by its ``[train]``.

    >>> length_in_words({"epochs": 20}), length_in_words({"steps": 1})
    ('20 epochs', '1 step')
    """
    if train.get("by_function"):
        return "the length that the function has"
    unit, count = ("step", train["steps"]) if train.get("steps") else ("epoch", train["epochs"])
    return plural(count, unit)


@dataclass(frozen=True)
class ProbeSpec(Named):
    """A probe by its name, and how often it looks.

    Attributes:
        every: how many steps lie between two of its looks.
        every_epochs: how many epochs, if not 0; then it looks at the first step of an epoch.
    """

    every: int = whole(50)
    every_epochs: int = whole(0, least=0)


@dataclass(frozen=True)
class Run:
    """One training with every setting filled in."""

    task: Named
    optimizer: Named
    schedule: Schedule
    train: Training
    protocol: str
    seed: int

    def as_table(self) -> RunTable:
        """Return the run as an experiment that stands for this run alone.

        Runs share the parts of their tables: a caller must not change them.
        """
        return {
            "seed": self.seed,
            "protocol": self.protocol,
            "task": self.task.table,
            "optimizer": self.optimizer.table,
            "schedule": self.schedule.table,
            "train": self.train.table,
        }

    @cached_property
    def key(self) -> str:
        """The run's key: a digest of its whole table."""
        return run_key(self.as_table())


@dataclass(frozen=True)
class Experiment:
    """A named list of runs, and the probes that look at them."""

    name: str
    about: str
    runs: tuple[Run, ...]
    probes: tuple[ProbeSpec, ...] = ()
