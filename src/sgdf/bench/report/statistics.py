"""Statistics over a few seeds: means with standard deviation and interval, paired comparisons.

For values :math:`x_1 … x_n` with mean :math:`x̄` and standard deviation :math:`s` (with
:math:`n-1`), the 95 % interval of the mean is :math:`x̄ ± t_{n-1} s/√n`, where
:math:`t_{n-1}` cuts off 2.5 % on each side of Student's distribution. Two settings are
compared by the differences seed by seed: :math:`t = d̄ √n / s_d`. Among :math:`m` comparisons
Holm's correction takes the p-values in order and multiplies the k-th smallest by
:math:`m-k+1`, so that the probability of any false finding among them stays below 5 %.
The number of seeds that a difference needs follows from the noncentral t distribution, whose
shift is :math:`d̄ √n / s_d`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

LEVEL = 0.95
POWER = 0.8
"""The probability with which a difference should be found significant."""
FEWEST_SEEDS = 3
"""With fewer pairs there is no test: two equal signs are luck in half of all cases."""
MOST_SEEDS = 1000
"""Numbers of seeds beyond this are not computed: nobody would run so many."""
ROUNDING = 1e-10
"""Differences whose spread is smaller than this part of the largest are equal but for rounding."""


@dataclass(frozen=True)
class Sample:
    """The values of one metric over the seeds.

    >>> Sample((1.0, 2.0, 3.0)).mean, Sample((1.0, 2.0, 3.0)).sd, Sample((1.0,)).sd
    (2.0, 1.0, None)
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean: NaN without values, NaN or infinite if a value is."""
        return _mean(self.values)

    @property
    def sd(self) -> float | None:
        """The standard deviation; None for fewer than two values, or if one is not finite."""
        if len(self.values) < 2 or not all(map(math.isfinite, self.values)):
            return None
        return statistics.stdev(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean; None without a standard deviation."""
        if self.sd is None:
            return None
        half = _quantile(len(self.values) - 1) * self.sd / math.sqrt(len(self.values))
        return self.mean - half, self.mean + half


@dataclass(frozen=True)
class Comparison:
    """One setting against another, seed by seed.

    Attributes:
        first: the index of the first setting.
        second: the index of the second setting.
        difference: the first minus the second, for each seed that both have.
        p: the p-value of the paired t-test: the probability of a mean difference at least this
            large if there were none; None where the differences have no spread, or are too few.
        corrected: the p-value after Holm's correction.
        obstacles: for each seed that was left out, why its pair is not comparable.
    """

    first: int
    second: int
    difference: Sample
    p: float | None
    corrected: float | None = None
    obstacles: tuple[str, ...] = ()


def compare(
    settings: Sequence[Mapping[int, float]],
    obstacle: Callable[[int, int, int], str] = lambda first, second, seed: "",
) -> list[Comparison]:
    """Return the comparison of each pair of settings, given the values of each by seed.

    Args:
        settings: the values of each setting by seed.
        obstacle: returns why the runs of two settings with a seed are not comparable, or "".
    """
    comparisons = []
    for first, one in enumerate(settings):
        for second, other in enumerate(settings[first + 1 :], start=first + 1):
            shared = sorted(one.keys() & other.keys())
            reasons = {seed: obstacle(first, second, seed) for seed in shared}
            difference = Sample(
                tuple(one[seed] - other[seed] for seed in shared if not reasons[seed])
            )
            p = p_value(difference) if len(difference.values) >= FEWEST_SEEDS else None
            obstacles = tuple(filter(None, reasons.values()))
            comparisons.append(Comparison(first, second, difference, p, None, obstacles))
    corrected = holm([comparison.p for comparison in comparisons])
    return [replace(c, corrected=p) for c, p in zip(comparisons, corrected, strict=True)]


def has_no_spread(sample: Sample) -> bool:
    """Return whether there are several values, and all are equal but for rounding.

    >>> has_no_spread(Sample((0.3 - 0.2, 0.4 - 0.3))), has_no_spread(Sample((0.1,)))
    (True, False)
    """
    return sample.sd is not None and sample.sd <= ROUNDING * max(map(abs, sample.values))


def p_value(difference: Sample) -> float | None:
    """Return the two-sided p-value of the paired t-test.

    Differences that are all equal, but for rounding, have no spread, and so no p-value; it is 1
    if all of them are zero.
    """
    if difference.sd is None:
        return None
    if has_no_spread(difference):
        return None if any(difference.values) else 1.0
    from scipy import stats

    count = len(difference.values)
    t = difference.mean * math.sqrt(count) / difference.sd
    return float(2.0 * stats.t.sf(abs(t), count - 1))


def seeds_needed(difference: Sample) -> int | None:
    """Return how many seeds would show a difference like this one to be significant.

    It is the smallest number for which a paired t-test at 5 % finds a true difference of this
    mean and standard deviation with a probability of 80 %. None if there is no such number up to
    ``MOST_SEEDS``, or no spread to compute it from.

    >>> seeds_needed(Sample((0.5 - 2**0.5 / 2, 0.5 + 2**0.5 / 2)))  # half a standard deviation
    34
    """
    if difference.sd is None or has_no_spread(difference) or not difference.mean:
        return None
    from scipy import stats

    effect = abs(difference.mean) / difference.sd

    def is_enough(count: int) -> bool:
        cut, shift = _quantile(count - 1), effect * math.sqrt(count)
        tails = stats.nct.sf(cut, count - 1, shift) + stats.nct.cdf(-cut, count - 1, shift)
        return not tails < POWER  # for a huge shift it is not a number

    # With a known standard deviation fewer would do: the normal distribution gives where to begin.
    normal = stats.norm.ppf((1.0 + LEVEL) / 2.0) + stats.norm.ppf(POWER)
    first = max(FEWEST_SEEDS, math.floor((normal / effect) ** 2) if effect > 1e-3 else MOST_SEEDS)
    return next((count for count in range(first, MOST_SEEDS + 1) if is_enough(count)), None)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Return p-values after Holm's correction; None stays None, and does not count as a test.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    known = sorted((value, index) for index, value in enumerate(values) if value is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (value, index) in enumerate(known):
        largest = max(largest, min(1.0, value * (len(known) - rank)))
        corrected[index] = largest
    return corrected


def _mean(values: Sequence[float]) -> float:
    if not values:
        return math.nan
    return statistics.fmean(values) if all(map(math.isfinite, values)) else sum(values)


def _quantile(freedom: int) -> float:
    from scipy import stats

    return float(stats.t.ppf((1.0 + LEVEL) / 2.0, freedom))
