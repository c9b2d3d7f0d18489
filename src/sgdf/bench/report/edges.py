"""Best settings at the edge of their grid, beyond which there may be better ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .findings import Problem, Setting

FEWEST_VALUES = 3
"""With fewer values of an option there is no edge: it is on or off, unless it is the rate."""


@dataclass(frozen=True)
class Edge:
    """A best setting with a number at the edge of those that were tried.

    Attributes:
        setting: the setting.
        option: the option that has this number.
        value: the number.
        is_largest: whether it is the largest that was tried; otherwise it is the smallest.
    """

    setting: Setting
    option: str
    value: float
    is_largest: bool


def find_edges(problem: Problem) -> list[Edge]:
    """Return where the best setting of an optimizer is at the edge of its grid.

    It is the best on validation data or, where the protocol has none, on test data.
    """
    best_first: dict[str, Setting] = {}
    for setting in problem.headline:
        best_first.setdefault(setting.optimizer, setting)
    edges = []
    for best in best_first.values():
        # A run that diverged was tried too: beyond it there is nothing to look for.
        tried = [
            setting
            for setting in problem.settings
            if setting.optimizer == best.optimizer
            and any(run.lost or run.chosen for run in setting.runs)
        ]
        level = best.sample(problem.judged_on, problem.metric).mean
        as_good = [s for s in tried if s.sample(problem.judged_on, problem.metric).mean == level]
        for option, value in _numbers(best).items():
            values, as_good_values = _values(tried, option), _values(as_good, option)
            fewest = 2 if option == "lr" else FEWEST_VALUES
            if len(values) < fewest or as_good_values != {value}:
                continue
            # Zero is the end of most ranges: nothing is below it.
            if value == max(values) or value == min(values) != 0.0:
                edges.append(Edge(best, option, value, value == max(values)))
    return edges


def _values(settings: list[Setting], option: str) -> set[float]:
    """Return the numbers that settings have for an option."""
    return {numbers[option] for numbers in map(_numbers, settings) if option in numbers}


def _numbers(setting: Setting) -> dict[str, float]:
    """Return the options of a setting that are finite numbers."""
    parts = {"": setting.table["optimizer"], "schedule.": setting.table["schedule"]}
    return {
        prefix + option: float(value)
        for prefix, options in parts.items()
        for option, value in options.items()
        if type(value) in (int, float) and math.isfinite(value)
    }
