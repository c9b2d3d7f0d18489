"""How wide the range of good learning rates is, for each optimizer on each problem.

A curve is the mean over the seeds of the metric by which settings are judged, against the logarithm
of the learning rate. A rate is good if its mean is within a tolerance of the best mean that any
optimizer has with this batch size. The width is the length in decades of the connected range of
good rates around the best one. Its ends are interpolated between the rates.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...present.table import NOTHING, Cell, Table, number_cell
from ...present.words import quantity
from .findings import Findings, Problem, Setting
from .rate_curves import RateCurve, RateGrid, rate_grids
from .sample_cells import mean_cell
from .statistics import Comparison, Sample, compare, holm

FEWEST_RATES = 5
"""A curve with fewer rates has no width, nor is there one without a second curve beside it."""
REFERENCE = "sgdf"
"""The optimizer with which the widths of the others are compared."""
POINT, NATS = 0.01, 0.05
"""How far from the best a good accuracy may be, and how far a good cross-entropy."""
SMALLEST_LOSS = 10 * NATS
"""A loss has no ranges if its best mean is smaller: the tolerance would be too large for it."""
ROUNDING = 1e-12
"""A mean that is worse than the level by less is at the level."""


class Window(NamedTuple):
    """A range of good learning rates.

    Attributes:
        low: its lower end.
        high: its upper end.
        cut_low: whether it ends there because no smaller rate was tried.
        cut_high: whether it ends there because no larger rate was tried.
    """

    low: float
    high: float
    cut_low: bool = False
    cut_high: bool = False

    @property
    def width(self) -> float:
        """Its length in decades."""
        return math.log10(self.high / self.low)

    @property
    def is_cut(self) -> bool:
        """Whether it may be wider than the rates that were tried."""
        return self.cut_low or self.cut_high

    @property
    def ends_in_words(self) -> str:
        """Its ends, to two digits."""
        return (
            f"{'≤ ' if self.cut_low else ''}{self.low:.2g} to "
            f"{'≥ ' if self.cut_high else ''}{self.high:.2g}"
        )

    @property
    def width_in_words(self) -> str:
        """Its width, and whether it may be larger."""
        return f"{'at least ' if self.is_cut else ''}{self.width:.2f}"


def find_window(
    scores: Mapping[float, float], level: float, refused: Collection[float] = ()
) -> Window | None:
    """Return the connected range around the best rate in which the score is at least the level.

    Args:
        scores: the score of each rate; larger is better.
        level: the smallest good score.
        refused: rates that are not good, whatever their score is.

    >>> find_window({0.1: 0.0, 1.0: 1.0, 10.0: 0.5}, level=0.5)
    Window(low=0.31622776601683794, high=10.0, cut_low=False, cut_high=True)
    """
    rates = sorted(scores)
    is_good = [scores[rate] >= level - ROUNDING and rate not in refused for rate in rates]
    if not any(is_good):
        return None
    first = last = max(
        (index for index, good in enumerate(is_good) if good), key=lambda i: scores[rates[i]]
    )
    while first > 0 and is_good[first - 1]:
        first -= 1
    while last < len(rates) - 1 and is_good[last + 1]:
        last += 1
    cut_low, cut_high = first == 0, last == len(rates) - 1
    low = rates[0] if cut_low else _crossing(scores, rates[first], rates[first - 1], level)
    high = rates[-1] if cut_high else _crossing(scores, rates[last], rates[last + 1], level)
    return Window(low, high, cut_low, cut_high)


def _crossing(scores: Mapping[float, float], good: float, bad: float, level: float) -> float:
    """Return the rate between a good and a bad one at which the score falls below the level."""
    if scores[bad] >= level:  # it is bad for another reason: the last good rate is the end
        return good
    share = max(0.0, scores[good] - level) / (scores[good] - scores[bad])
    return float(good * (bad / good) ** share)


@dataclass(frozen=True)
class CurveWindows:
    """The ranges of good learning rates of one curve.

    Attributes:
        curve: the curve.
        best: the setting with the best mean; None if a run was lost at every rate.
        common: the range at the level that all curves share; None if no rate is good.
        own: the range within the same tolerance of the curve's own best mean.
        by_seed: the widths of the seeds' own curves at the common level.
        beside: the reference's widths minus these, seed by seed; None for the reference itself.
    """

    curve: RateCurve
    best: Setting | None
    common: Window | None
    own: Window | None
    by_seed: Mapping[int, float]
    beside: Comparison | None = None


@dataclass(frozen=True)
class GridWindows:
    """The ranges of all curves that are compared.

    Attributes:
        grid: the curves.
        best: the best mean of all.
        tolerance: how far from the best a good mean may be.
        level: the worst good mean.
        curves: the ranges of each curve that has enough rates.
    """

    grid: RateGrid
    best: float
    tolerance: float
    level: float
    curves: tuple[CurveWindows, ...]


def tolerance_of(problem: Problem, best: float) -> float | None:
    """Return how far from the best a good value may be; None if that is not known of the metric."""
    scale, unit = problem.units[problem.metric]
    if unit == "%" or "accuracy" in problem.metric:
        return POINT * 100.0 / scale
    # A loss may be anything, such as a mean squared error of 0.001, for which all would be good.
    return NATS if problem.metric == "loss" and best >= SMALLEST_LOSS else None


def has_enough_rates(grid: RateGrid) -> bool:
    """Return whether two curves or more have enough rates for a range."""
    return sum(len(curve.by_rate) >= FEWEST_RATES for curve in grid.curves) >= 2


def find_windows(findings: Findings) -> list[GridWindows]:
    """Return the ranges on each problem with each batch size for which there are any."""
    grids = [grid for problem in findings.problems for grid in rate_grids(problem)]
    return [windows for grid in grids if (windows := windows_of(grid)) is not None]


def windows_of(grid: RateGrid) -> GridWindows | None:
    """Return the ranges of curves.

    None if fewer than two curves have enough rates with a result, or without a tolerance.
    """
    sign = 1.0 if grid.problem.larger_is_better else -1.0
    scored = [(curve, _scores(grid.problem, curve, sign)) for curve in grid.curves]
    finished = [
        score
        for _, by_rate in scored
        for by_seed in by_rate.values()
        for score in by_seed.values()
        if score is not None
    ]
    wide = [curve for curve, by_rate in scored if len(by_rate) >= FEWEST_RATES]
    if len(wide) < 2 or not finished:
        return None
    worst = min(finished)
    whole = {
        curve.name: {
            rate: Sample(tuple(worst if s is None else s for s in by_seed.values())).mean
            for rate, by_seed in by_rate.items()
        }
        for curve, by_rate in scored
    }
    lost = {
        curve.name: {rate for rate, by_seed in by_rate.items() if None in by_seed.values()}
        for curve, by_rate in scored
    }
    tops = {
        name: max((m for rate, m in means.items() if rate not in lost[name]), default=None)
        for name, means in whole.items()
    }
    best = max((top for top in tops.values() if top is not None), default=None)
    tolerance = None if best is None else tolerance_of(grid.problem, sign * best)
    if best is None or tolerance is None:
        return None
    level = best - tolerance
    curves = []
    for curve, by_rate in scored:
        if curve not in wide:
            continue
        means, refused, top = whole[curve.name], lost[curve.name], tops[curve.name]
        found = [rate for rate, mean in means.items() if mean == top and rate not in refused]
        own = None if top is None else find_window(means, top - tolerance, refused)
        curves.append(
            CurveWindows(
                curve,
                curve.by_rate[found[0]] if found else None,
                find_window(means, level, refused),
                own,
                _widths_by_seed(by_rate, level, worst),
            )
        )
    return GridWindows(grid, sign * best, tolerance, sign * level, _beside_reference(curves))


def _scores(
    problem: Problem, curve: RateCurve, sign: float
) -> dict[float, dict[int, float | None]]:
    """Return the score of each seed at each rate with a result; None for a run that was lost."""
    scores: dict[float, dict[int, float | None]] = {}
    for rate, setting in curve.by_rate.items():
        values = setting.values(problem.judged_on, problem.metric)
        by_seed: dict[int, float | None] = {seed: sign * value for seed, value in values.items()}
        by_seed |= {run.seed: None for run in setting.runs if run.lost}
        if by_seed:
            scores[rate] = by_seed
    return scores


def _widths_by_seed(
    by_rate: Mapping[float, Mapping[int, float | None]], level: float, worst: float
) -> dict[int, float]:
    """Return the width of each seed's own curve, for the seeds that have all rates."""
    seeds = set.intersection(*(set(by_seed) for by_seed in by_rate.values()))
    widths = {}
    for seed in sorted(seeds):
        own = {rate: by_seed[seed] for rate, by_seed in by_rate.items()}
        refused = {rate for rate, score in own.items() if score is None}
        window = find_window(
            {rate: worst if score is None else score for rate, score in own.items()}, level, refused
        )
        widths[seed] = window.width if window else 0.0
    return widths


