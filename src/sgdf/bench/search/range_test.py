"""The learning-rate range test: one run whose rate rises at each step, until it diverges.

The rate grows by the same factor at every step, from one end of the range to the other. A good
learning rate is near the one at which the loss falls fastest against the logarithm of the rate. The
largest usable rate lies a little below the one at which the loss begins to rise.
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
"""The loss, in units of the first one, at which the run ends."""
SMOOTHING = 0.05
"""Width of the smoothing window, as a share of all steps."""
WINDOW = 1 / 3
"""Decades of the rate over which a fall is measured: a shorter window would measure noise."""


def range_run(search: Search, candidate: Candidate, steps: int = STEPS) -> Run:
    """Return the run of an optimizer's range test, over the rates that a search would try.

    Args:
        search: a search of learning rates alone.
        candidate: the optimizer.
        steps: how many to train at least; the last epoch is completed.
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
    kept = {key: value for key, value in table["train"].items() if key != "steps"}
    table["train"] = {**kept, **changes}
    table["schedule"] = {"name": "ExponentialLR", "every": "step", "gamma": factor}
    return resolve_machine(read(dict(table)), search.threads, anywhere=True).runs[0]


@dataclass(frozen=True)
class RangeTest:
    """The result of a range test.

    Attributes:
        optimizer: its name.
        rates: the learning rate at each step.
        losses: the loss at each step, not smoothed.
    """

    optimizer: str
    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @classmethod
    def of(cls, optimizer: str, rows: Sequence[Row]) -> RangeTest:
        """Return the result that is in the metrics of a run."""
        steps = [row for row in rows if row["kind"] == "train" and "loss" in row["train"]]
        finite = [row for row in steps if math.isfinite(row["train"]["loss"])]
        return cls(
            optimizer,
            tuple(row["lr"] for row in finite),
            tuple(row["train"]["loss"] for row in finite),
        )

    @property
    def smoothed(self) -> np.ndarray:
        """The mean of the losses in a window around each step; it is cut off at both ends."""
        half = max(1, round(SMOOTHING * len(self.losses) / 2))
        sums = np.concatenate([[0.0], np.cumsum(self.losses)])
        steps = np.arange(len(self.losses))
        low, high = np.maximum(steps - half, 0), np.minimum(steps + half + 1, len(steps))
        means: np.ndarray = (sums[high] - sums[low]) / (high - low)
        return means

    @property
    def steepest(self) -> float | None:
        """The rate around which the loss falls most within ``WINDOW``; None if it never falls.

        Measured on the lowest loss so far, so that a recovery after a rise does not count.
        """
        if len(self.losses) < 3:
            return None
        lowest, logs = np.minimum.accumulate(self.smoothed), np.log10(self.rates)
        after = np.interp(logs + WINDOW / 2, logs, lowest)
        falls = np.interp(logs - WINDOW / 2, logs, lowest) - after
        step = int(np.argmax(falls))
        return float(f"{self.rates[step]:.2g}") if falls[step] > 0 else None

    @property
    def lowest(self) -> float | None:
        """The rate at which the loss is lowest: too large to train with; None without losses."""
        return float(f"{self.rates[int(np.argmin(self.smoothed))]:.2g}") if self.losses else None


def range_tests(search: Search, runs: Sequence[Run]) -> list[RangeTest]:
    """Return the results of the range tests so far."""
    store = Store(search.store)
    return [RangeTest.of(run.optimizer.name, store.folder(run.key).rows()) for run in runs]
