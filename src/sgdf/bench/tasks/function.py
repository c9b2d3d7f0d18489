"""A training loop of the user's own as a task: a function that trains and returns its metrics.

::

    def train(make_optimizer, seed, epochs=10):
        model = ...
        optimizer = make_optimizer(model.parameters())
        ...
        return {"accuracy": 0.93}

The bench hands over the optimizer and the seed, and gets metrics back. It does not see the steps
in between. So such a run has no checkpoints: one that was interrupted starts again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError, naming
from ..store.records import Figures
from .metric import Metric

HANDED_OVER = 2
"""The leading arguments of a training function: the maker of optimizers, and the seed."""


@dataclass(frozen=True)
class TrainingFunction:
    """A function ``train(make_optimizer, seed, **options)`` that trains a model.

    It returns metrics by name, which count as measured on the test data, or metrics by split
    (``"validation"``, ``"test"``). A function that yields such metrics yields them once for each
    epoch. The first metric is the one to compare by, unless the function has an attribute
    ``metric``.
    """

    call: Callable[..., Any]

    def check(self) -> None:
        """Raise if the function cannot be called with what the bench hands over.

        Raises:
            SpecError: says what a training function takes.
        """
        try:
            inspect.signature(self.call).bind_partial(None, 0)
        except TypeError as error:
            raise SpecError(
                "a training function takes the maker of optimizers and the seed first, as in "
                "train(make_optimizer, seed)"
            ) from error
        declared = self.declared_metric
        if declared is not None:
            _ = declared.is_maximized

    @property
    def declared_metric(self) -> Metric | None:
        """The metric that the function declares by its attribute ``metric``, if it does."""
        metric = getattr(self.call, "metric", None)
        return metric if isinstance(metric, Metric) else None

    def metric(self, figures: Mapping[str, Figures]) -> Metric:
        """Return the metric to compare by, given what the function returned by split.

        Raises:
            SpecError: if its direction is not known; the message has the line to add.
        """
        metric = self.declared_metric or Metric(next(iter(figures["test"])))
        with naming(f"{getattr(self.call, '__name__', 'train')}.metric"):
            _ = metric.is_maximized
        return metric
