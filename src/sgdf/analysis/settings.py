"""Measured runs arranged by setting: what differs in the seed alone is averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..bench.report.optimizer_styles import optimizer_styles
from ..bench.report.statistics import Sample
from ..present.styles import Style
from ..present.table import Cell
from .conduct import Measured


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

    @property
    def cell(self) -> Cell:
        """Its name in a table, in the colour of its optimizer."""
        return Cell(self.name, key=self.runs[0].run.run.key, optimizer=self.optimizer)


S = TypeVar("S", bound=MeasuredSetting)


def by_setting(measured: Sequence[Measured]) -> list[MeasuredSetting]:
    """Return the settings in the order of their first runs."""
    groups: dict[str, list[Measured]] = {}
    for one in measured:
        groups.setdefault(one.run.setting, []).append(one)
    return [
        MeasuredSetting(name, runs[0].run.optimizer, tuple(runs)) for name, runs in groups.items()
    ]


def styled(settings: Sequence[S]) -> Iterator[tuple[S, Style]]:
    """Yield each setting with its style; settings of one optimizer share its hue."""
    by_name: Mapping[str, Style] = optimizer_styles({setting.optimizer for setting in settings})
    drawn: dict[str, int] = {}
    for setting in settings:
        count = drawn.get(setting.optimizer, 0)
        drawn[setting.optimizer] = count + 1
        yield setting, by_name[setting.optimizer].variant(count)
