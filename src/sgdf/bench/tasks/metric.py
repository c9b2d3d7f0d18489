"""What a task is judged by: a metric, which direction is better, and how it is shown.

Needs no torch: reports know metrics by their names alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import SpecError

LARGER_IS_BETTER = {
    *("accuracy", "acc", "top1", "top5", "precision", "recall", "f1", "auc", "auroc", "r2"),
    *("ap", "ap50", "map", "iou", "miou", "dice", "psnr", "ssim", "bleu", "rouge", "score"),
}
SMALLER_IS_BETTER = {
    *("loss", "error", "err", "mse", "rmse", "mae", "nll", "perplexity", "ppl", "bits", "bpc"),
    *("bpd", "wer", "cer", "fid", "sfid", "kid", "distance", "divergence"),
}
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True)
class Metric:
    """A number that an evaluation returns, and what makes it good.

    Attributes:
        name: the key under which ``Task.evaluate`` returns it.
        larger_is_better: the direction. It may be left out where the name tells: ``accuracy``
            and its kind are better the larger, ``loss`` and its kind the smaller they are.
        unit: how it is shown. ``"%"`` stands for shares from 0 to 1, shown times 100. It may be
            left out: an accuracy is shown in per cent, everything else as it is.

    >>> Metric("accuracy").is_maximized, Metric("perplexity").is_maximized
    (True, False)
    """

    name: str
    larger_is_better: bool | None = None
    unit: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise SpecError(f"a metric has a name, not {self.name!r}")
        if self.larger_is_better not in (None, True, False):
            raise SpecError(
                f"the metric {self.name!r}: larger_is_better must be True or False, not "
                f"{self.larger_is_better!r}"
            )

    @property
    def is_maximized(self) -> bool:
        """Whether the largest value is the best.

        Raises:
            SpecError: if nothing tells; the message has the line to add.
        """
        stated = self.larger_is_better
        if stated is None:
            stated = known_direction(self.name)
        if stated is None:
            raise SpecError(
                f"the metric {self.name!r}: is the largest value the best, or the smallest? Add to "
                f'the task: metric = Metric("{self.name}", larger_is_better=True), or False '
                "(from sgdf.bench.tasks import Metric); to a training function, below it: "
                "train.metric = Metric(…)"
            )
        return stated

    @property
    def direction(self) -> str:
        """The direction in words."""
        return direction_in_words(self.is_maximized)


def known_direction(name: str) -> bool | None:
    """Return whether larger is better, as far as the words of a name tell.

    >>> known_direction("top1 accuracy"), known_direction("error_rate"), known_direction("energy")
    (True, False, None)
    """
    words = set(_WORD.findall(name.lower()))
    larger, smaller = bool(words & LARGER_IS_BETTER), bool(words & SMALLER_IS_BETTER)
    return larger if larger != smaller else None


def direction_in_words(larger_is_better: bool) -> str:
    """Return ``"larger is better"`` or ``"smaller is better"``."""
    return "larger is better" if larger_is_better else "smaller is better"


def shown_as(name: str, unit: str | None, values: Iterable[float]) -> tuple[float, str]:
    """Return what the values of a metric are multiplied by when shown, and their unit.

    This is the only rule about per cent. Values above 1 are in per cent already.

    >>> shown_as("accuracy", None, [0.98]), shown_as("accuracy", None, [98.0])
    ((100.0, '%'), (1.0, ''))
    >>> shown_as("hits", "%", [0.5]), shown_as("loss", None, [0.5])
    ((100.0, '%'), (1.0, ''))
    """
    if unit == "%" or (unit is None and "accuracy" in name):
        if not any(value > 1.0 for value in values):
            return 100.0, "%"
        return 1.0, "%" if unit else ""
    return 1.0, unit or ""
