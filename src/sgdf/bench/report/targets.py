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

from ..store.records import Row, figures_on
from .findings import Problem, RunRecord, Setting


@dataclass(frozen=True)
class Target:
    """A value of the metric that a problem is judged by."""

    problem: Problem
    value: float
    given: bool
    """Whether somebody asked for it; else three quarters of the optimizers reach it each time."""

    @classmethod
    def of(cls, problem: Problem, given: float | None) -> Target | None:
        """Return the target that is given, or what three quarters of several reach each time."""
        if given is not None:
            return cls(problem, given, True)
        samples = [s.sample(problem.judged_on, problem.metric) for s in problem.headline]
        worst = [
            (min if problem.larger_is_better else max)(sample.values)
            for sample in samples
            if math.isfinite(sample.mean)
        ]
        if len(worst) < 2:
            return None
        worst.sort(reverse=not problem.larger_is_better)
        return cls(problem, worst[len(worst) // 4], False)

    def hit(self, run: RunRecord) -> Hit | None:
        """Return when a run reached the target first, or None if it never did, or was lost."""
        if run.lost:
            return None
        split, metric, largest = (
            self.problem.judged_on,
            self.problem.metric,
            self.problem.larger_is_better,
        )
        for row in run.epochs:
            value = figures_on(row, split).get(metric, math.nan)
            if value >= self.value if largest else value <= self.value:
                return Hit(row["step"], row["epoch"], training_seconds(row))
        return None

    def hits(self, setting: Setting) -> list[Hit | None]:
        """Return the hits and misses of the runs that are over, or were lost."""
        return [self.hit(run) for run in setting.runs if run.lost or run.chosen]

    def typical(self, setting: Setting) -> Hit | None:
        """Return the medians over the seeds, a miss being later than any hit."""
        hits = self.hits(setting)
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

    The optimizers are those that every problem has, and the instances those on which all of them
    have a run that is over, and some reached the target. A problem with several settings of one
    optimizer that nobody may choose from is left out.
    """
    settings = [
        {setting.optimizer: setting for setting in target.problem.headline} for target in targets
    ]
    kept = [
        (target, own)
        for target, own in zip(targets, settings, strict=True)
        if len(own) == len(target.problem.headline)
    ]
    names = sorted(set.intersection(*(set(own) for _, own in kept))) if kept else []
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for target, own in kept:
        runs = {
            name: {run.seed: run for run in own[name].runs if run.lost or run.chosen}
            for name in names
        }
        for seed in set.intersection(*(set(by_seed) for by_seed in runs.values())):
            hits = {name: target.hit(by_seed[seed]) for name, by_seed in runs.items()}
            steps = {name: hit.step if hit else math.inf for name, hit in hits.items()}
            best = min(steps.values())
            if math.isfinite(best):
                for name, needed in steps.items():
                    ratios[name].append(needed / best)
    return {name: sorted(found) for name, found in ratios.items() if found}


def share_within(ratios: Mapping[str, list[float]], factor: float) -> dict[str, float]:
    """Return the share of instances on which each was within a factor of the best.

    >>> share_within({"sgd": [1.0, 1.5, float("inf")]}, 2.0)
    {'sgd': 0.6666666666666666}
    """
    return {
        name: sum(ratio <= factor for ratio in found) / len(found) for name, found in ratios.items()
    }
