"""Whether a smaller state trains as full state does, as states-digits.toml defines it."""

from __future__ import annotations

import json
import statistics
from typing import NamedTuple

from scipy import stats

from locations import ROOT

RECORDS = ROOT / "records" / "states"
TASKS = ("digits", "characters", "cifar100", "ptb")
EPS = (9.9e-9, 1e-8, 1.01e-8)


class Difference(NamedTuple):
    """How far the runs of a setting are from those with full state."""

    mean: float
    """Of all seeds."""
    bound: float
    """What jitter alone would stay below in 95 of 100 cases."""
    spread: float
    """Standard deviation over the seeds of the differences to the seed's mean with full state."""

    @property
    def is_within(self) -> bool:
        """Whether jitter alone explains the difference."""
        return abs(self.mean) <= self.bound


def settings_of(task):
    """Return the settings of an experiment by format and control."""
    (problem,) = json.loads((RECORDS / f"states-{task}.json").read_text())
    return {name_of(setting["optimizer"]): setting for setting in problem["settings"]}


def settings_on_more_seeds(task):
    """Return the settings of an experiment on more seeds by format."""
    problems = json.loads((RECORDS / "states-seeds.json").read_text())
    (settings,) = (p["settings"] for p in problems if task in p["settings"][0]["task"]["name"])
    return {name_of(setting["optimizer"]): setting for setting in settings}


def name_of(optimizer):
    """Return "full", "full, eps 1 % smaller", "gain 0", "gain 1", or the name of a format."""
    if optimizer["gamma"] == 0.0:
        return "gain 1"
    if optimizer["eps"] == "inf":
        return "gain 0"
    if optimizer["state_format"] != "full":
        return optimizer["state_format"]
    changes = dict(zip(EPS, ("full, eps 1 % smaller", "full", "full, eps 1 % larger"), strict=True))
    return changes[optimizer["eps"]]


def by_seed(setting, metric):
    """Return a metric of the last epoch for each seed."""
    return setting["figures of the last epoch"][metric]["by seed"]


def full_state(task, metric):
    """Return the three runs with full state of each seed."""
    settings = settings_of(task)
    full = [by_seed(setting, metric) for name, setting in settings.items() if "full" in name]
    return {seed: [runs[seed] for runs in full] for seed in full[0]}


def jitter(task, metric="train loss"):
    """Return the standard deviation over the runs of a seed, pooled over the seeds."""
    variances = [statistics.variance(runs) for runs in full_state(task, metric).values()]
    return statistics.mean(variances) ** 0.5


def difference(task, name, metric="train loss"):
    """Return the difference of a setting to full state."""
    full = {seed: statistics.mean(runs) for seed, runs in full_state(task, metric).items()}
    own = by_seed(settings_of(task)[name], metric)
    apart = [own[seed] - full[seed] for seed in full]
    n = len(full)
    quantile = float(stats.t.ppf(0.975, 2 * n))
    bound = quantile * jitter(task, metric) * (1 / n + 1 / (3 * n)) ** 0.5
    return Difference(statistics.mean(apart), bound, statistics.stdev(apart))
