"""The time to a target, and how often an optimizer is nearly the fastest to reach it.

A performance profile (Dolan and Moré) is a function of a factor: the share of instances on which
an optimizer reached the target within this factor times the steps of the fastest optimizer. An
instance is a problem with a seed. A run that misses the target is within no factor.
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
    """Whether it was requested; otherwise it was chosen from the results."""

    @classmethod
    def of(cls, problem: Problem, given: float | None) -> Target | None:
        """Return the given target, or else one that three quarters of the optimizers reach.

        The latter is reached with every seed by three quarters of the optimizers. There is none
        if fewer than two optimizers have results, and none at all if a training function returned
        its metrics once: then it is not known when a run reached a value.
        """
        if problem.returned_once:
            return None
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
        """Return when a run first reached the target; None if it never did or is lost."""
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
        """Return the hit or miss of each run that is finished or lost."""
        return [self.hit(run) for run in setting.runs if run.lost or run.chosen]

    def typical(self, setting: Setting) -> Hit | None:
        """Return the medians over the seeds, or None if half of the seeds or more miss the target.

        A miss counts as later than any hit.
        """
        outcomes = self.hits(setting)
        hits = [hit for hit in outcomes if hit is not None]
        if 2 * len(hits) <= len(outcomes):
            return None
        misses = [math.inf] * (len(outcomes) - len(hits))
        return Hit(
            step=statistics.median([*(hit.step for hit in hits), *misses]),
            epoch=statistics.median([*(hit.epoch for hit in hits), *misses]),
            seconds=statistics.median([*(hit.seconds for hit in hits), *misses]),
        )


@dataclass(frozen=True)
class Hit:
    """When a target was reached; the time of evaluations is not counted."""

    step: float
    epoch: float
    seconds: float


def training_seconds(row: Row) -> float:
    """Return how long a run had trained when a row was written, without its evaluations."""
    return float(row["seconds"]["step"] + row["seconds"]["data"])


def profiles(targets: Sequence[Target]) -> dict[str, list[float]]:
    """Return for each optimizer its steps divided by those of the fastest, for each instance.

    The ratios of an optimizer are sorted. Only optimizers that were tried on every problem count,
    and only instances on which each of them has a run that is finished or lost, and one of them
    reached the target. A problem on which an optimizer has several settings, and whose
    protocol leaves no data to choose one, is left out.
    """
    settings = [
        {setting.optimizer: setting for setting in target.problem.headline} for target in targets
    ]
    kept = [
        (target, by_optimizer)
        for target, by_optimizer in zip(targets, settings, strict=True)
        if len(by_optimizer) == len(target.problem.headline)
    ]
    names = sorted(set.intersection(*(set(tried) for _, tried in kept))) if kept else []
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for target, by_optimizer in kept:
        runs = {
            name: {run.seed: run for run in by_optimizer[name].runs if run.lost or run.chosen}
            for name in names
        }
        for seed in set.intersection(*(set(by_seed) for by_seed in runs.values())):
            hits = {name: target.hit(by_seed[seed]) for name, by_seed in runs.items()}
            steps = {name: hit.step if hit else math.inf for name, hit in hits.items()}
            best = min(steps.values())
            if math.isfinite(best):
                for name, needed in steps.items():
                    ratios[name].append(needed / best)
    return {name: sorted(values) for name, values in ratios.items() if values}


def share_within(ratios: Mapping[str, list[float]], factor: float) -> dict[str, float]:
    """Return the share of instances on which each optimizer was within a factor of the fastest.

    >>> share_within({"sgd": [1.0, 1.5, float("inf")]}, 2.0)
    {'sgd': 0.6666666666666666}
    """
    return {
        name: sum(ratio <= factor for ratio in values) / len(values)
        for name, values in ratios.items()
    }
