"""Settings that differ in the learning rate alone, put in order: the curves over the rate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..spec.labels import Labels, Table
from .findings import Problem, Setting


@dataclass(frozen=True)
class RateCurve:
    """The settings of an optimizer that differ in the learning rate alone.

    Attributes:
        name: the optimizer, and the options in which the curves of the problem differ.
        optimizer: the optimizer's name.
        by_rate: the settings by their learning rate, the smallest first.
    """

    name: str
    optimizer: str
    by_rate: Mapping[float, Setting]


@dataclass(frozen=True)
class RateGrid:
    """The curves of a problem with a batch size: their results are compared rate by rate.

    Attributes:
        problem: the problem.
        batch_size: the batch size; None for a training function, which decides it.
        curves: the curves, in the order of the settings.
    """

    problem: Problem
    batch_size: int | None
    curves: tuple[RateCurve, ...]

    @property
    def batches(self) -> str:
        """The batch size in words."""
        return "" if self.batch_size is None else f"batches of {self.batch_size}"

    @property
    def name(self) -> str:
        """The problem and the batch size, in words."""
        return ", ".join(filter(None, (self.problem.name, self.batches)))


def rate_grids(problem: Problem) -> list[RateGrid]:
    """Return the curves of a problem over the learning rate, for each batch size."""
    rateless = {setting.key: _without_rate(setting) for setting in problem.settings}
    names = Labels(rateless.values())
    found: dict[int | None, dict[tuple[str, str], dict[float, Setting]]] = {}
    for setting in problem.settings:
        if setting.rate:
            name = ", ".join(names.setting(rateless[setting.key])[1:])
            curves = found.setdefault(setting.table["train"].get("batch_size"), {})
            curves.setdefault((setting.optimizer, name), {})[setting.rate] = setting
    return [
        RateGrid(
            problem,
            batch_size,
            tuple(
                RateCurve(name, optimizer, dict(sorted(by_rate.items())))
                for (optimizer, name), by_rate in found[batch_size].items()
            ),
        )
        for batch_size in sorted(found, key=lambda size: size or 0)
    ]


def _without_rate(setting: Setting) -> Table:
    """Return the table of a setting without learning rate and batch size."""
    options = {key: value for key, value in setting.table["optimizer"].items() if key != "lr"}
    train = {key: value for key, value in setting.table["train"].items() if key != "batch_size"}
    return {**setting.table, "optimizer": options, "train": train}
