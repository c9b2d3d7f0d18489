"""How soon a target is reached, and how often an optimizer is nearly the first to do so.

A performance profile (Dolan and Moré) counts, for each factor, on what share of the instances
an optimizer needed at most so many times the steps of the best one. An instance is a problem
with a seed. Who misses the target is not within any factor.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .data import Problem, Row, RunRecord, Setting


@dataclass(frozen=True)
class Target:
    """A value of the metric that a problem is judged by."""

    problem: Problem
    value: float
    given: bool
    """Whether somebody asked for it; else three quarters of the optimizers come to it."""

    @classmethod
    def of(cls, problem: Problem, given: float | None) -> Target | None:
        """Return the target that is given, or the mean that three quarters come to, if any."""
        if given is not None:
            return cls(problem, given, True)
        means = [
            setting.sample(problem.judged_on, problem.metric).mean for setting in problem.headline
        ]
        finite = sorted(filter(math.isfinite, means), reverse=not problem.largest)
        return cls(problem, finite[len(finite) // 4], False) if finite else None

    def hit(self, run: RunRecord) -> Hit | None:
        """Return when a run reached the target first, or None if it never did."""
        split, metric, largest = self.problem.judged_on, self.problem.metric, self.problem.largest
        for row in run.epochs:
            value = row.get(split, {}).get(metric, math.nan)
            if value >= self.value if largest else value <= self.value:
                return Hit(row["step"], row["epoch"], training_seconds(row))
        return None

    def typical(self, setting: Setting) -> Hit | None:
        """Return the medians over the seeds, a miss being later than any hit."""
        hits = [self.hit(run) for run in setting.runs]
        found = [hit for hit in hits if hit is not None]
        if 2 * len(found) <= len(hits):
            return None
        never = [math.inf] * (len(hits) - len(found))
        return Hit(
            step=statistics.median([*(hit.step for hit in found), *never]),
            epoch=statistics.median([*(hit.epoch for hit in found), *never]),
            seconds=statistics.median([*(hit.seconds for hit in found), *never]),
        )


@dataclass(frozen=True)
class Hit:
    """When a target was reached: evaluation is off the clock."""

    step: float
    epoch: float
    seconds: float


def training_seconds(row: Row) -> float:
    """Return how long a run had trained by then, without its evaluations."""
    return float(row["seconds"]["step"] + row["seconds"]["data"])


def profiles(targets: Sequence[Target]) -> dict[str, list[float]]:
    """Return for each optimizer its ratios to the best, one for each instance, in order.

    Instances on which nobody reached the target are left out. Where an optimizer has several
    settings of equal standing, the first of them stands for it.
    """
    ratios: dict[str, list[float]] = {}
    for target in targets:
        first = {s.optimizer: s for s in reversed(target.problem.headline)}
        for seed in sorted({run.seed for setting in first.values() for run in setting.runs}):
            steps = {name: _steps(target, setting, seed) for name, setting in first.items()}
            best = min(steps.values())
            if math.isfinite(best):
                for name, needed in steps.items():
                    ratios.setdefault(name, []).append(needed / best)
    return {name: sorted(found) for name, found in sorted(ratios.items())}


def share_within(ratios: Mapping[str, list[float]], factor: float) -> dict[str, float]:
    """Return the share of instances on which each was within a factor of the best.

    >>> share_within({"sgd": [1.0, 1.5, float("inf")]}, 2.0)
    {'sgd': 0.6666666666666666}
    """
    return {
        name: sum(ratio <= factor for ratio in found) / len(found) for name, found in ratios.items()
    }


def _steps(target: Target, setting: Setting, seed: int) -> float:
    hits = (target.hit(run) for run in setting.runs if run.seed == seed)
    return next((hit.step for hit in hits if hit is not None), math.inf)
