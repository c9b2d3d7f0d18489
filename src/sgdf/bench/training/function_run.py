"""A run that a user's own function trains: it is seeded, watched, and its metrics are kept."""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, cast

from torch.optim import Optimizer

from ..catalog.optimizers import optimizer_maker
from ..errors import suggestion
from ..spec.protocol import PROTOCOLS, RESERVED
from ..spec.run import Run
from ..store.records import Figures, FirstNonfinite, Result, Row, figures_on
from ..tasks import find_trained
from ..tasks.function import TrainingFunction
from ..tasks.metric import Metric
from .meter import as_numbers
from .randomness import seed_all
from .result import digest_of_weights, epochs_that_count, state_bytes

BY_SPLIT = 'return {"validation": {"accuracy": 0.94}, "test": {"accuracy": 0.93}}'
RETURNS = f'return {{"accuracy": 0.93}}, or {BY_SPLIT}'
SPLIT_IN_NAME = re.compile(r"(val|valid|validation|test)[\W_]", re.IGNORECASE)


class FunctionRun:
    """One run in training by a function, and what is seen of it.

    Args:
        run: the run to train.
        after_step: called after each step of an optimizer; it may raise to stop the run.
    """

    def __init__(self, run: Run, after_step: Callable[[FunctionRun], None]) -> None:
        function = find_trained(run.task.name)
        assert isinstance(function, TrainingFunction)
        self.run, self.function, self.after_step = run, function, after_step
        self.protocol = PROTOCOLS[run.protocol]
        self.make = optimizer_maker(run.optimizer.name, run.optimizer.options)
        self.steps_of: dict[Optimizer, int] = {}
        self.rows: list[Row] = []
        self.begun = time.perf_counter()

    def make_optimizer(self, params: Iterable[Any], **changes: Any) -> Optimizer:
        """Return the optimizer of the run for these parameters, and count its steps."""
        optimizer = self.make(params, **changes)
        optimizer.register_step_post_hook(self._count)
        self.steps_of[optimizer] = 0
        return optimizer

    def _count(self, optimizer: Optimizer, *_: object) -> None:
        self.steps_of[optimizer] += 1
        self.after_step(self)

    @property
    def step(self) -> int:
        """The steps that the busiest optimizer has taken."""
        return max(self.steps_of.values(), default=0)

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers that have taken a step, the busiest first."""
        used = [optimizer for optimizer, steps in self.steps_of.items() if steps]
        return sorted(used, key=lambda optimizer: -self.steps_of[optimizer])

    def train(self) -> Iterator[Row]:
        """Let the function train, and yield a row whenever it returns or yields metrics."""
        seed_all(self.run.seed)
        returned = self.function.call(self.make_optimizer, self.run.seed, **self.run.task.options)
        for metrics in returned if inspect.isgenerator(returned) else [returned]:
            row = self._row(figures_by_split(metrics, self.protocol.chooses_on))
            self.rows.append(row)
            self._check_metric(row)  # at the first row, not after hours of training
            yield row
        if not self.rows:
            raise ValueError(f"the function yielded no metrics: {RETURNS}")
        if not self.step:
            raise ValueError(
                "the function took no step with an optimizer of make_optimizer(params), so there "
                "is nothing to compare"
            )

    def _row(self, figures: dict[str, Figures]) -> Row:
        lr = self.optimizers[0].param_groups[0]["lr"] if self.optimizers else math.nan
        # The function does not say which part of its time goes where.
        seconds = {"step": time.perf_counter() - self.begun, "data": 0.0, "evaluation": 0.0}
        kind: Literal["epoch"] = "epoch"
        row = {"kind": kind, "train": {}, **figures, "step": self.step, "seconds": seconds}
        return cast("Row", {**row, "epoch": len(self.rows) + 1, "lr": float(lr)})

    @property
    def metric(self) -> Metric:
        """The metric to compare by."""
        return self.function.metric({"test": figures_on(self.rows[0], "test")})

    def _check_metric(self, row: Row) -> None:
        """Raise if a row lacks the metric to compare by, or nobody knows its direction."""
        name = self.metric.name
        for split in ("test", self.protocol.chooses_on):
            if name not in figures_on(row, split):
                raise ValueError(f"the function returned no {name!r} for {split}")

    @property
    def diverged(self) -> bool:
        """Whether the metric to compare by ended with a value that is not finite."""
        last = self.rows[-1]
        splits = {"test", self.protocol.chooses_on}
        return not all(math.isfinite(figures_on(last, s)[self.metric.name]) for s in splits)

    def _nonfinite_metric(self) -> FirstNonfinite:
        return {"what": "metric", "name": self.metric.name, "step": self.step}

    def result(self) -> Result:
        """Return the result of the run, which has ended."""
        metric, last = self.metric, self.rows[-1]
        params = {
            id(param): param
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for param in group["params"]
        }
        result = {
            "metric": metric.name,
            "largest": metric.is_maximized,
            **({"unit": metric.unit} if metric.unit is not None else {}),
            **epochs_that_count(self.rows, self.protocol, metric),
            "step": self.step,
            "epoch": len(self.rows),
            "diverged_at_step": self.step if self.diverged else None,
            **({"first_nonfinite": self._nonfinite_metric()} if self.diverged else {}),
            "seconds": last["seconds"],
            "parameters": sum(param.numel() for param in params.values()),
            "state_bytes": sum(map(state_bytes, self.optimizers)),
            "weights": digest_of_weights((str(i), p) for i, p in enumerate(params.values())),
        }
        return cast("Result", result)


def figures_by_split(metrics: Any, needed: str) -> dict[str, Figures]:
    """Return what a function returned as figures by split.

    Args:
        metrics: numbers by name, which are then of the test data, or such numbers by split.
        needed: the split that the protocol chooses on.

    Raises:
        ValueError: if it is neither, or a split is missing; the message has an example.

    >>> figures_by_split({"accuracy": 0.5}, "test")
    {'test': {'accuracy': 0.5}}
    """
    if not isinstance(metrics, Mapping) or not metrics:
        what = f"an empty {type(metrics).__name__}" if metrics == {} else type(metrics).__name__
        raise ValueError(f"the function returned {what}, not metrics by name: {RETURNS}")
    if not any(isinstance(value, Mapping) for value in metrics.values()):
        _refuse_names_of_splits(metrics, needed)
        metrics = {"test": metrics}
    figures = {}
    for split, own in metrics.items():
        if not isinstance(own, Mapping) or not own or (split != "train" and split in RESERVED):
            raise ValueError(
                f"the function returned {split!r}, which is no split with metrics, beside metrics "
                f"by split: {BY_SPLIT}"
            )
        figures[split] = as_numbers(own)
    missing = [split for split in ("test", needed) if split not in figures]
    if missing:
        given = ", ".join(map(repr, figures))
        raise ValueError(
            f"the function returned metrics of {given}, but none of {missing[0]!r}: {BY_SPLIT}"
            f"{suggestion(missing[0], figures)}"
        )
    return figures


def _refuse_names_of_splits(metrics: Mapping[str, Any], needed: str) -> None:
    """Raise if metrics without splits have names that say one, or validation metrics are needed."""
    named = [name for name in metrics if isinstance(name, str) and SPLIT_IN_NAME.match(name)]
    if named:
        raise ValueError(
            f"the function returned {named[0]!r}, whose name says its split; write the split as a "
            f"key: {BY_SPLIT}"
        )
    if needed != "test":
        raise ValueError(
            f'the function returned metrics without a split, but protocol = "validation" chooses '
            f"on validation data: {BY_SPLIT}, or leave the protocol out"
        )