def _beside_reference(curves: list[CurveWindows]) -> tuple[CurveWindows, ...]:
    """Return the curves with the tests of the reference's widths against theirs."""
    reference = next((one for one in curves if one.curve.optimizer == REFERENCE), None)
    if reference is None:
        return tuple(curves)
    others = [one for one in curves if one is not reference]
    tests = [compare([reference.by_seed, one.by_seed])[0] for one in others]
    corrected = holm([test.p for test in tests])
    beside = {
        one.curve.name: replace(test, corrected=p)
        for one, test, p in zip(others, tests, corrected, strict=True)
    }
    return tuple(replace(one, beside=beside.get(one.curve.name)) for one in curves)


def windows_table(found: Sequence[GridWindows], section: str) -> Table:
    """Return the ranges on all problems as a table."""
    rows = [_row(windows, one) for windows in found for one in windows.curves]
    tolerances = sorted({_tolerance_in_words(windows) for windows in found})
    return Table(
        "windows",
        section,
        "Range of good learning rates",
        "A learning rate is good if the mean over the seeds is within "
        f"{' or '.join(tolerances)} of the best mean that any optimizer has with the same batch "
        "size. The width is the length, in decades, of the connected range of good rates around "
        "the optimizer's best; the ends are interpolated between the rates. The second width uses "
        "the same tolerance, but from the optimizer's own best mean. A rate at which a run was "
        "lost is not good; the run counts as the worst value. Over the seeds: the mean ± standard "
        f"deviation of the widths of the seeds' own curves at the common level, {REFERENCE}'s "
        "width minus this one's, and the paired t-test of that, corrected by Holm for the number "
        "of optimizers.",
        (
            "problem",
            "batch size",
            "optimizer",
            "best lr",
            "mean there",
            "good means",
            "good rates",
            "width, common level (decades)",
            "width, own level (decades)",
            "width over the seeds",
            f"{REFERENCE}'s width minus this one's",
            "p",
            "p, corrected",
        ),
        tuple(rows),
    ).without_empty_columns()


