"""Means over the examples of an evaluation that processes share, and that may be interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .long_evaluation import LongEvaluation

SEEN = "examples"


class SharedMeans:
    """The means over one share of the examples, which may be empty.

    They go on from what an interrupted evaluation has kept.

    Args:
        evaluation: receives the progress, and keeps the sums.
        what: the name of this part of the evaluation.
        total: how many examples the share has.
        names: those of the means.
    """

    def __init__(
        self, evaluation: LongEvaluation, what: str, total: int, names: Sequence[str]
    ) -> None:
        self.evaluation, self.what, self.total = evaluation, what, total
        self.sums = evaluation.kept(what) or dict.fromkeys((SEEN, *names), 0)

    @property
    def seen(self) -> int:
        """How many examples have been added."""
        count: int = self.sums[SEEN]
        return count

    def add(self, examples: int, **sums: float) -> None:
        """Add the sums over more examples."""
        added = {SEEN: examples, **sums}
        self.sums = {name: value + added[name] for name, value in self.sums.items()}
        self.evaluation.advance(self.what, self.seen, self.total, partial(dict, self.sums))

    def result(self) -> tuple[dict[str, float], int]:
        """Return the means, which are 0 of no example, and how many examples they are of."""
        means = {name: value / max(1, self.seen) for name, value in self.sums.items()}
        del means[SEEN]
        return means, self.seen
