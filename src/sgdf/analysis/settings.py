"""Measured runs arranged by setting: what differs in the seed alone is averaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..bench.report.optimizer_styles import optimizer_styles
from ..bench.report.statistics import Sample
from ..bench.tasks.metric import shown_as
from ..present.styles import Style
from ..present.table import Cell
from ..present.words import in_brackets
from .conduct import Measured

LOSS_ON_EXAMPLES, TRAINING_LOSS = "loss on these examples", "training loss"
ABOUT_LOSSES = (
    f"The {LOSS_ON_EXAMPLES} is that of the trained network, on the examples that the analysis "
    f"uses. The {TRAINING_LOSS} is the mean over the batches of the last epoch, while the network "
    "trained on them."
)
"""What the two losses beside a measurement are."""


@dataclass(frozen=True)
class MeasuredSetting:
    """The measured runs of one setting, one for each seed."""

    name: str
    optimizer: str
    runs: tuple[Measured, ...]

    def sample(self, value: Callable[[Measured], float | None]) -> Sample:
        """Return a value of each run; runs that do not have it are left out."""
        values = [value(run) for run in self.runs]
        return Sample(tuple(each for each in values if each is not None))

    def by_seed(self, value: Callable[[Measured], float | None]) -> dict[int, float]:
        """Return a value of each run by its seed; runs that do not have it are left out."""
        values = {one.run.run.seed: value(one) for one in self.runs}
        return {seed: each for seed, each in values.items() if each is not None}

    @property
    def task(self) -> str:
        """The name of its task among those that are analysed."""
        return self.runs[0].run.task

    @property
    def cell(self) -> Cell:
        """Its name in a table, in the colour of its optimizer."""
        return Cell(self.name, key=self.runs[0].run.run.key, optimizer=self.optimizer)


def last_test_results(settings: Sequence[MeasuredSetting]) -> tuple[str, list[Sample]]:
    """Return the results on test data at the last epoch, whose weights are analysed.

    Returns:
        The heading of their column, and the results of each setting, by the metric of the first
        run that has a result.
    """
    results = [one.run.result for setting in settings for one in setting.runs if one.run.result]
    metric = results[0]["metric"] if results else "loss"
    samples = [setting.sample(lambda one: one.run.last("test").get(metric)) for setting in settings]
    values = [value for sample in samples for value in sample.values]
    scale, unit = shown_as(metric, results[0].get("unit") if results else None, values)
    scaled = [Sample(tuple(scale * value for value in sample.values)) for sample in samples]
    return f"test {metric}{in_brackets(unit)}", scaled


S = TypeVar("S", bound=MeasuredSetting)


def by_setting(measured: Sequence[Measured]) -> list[MeasuredSetting]:
    """Return the settings in the order of their first runs."""
    groups: dict[str, list[Measured]] = {}
    for one in measured:
        groups.setdefault(one.run.setting, []).append(one)
    return [
        MeasuredSetting(name, runs[0].run.optimizer, tuple(runs)) for name, runs in groups.items()
    ]


def by_task(settings: Sequence[MeasuredSetting]) -> list[list[MeasuredSetting]]:
    """Return the settings of each task together; only these can be compared."""
    groups: dict[str, list[MeasuredSetting]] = {}
    for setting in settings:
        task = setting.runs[0].run.run.task.table
        groups.setdefault(json.dumps(task, sort_keys=True), []).append(setting)
    return list(groups.values())


def styled(settings: Sequence[S]) -> Iterator[tuple[S, Style]]:
    """Yield each setting with its style; settings of one optimizer share its hue."""
    by_name: Mapping[str, Style] = optimizer_styles({setting.optimizer for setting in settings})
    drawn: dict[str, int] = {}
    for setting in settings:
        count = drawn.get(setting.optimizer, 0)
        drawn[setting.optimizer] = count + 1
        yield setting, by_name[setting.optimizer].variant(count)
