"""The learning-rate range test: one run whose rate rises at each step, until it diverges.

The rate grows by the same factor from step to step, from one end of the range to the other. Where
the loss falls the fastest against the logarithm of the rate, a schedule that stays near it does
well; a little before the loss turns up is the most that the model bears for long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import SpecError
from ..spec.machine import resolve_machine
from ..spec.read import read
from ..spec.run import Run
from ..store.records import Row
from ..store.run_folder import Store
from ..training.randomness import isolated
from ..training.ranks import Ranks
from ..training.trainer import Trainer
from .search import Candidate, Search
from .space import Range

STEPS = 300
DIVERGES_AT = 4.0
SMOOTHING = 0.05
"""Share of the way that the loss is smoothed over."""
WINDOW = 1 / 3
"""Decades of the rate over which a fall is measured: over less it would be noise."""


def range_run(search: Search, candidate: Candidate, steps: int = STEPS) -> Run:
    """Return the run of an optimizer's range test, over the rates that a search would try.

    Args:
        search: what is trained; of each optimizer, the rate alone is searched.
        candidate: the optimizer.
        steps: how many there are at least; whole epochs are trained.
    """
    rates = candidate.space.get("lr")
    if not isinstance(rates, Range) or rates.low <= 0:
        raise SpecError(
            f"optimizer {candidate.name!r}: a range test needs a range of learning rates above 0; "
            "say it in [optimizer.search], as in lr = { low = 0.001, high = 1.0 }"
        )
    example = search.runs(candidate, {"lr": rates.low})[0]
    with isolated(example.seed, example.train.threads):
        epoch_steps = Trainer(example, Ranks(alone=True)).epoch_steps
    epochs = math.ceil(steps / epoch_steps)
    factor = (rates.high / rates.low) ** (1 / (epochs * epoch_steps - 1))
    table = example.as_table()
    changes = {
        "epochs": epochs,
        "evaluate_every": epochs,
        "log_every": 1,
        "diverges_at": DIVERGES_AT,
    }
    table["train"] = {**table["train"], **changes}
    table["schedule"] = {"name": "ExponentialLR", "every": "step", "gamma": factor}
    return resolve_machine(read(dict(table)), search.threads, anywhere=True).runs[0]


@dataclass(frozen=True)
class RangeTest:
    """What a range test came to.

    Attributes:
        optimizer: its name.
        rates: of each step.
        losses: of each step, as they were.
    """

    optimizer: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @classmethod
    def of(cls, optimizer: str, rows: Sequence[Row]) -> RangeTest:
        """Return what a run's metrics tell."""
        readings = [row for row in rows if row["kind"] == "train" and "loss" in row["train"]]
        finite = [row for row in readings if math.isfinite(row["train"]["loss"])]
        return cls(
            optimizer,
            tuple(row["lr"] for row in finite),
            tuple(row["train"]["loss"] for row in finite),
        )

    @property
    def smoothed(self) -> np.ndarray:
        """The losses as means over a window around each, which is cut at both ends."""
        half = max(1, round(SMOOTHING * len(self.losses) / 2))
        sums = np.concatenate([[0.0], np.cumsum(self.losses)])
        steps = np.arange(len(self.losses))
        low, high = np.maximum(steps - half, 0), np.minimum(steps + half + 1, len(steps))
        means: np.ndarray = (sums[high] - sums[low]) / (high - low)
        return means

    @property
    def steepest(self) -> float | None:
        """The rate around which the loss falls the most within a third of a decade.

        Of what it has reached before: to recover from a rise is no fall. None if it never falls.
        """
        if len(self.losses) < 3:
            return None
        reached, logs = np.minimum.accumulate(self.smoothed), np.log10(self.rates)
        after = np.interp(logs + WINDOW / 2, logs, reached)
        falls = np.interp(logs - WINDOW / 2, logs, reached) - after
        step = int(np.argmax(falls))
        return float(f"{self.rates[step]:.2g}") if falls[step] > 0 else None

    @property
    def lowest(self) -> float | None:
        """The rate at which the loss is the lowest: too large to stay at."""
        return float(f"{self.rates[int(np.argmin(self.smoothed))]:.2g}") if self.losses else None


def range_tests(search: Search, runs: Sequence[Run]) -> list[RangeTest]:
    """Return what the range tests came to, as far as they are."""
    store = Store(search.store)
    return [RangeTest.of(run.optimizer.name, store.folder(run.key).rows()) for run in runs]
