"""What was measured, sorted into settings: a number for each seed, and its spread over planes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...bench.report.statistics import Sample
from ..conduct import Measured
from ..settings import MeasuredSetting, by_setting
from .lines import Line, barrier
from .numbers import common_level, own_level, share_below


@dataclass(frozen=True)
class Spread:
    """A number of a setting: for each seed the mean over the planes, and how far planes differ.

    Attributes:
        by_seed: the mean over the planes of each run, by its seed.
        over_pairs: the standard deviation over the planes of a run, as a mean over the runs; None
            where there is one plane.
    """

    by_seed: dict[int, float]
    over_pairs: float | None

    @property
    def sample(self) -> Sample:
        """The values of the seeds."""
        return Sample(tuple(self.by_seed.values()))


class Planes:
    """The planes of one run."""

    def __init__(self, one: Measured) -> None:
        self.run = one.run
        self.losses = np.array(one.record["planes"], float)
        """A grid of losses for each pair of directions; the first direction is along a row."""
        self.cosines = [pair["cosine"] for pair in one.record["pairs"]]
        self.curvatures = [sum(pair["curvatures"]) for pair in one.record["pairs"]]

    @property
    def centre(self) -> float:
        """The loss of the network itself."""
        middle = self.losses.shape[1] // 2
        return float(self.losses[0, middle, middle])

    @property
    def slices(self) -> np.ndarray:
        """The losses along each direction, a row for each: the middles of the planes."""
        middle = self.losses.shape[1] // 2
        return np.concatenate([self.losses[:, middle, :], self.losses[:, :, middle]])

    def shares(self, level: float | None = None) -> list[float]:
        """Return the share of each plane below a level, by default below the run's own."""
        height = own_level(self.centre) if level is None else level
        return [share_below(plane, height) for plane in self.losses.tolist()]


@dataclass(frozen=True)
class Setting(MeasuredSetting):
    """The planes of all seeds of a setting."""

    @cached_property
    def planes(self) -> tuple[Planes, ...]:
        """Those of each run."""
        return tuple(map(Planes, self.runs))

    def shares(self, level: float | None = None) -> Spread:
        """Return the share of the planes below a level, by default below each run's own."""
        return self._spread([one.shares(level) for one in self.planes])

    def curvatures(self) -> Spread:
        """Return the curvatures at the centre."""
        return self._spread([one.curvatures for one in self.planes])

    def centres(self) -> Sample:
        """Return the losses of the networks."""
        return Sample(tuple(one.centre for one in self.planes))

    def _spread(self, values: Sequence[Sequence[float]]) -> Spread:
        by_seed = {
            one.run.run.seed: statistics.fmean(row)
            for one, row in zip(self.planes, values, strict=True)
        }
        deviations = [Sample(tuple(row)).sd for row in values]
        known = [deviation for deviation in deviations if deviation is not None]
        return Spread(by_seed, statistics.fmean(known) if known else None)


@dataclass(frozen=True)
class LineGroup:
    """The lines between runs of the same two settings, or within one."""

    name: str
    lines: tuple[Line, ...]
    losses: np.ndarray

    @property
    def within(self) -> bool:
        """Whether both ends are of one setting."""
        return self.lines[0].setting == self.lines[0].end.setting

    def barriers(self) -> Sample:
        """Return how far the loss rises on each line."""
        return Sample(tuple(barrier(row) for row in self.losses.tolist()))


class LandscapeFindings:
    """The measurements of all runs and lines.

    Args:
        measured: finished records.
        level: the loss that all runs are compared at; None for one that follows from the largest
            loss of a network.
    """

    def __init__(self, measured: Sequence[Measured], level: float | None = None) -> None:
        runs = [one for one in measured if not isinstance(one.run, Line)]
        self.settings = [
            Setting(setting.name, setting.optimizer, setting.runs) for setting in by_setting(runs)
        ]
        self.examples = list(dict.fromkeys(one.record["examples"] for one in measured))
        self.same_shapes = len({one.record["shapes"] for one in runs}) <= 1
        self.line_groups = _line_groups(measured)
        self._level = level

    @cached_property
    def level(self) -> float:
        """The loss that all runs are compared at."""
        if self._level is not None:
            return self._level
        return common_level(one.centre for setting in self.settings for one in setting.planes)


def _line_groups(measured: Sequence[Measured]) -> list[LineGroup]:
    groups: dict[str, list[tuple[Line, list[float]]]] = {}
    for one in measured:
        line = one.run
        if isinstance(line, Line):
            ends = dict.fromkeys((line.setting, line.end.setting))
            groups.setdefault(" – ".join(ends), []).append((line, one.record["line"]))
    return [
        LineGroup(name, tuple(line for line, _ in group), np.array([row for _, row in group]))
        for name, group in groups.items()
    ]