def _row(windows: GridWindows, one: CurveWindows) -> tuple[Cell, ...]:
    problem, best = windows.grid.problem, one.best
    scale, unit = problem.units[problem.metric]
    bound = "≥" if problem.larger_is_better else "≤"
    mean = best.sample(problem.judged_on, problem.metric).mean if best else None
    return (
        Cell(problem.name),
        number_cell(windows.grid.batch_size),
        Cell(
            one.curve.name,
            key=next(iter(one.curve.by_rate.values())).key,
            optimizer=one.curve.optimizer,
        ),
        number_cell(best.rate if best else None, 3),
        Cell(NOTHING)
        if mean is None
        else Cell(quantity(scale * mean, unit), scale * mean, {"": scale * mean}),
        Cell(f"{bound} {quantity(scale * windows.level, unit)}", scale * windows.level),
        _range_cell(one.common),
        _width_cell(one.common),
        _width_cell(one.own),
        mean_cell(Sample(tuple(one.by_seed.values()))),
        mean_cell(one.beside.difference) if one.beside else Cell(NOTHING),
        number_cell(one.beside.p if one.beside else None, 2),
        number_cell(one.beside.corrected if one.beside else None, 2),
    )


def _range_cell(window: Window | None) -> Cell:
    if window is None:
        return Cell("none")
    return Cell(window.ends_in_words, window.low, {"low": window.low, "high": window.high})


def _width_cell(window: Window | None) -> Cell:
    width, cut = (window.width, window.is_cut) if window else (0.0, False)
    text = window.width_in_words if window else "0"
    return Cell(text, width, {"": width, "is at least": float(cut)})


def _tolerance_in_words(windows: GridWindows) -> str:
    problem = windows.grid.problem
    scale, unit = problem.units[problem.metric]
    size = f"{scale * windows.tolerance:g}{' point' if unit == '%' else ''}"
    return f"{size} of {problem.metric}"
