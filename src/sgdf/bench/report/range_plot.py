"""The plot of learning-rate range tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .drawing import Plot, Sheet, drawing, logarithmic
from .palette import looks

if TYPE_CHECKING:
    from ..range_test import RangeTest

TITLE = "Learning-rate range test"
ABOUT = (
    "The training loss of each step while the rate rises, and its mean over a twentieth of the "
    "way. Where it falls the fastest is marked; where it turns up, the rate is too large."
)


def range_plot(tests: Sequence[RangeTest]) -> Plot:
    """Draw loss against learning rate, a panel for each optimizer."""
    by_name = looks([test.optimizer for test in tests])
    with drawing("range"):
        wide = len(tests) == 1
        sheet = Sheet(len(tests), 5.0 if wide else 3.2, 3.2 if wide else 2.4, ["", "", ""])
        handles: dict[str, Any] = {}
        for panel, test in zip(sheet.panels, tests, strict=True):
            look, smoothed = by_name[test.optimizer], test.smoothed
            (raw,) = panel.plot(test.rates, test.losses, color="gray", alpha=0.4, linewidth=0.8)
            (mean,) = panel.plot(test.rates, smoothed, color=look.color, linewidth=1.6)
            if test.steepest is not None:
                line = panel.axvline(test.steepest, color="black", linestyle=":", linewidth=1.2)
                handles["falls the fastest"] = line
            handles |= {"each step": raw, "mean": mean}
            logarithmic(panel, "x")
            if len(smoothed) and smoothed[0] > np.min(smoothed):
                low, first = float(np.min(smoothed)), float(smoothed[0])
                panel.set_ylim(low - 0.1 * (first - low), first + 0.5 * (first - low))
            panel.set_title(test.optimizer)
            panel.set_xlabel("learning rate")
            panel.set_ylabel("training loss")
        return Plot("range", "", TITLE, ABOUT, sheet.legend(handles))
