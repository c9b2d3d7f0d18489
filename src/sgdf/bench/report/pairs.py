"""Two settings of a problem side by side: the paired test of their difference, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from ...present.words import plural
from .comparability import obstacle
from .findings import Problem, Setting
from .statistics import FEWEST_SEEDS, Comparison, Sample, compare

SIGNIFICANT = 0.05
MOST_COMPARED = 30
"""With more settings no plot is drawn, and pairs are not compared: nobody could read either."""


@dataclass(frozen=True)
class Pair:
    """Two settings of a problem, and the paired test of their difference on test data."""

    first: Setting
    second: Setting
    comparison: Comparison
    larger_is_better: bool

    @property
    def is_tested(self) -> bool:
        """Whether there is a p-value."""
        return self.comparison.corrected is not None

    @property
    def seeds(self) -> int:
        """The number of seeds that both have and that are comparable."""
        return len(self.comparison.difference.values)

    @property
    def ahead(self) -> Setting:
        """The one with the better mean over these seeds; over all of its own it may be worse."""
        mean = self.comparison.difference.mean
        return self.first if (mean > 0) is self.larger_is_better else self.second

    @property
    def better(self) -> Setting | None:
        """The one that is significantly better, if one is."""
        corrected = self.comparison.corrected
        return None if corrected is None or corrected >= SIGNIFICANT else self.ahead

    @property
    def outcome(self) -> str:
        """The outcome of the test, or why there was none."""
        obstacles = self.comparison.obstacles
        reasons = ", ".join(dict.fromkeys(obstacles))
        if obstacles and self.seeds < FEWEST_SEEDS:
            return f"not compared: {reasons}"
        if self.seeds < FEWEST_SEEDS:
            return f"not judged: {plural(self.seeds, 'seed')}"
        if not self.is_tested:
            return "not tested: no spread over the seeds"
        text = f"{self.better.name} is better" if self.better else "not significant"
        left_out = f" ({plural(len(obstacles), 'seed')} left out: {reasons})" if obstacles else ""
        return text + left_out

    def other(self, setting: Setting) -> Setting:
        """Return the other one of the two."""
        return self.second if setting.key == self.first.key else self.first

    def advantage(self, setting: Setting) -> Sample:
        """Return by how much one of the two is better, for each seed."""
        is_first = setting.key == self.first.key
        sign = 1.0 if is_first is self.larger_is_better else -1.0
        return Sample(tuple(sign * value for value in self.comparison.difference.values))


def compare_pairs(problem: Problem) -> list[Pair]:
    """Return all pairs of the settings shown that have several finished runs, with their tests."""
    settings = [setting for setting in problem.headline if len(setting.finished) > 1]
    if len(problem.headline) > MOST_COMPARED:
        settings = []
    runs = [{run.seed: run for run in setting.finished} for setting in settings]
    comparisons = compare(
        [setting.values("test", problem.metric) for setting in settings],
        lambda first, second, seed: obstacle(runs[first][seed], runs[second][seed]),
    )
    return [
        Pair(settings[c.first], settings[c.second], c, problem.larger_is_better)
        for c in comparisons
    ]
