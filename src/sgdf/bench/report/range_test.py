"""The report on learning-rate range tests: their curves as a file and as a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...present.plots import Plot, Sheet, drawing, use_log_axis
from ..search.range_test import RangeTest
from ..store import files
from .optimizer_styles import optimizer_styles

TITLE = "Learning-rate range test"
ABOUT = (
    "The training loss of each step while the learning rate rises, and its moving mean over a "
    "twentieth of the steps. The rate at which the mean falls fastest is marked. Where the mean "
    "starts to rise, the rate is too large."
)


def write_range_tests(tests: Sequence[RangeTest], folder: Path) -> list[Path]:
    """Write the curves as JSON and as a plot."""
    record = {
        test.optimizer: {
            "steepest": test.steepest,
            "lowest": test.lowest,
            "lr": test.rates,
            "loss": test.losses,
        }
        for test in tests
    }
    path = folder / "range.json"
    files.write(path, (json.dumps(record) + "\n").encode())
    with files.store_errors(folder):
        range_plot(tests).write(folder)
    return [path, folder / "range.png", folder / "range.pdf"]


def range_plot(tests: Sequence[RangeTest]) -> Plot:
    """Draw loss against learning rate, a panel for each optimizer."""
    by_name = optimizer_styles([test.optimizer for test in tests])
    with drawing("range"):
        wide = len(tests) == 1
        sheet = Sheet(len(tests), 5.0 if wide else 3.2, 3.2 if wide else 2.4, ["", "", ""])
        handles: dict[str, Any] = {}
        for panel, test in zip(sheet.panels, tests, strict=True):
            style, smoothed = by_name[test.optimizer], test.smoothed
            (raw,) = panel.plot(test.rates, test.losses, color="gray", alpha=0.4, linewidth=0.8)
            (mean,) = panel.plot(test.rates, smoothed, color=style.color, linewidth=1.6)
            if test.steepest is not None:
                line = panel.axvline(test.steepest, color="black", linestyle=":", linewidth=1.2)
                handles["falls fastest"] = line
            handles |= {"each step": raw, "mean": mean}
            use_log_axis(panel, "x")
            if len(smoothed) and smoothed[0] > np.min(smoothed):
                low, first = float(np.min(smoothed)), float(smoothed[0])
                panel.set_ylim(low - 0.1 * (first - low), first + 0.5 * (first - low))
            panel.set_title(test.optimizer)
            panel.set_xlabel("learning rate")
            panel.set_ylabel("training loss")
        return Plot("range", "", TITLE, ABOUT, sheet.legend(handles))
