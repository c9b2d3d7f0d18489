"""The verdict on a problem: what leads, what differs from it significantly, and what to try next.

The leader is the setting with the best mean on test data among those that were chosen, on
validation data, for their optimizers. It is named as an observation: whether it is better than
another one is decided by the paired tests. Settings with equal means share the lead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...present.words import listed, plural
from .comparability import mixture_in, obstacle, warnings_about
from .findings import Problem, Setting
from .sample_cells import mean_cell
from .statistics import FEWEST_SEEDS, MOST_SEEDS, POWER, Comparison, Sample, compare, seeds_needed

SIGNIFICANT = 0.05
MOST_COMPARED = 30
"""With more settings no plot is drawn, and pairs are not compared: nobody could read either."""
MOST_NAMED = 6
"""The most settings or differences that a line names."""
FEWEST_VALUES = 3
"""With fewer values of an option there is no edge: it is on or off, unless it is the rate."""


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


@dataclass(frozen=True)
class Edge:
    """A best setting with a number at the edge of those that were tried.

    Attributes:
        setting: the setting.
        option: the option that has this number.
        value: the number.
        is_largest: whether it is the largest that was tried; otherwise it is the smallest.
    """

    setting: Setting
    option: str
    value: float
    is_largest: bool


def find_edges(problem: Problem) -> list[Edge]:
    """Return where the best setting of an optimizer is at the edge of its grid.

    It is the best on validation data or, where the protocol has none, on test data.
    """
    best_first: dict[str, Setting] = {}
    for setting in problem.headline:
        best_first.setdefault(setting.optimizer, setting)
    edges = []
    for best in best_first.values():
        # A run that diverged was tried too: beyond it there is nothing to look for.
        tried = [
            setting
            for setting in problem.settings
            if setting.optimizer == best.optimizer
            and any(run.lost or run.chosen for run in setting.runs)
        ]
        level = best.sample(problem.judged_on, problem.metric).mean
        as_good = [s for s in tried if s.sample(problem.judged_on, problem.metric).mean == level]
        for option, value in _numbers(best).items():
            values, as_good_values = _values(tried, option), _values(as_good, option)
            fewest = 2 if option == "lr" else FEWEST_VALUES
            if len(values) < fewest or as_good_values != {value}:
                continue
            # Zero is the end of most ranges: nothing is below it.
            if value == max(values) or value == min(values) != 0.0:
                edges.append(Edge(best, option, value, value == max(values)))
    return edges


@dataclass(frozen=True)
class Verdict:
    """What the results on a problem say."""

    problem: Problem

    @cached_property
    def pairs(self) -> list[Pair]:
        """All pairs of settings, with their tests."""
        return compare_pairs(self.problem)

    @cached_property
    def ranked(self) -> list[Setting]:
        """The settings with a result, the best mean on test data first.

        Those whose means are in doubt come after the others.
        """
        return sorted(
            (s for s in self.problem.headline if s.values("test", self.problem.metric)),
            key=lambda s: (bool(self._doubt(s)), self._cost(s), s.name),
        )

    @cached_property
    def best(self) -> list[Setting]:
        """The settings that have the best mean, mostly one; none if nothing competes."""
        if len(self.ranked) < 2:
            return []
        first = self.ranked[0]
        level = bool(self._doubt(first)), self._cost(first)
        return [s for s in self.ranked if (bool(self._doubt(s)), self._cost(s)) == level]

    @property
    def leader(self) -> Setting | None:
        """The setting that alone has the best mean."""
        return self.best[0] if len(self.best) == 1 else None

    def _cost(self, setting: Setting) -> float:
        """Return the mean on test data with a sign such that smaller is better."""
        mean = setting.sample("test", self.problem.metric).mean
        # Rounded, so that means that differ by rounding alone are equal.
        return round(-mean if self.problem.larger_is_better else mean, 12)

    def _doubt(self, setting: Setting) -> str:
        """Return why the mean of a setting may be the best by luck or by mistake, else nothing."""
        return " and ".join(filter(None, (self._lack(setting), self._mixture(setting))))

    def _lack(self, setting: Setting) -> str:
        """Return over how many runs or seeds a mean is, if it is not over all or others have more.

        The mean over a few seeds may be the best by luck.
        """
        done = len(setting.finished)
        most = max(len(other.finished) for other in self.problem.headline)
        fewer = f"is over {plural(done, 'seed')} instead of {most}" if done < most else ""
        return _gap(setting) or fewer

    def _mixture(self, setting: Setting) -> str:
        mixture = mixture_in(setting, self.problem)
        return f"mixes {mixture}" if mixture else ""

    @cached_property
    def against(self) -> dict[str, Pair]:
        """The pairs of the leader, by the key of the other setting."""
        leader = self.leader
        pairs = [p for p in self.pairs if leader and leader.key in (p.first.key, p.second.key)]
        return {pair.other(leader).key: pair for pair in pairs if leader}

    @cached_property
    def alike(self) -> list[Setting]:
        """The settings that do not differ significantly from the leader."""
        return [s for s, pair in self._rivals() if pair and pair.is_tested and not pair.better]

    @cached_property
    def worse(self) -> list[Setting]:
        """The settings that are significantly worse than the leader."""
        return [s for s, pair in self._rivals() if pair and pair.better and pair.better is not s]

    @cached_property
    def better(self) -> list[Setting]:
        """The settings that are significantly better on the seeds that the leader has too."""
        return [s for s, pair in self._rivals() if pair and pair.better is s]

    @cached_property
    def unjudged(self) -> dict[str, str]:
        """Why settings were not compared with the leader, by their names."""
        return {
            setting.name: pair.outcome if pair else self._why_not_paired(setting)
            for setting, pair in self._rivals()
            if pair is None or not pair.is_tested
        }

    def _why_not_paired(self, setting: Setting) -> str:
        if len(self.problem.headline) > MOST_COMPARED:
            return f"not compared: more than {MOST_COMPARED} settings"
        has_several = len(setting.finished) > 1
        return f"not judged: {'the leader has ' if has_several else ''}1 seed"

    @cached_property
    def seeds_needed(self) -> dict[str, int | None]:
        """The seeds that differences of this size from the leader need; None if they are many."""
        return {
            setting.name: seeds_needed(pair.comparison.difference)
            for setting, pair in self._rivals()
            if pair and pair.is_tested and not pair.better and pair.comparison.difference.sd
        }

    @cached_property
    def edges(self) -> list[Edge]:
        """Where best settings are at the edge of what was tried."""
        return find_edges(self.problem)

    @cached_property
    def warnings(self) -> list[str]:
        """In which ways the runs differ and should not."""
        return warnings_about(self.problem)

    @cached_property
    def lines(self) -> list[str]:
        """The verdict in sentences; warnings are not among them."""
        return [*self._comparison_lines(), *self._edge_lines()]

    def as_record(self) -> dict[str, Any]:
        """Return the verdict for a JSON file."""
        return {
            "leader": self.leader and self.leader.name,
            "tied": [] if self.leader else [setting.name for setting in self.best],
            "not significantly different": [setting.name for setting in self.alike],
            "significantly worse": [setting.name for setting in self.worse],
            "significantly better on shared seeds": [setting.name for setting in self.better],
            "not judged": self.unjudged,
            "seeds needed": self.seeds_needed,
            "edges": [
                {
                    "setting": edge.setting.name,
                    "option": edge.option,
                    "value": edge.value,
                    "edge": "largest" if edge.is_largest else "smallest",
                }
                for edge in self.edges
            ],
            "warnings": self.warnings,
        }

    def _rivals(self) -> list[tuple[Setting, Pair | None]]:
        """Return every setting but the leader, with the pair of the two; none without a leader."""
        return [(s, self.against.get(s.key)) for s in self.ranked[1:]] if self.leader else []

    def _comparison_lines(self) -> Iterator[str]:
        """Yield what leads; before that, whether its lead is within the noise."""
        if not self.best:
            return
        noise = self._noise_line()
        if noise:
            yield noise
        yield self._lead_line()
        if len(self.problem.headline) > MOST_COMPARED:
            yield (
                f"There are more than {MOST_COMPARED} settings: they are neither drawn nor "
                "compared pair by pair."
            )
        elif not self._lacks_seeds:
            yield from self._test_lines("" if noise else self._tests_in_words)
        yield from self._seed_lines()

    @property
    def _most_seeds(self) -> int:
        return max((pair.seeds for pair in self.pairs), default=1)

    @property
    def _lacks_seeds(self) -> bool:
        """Whether there is no test, of the leader or of others, for the lack of seeds alone."""
        has_obstacles = any(pair.comparison.obstacles for pair in self.pairs)
        return self._most_seeds < FEWEST_SEEDS and not has_obstacles

    @property
    def _tests(self) -> int:
        return sum(pair.is_tested for pair in self.pairs)

    @property
    def _tests_in_words(self) -> str:
        corrected = ", corrected by Holm" if self._tests > 1 else ""
        return f"{plural(self._tests, 'paired t-test')} over the seeds{corrected}"

    def _noise_line(self) -> str:
        """Return that the lead is not shown to be more than noise; nothing if it is."""
        if len(self.problem.headline) > MOST_COMPARED:
            return ""
        if self._lacks_seeds:
            return (
                f"With {plural(self._most_seeds, 'seed')} no difference can be judged; run at "
                f"least {FEWEST_SEEDS}."
            )
        if self._tests and not any(pair.better for pair in self.pairs):
            return (
                f"No difference between the {len(self.ranked)} settings is significant at 5 % "
                f"({self._tests_in_words})."
            )
        if self.alike and not self.worse and not self.better:
            names = listed([setting.name for setting in self.alike], MOST_NAMED)
            differ = "difference of the leader from {} is"
            if len(self.alike) > 1:
                differ = "differences of the leader from {} are"
            return f"The {differ.format(names)} not significant at 5 % ({self._tests_in_words})."
        return ""

    def _lead_line(self) -> str:
        problem, leader = self.problem, self.leader
        scale, unit = problem.units[problem.metric]
        sample = self.best[0].sample("test", problem.metric)
        # Settings that share a mean do not share its spread.
        cell = mean_cell(sample if leader else Sample((sample.mean,)), scale)
        figure, bracket, remark = cell.text.removesuffix(" (one seed)").partition(" (")
        mean = " ".join(filter(None, [figure, unit])) + bracket + remark
        so_far = "" if all(run.chosen or run.lost for run in problem.runs) else " so far"
        how = ""
        if problem.protocol.chosen == "best_on_test":
            how = ", at epochs chosen on the same data"
        elif len(problem.settings) > len(problem.headline):
            how = ", each chosen on validation data for its optimizer"
        count = f"of {len(self.ranked)} settings{how}{self._exceptions()}"
        if leader:
            line = f"{leader.name} leads{so_far}: its mean test {problem.metric}, {mean}, is the "
            line += f"best {count}."
        else:
            names = listed([setting.name for setting in self.best], MOST_NAMED)
            line = f"{names} share the best mean test {problem.metric}{so_far} {count}: {mean}."
        if not problem.protocol.is_fair:
            who = "The leader was" if leader else "They were"
            line += f" {who} found on the test data themselves."
        return line + self._doubt_of_all()

    def _doubt_of_all(self) -> str:
        """Return why no mean is free of doubt, if the leader's is not; else nothing."""
        doubt = self._doubt(self.best[0])
        if not doubt:
            return ""
        every = (
            "setting has lost or unfinished runs or fewer seeds than another, or mixes versions or "
            "data"
        )
        if all(map(_gap, self.ranked)):
            every = "setting has lost or unfinished runs"
        elif all(map(self._mixture, self.ranked)):
            every = "mean mixes versions or data"
        leads = f"; the leader's mean {doubt}" if self.leader else ""
        return f" Every {every}{leads}."

    def _exceptions(self) -> str:
        """Return which settings have a better mean and why they do not lead, if there are any."""
        best = self._cost(self.best[0])
        names = [
            f"{setting.name} (its mean is better, but {self._doubt(setting)})"
            for setting in self.ranked
            if self._cost(setting) < best
        ]
        return f", except for {listed(names, MOST_NAMED)}" if names else ""

    def _test_lines(self, how: str) -> Iterator[str]:
        """Yield which differences are significant; the first line ends with how that was tested."""
        leader = self.leader
        significant = [pair for pair in self.pairs if pair.better]
        lines = []
        if self.alike and (self.worse or self.better):
            names = [setting.name for setting in self.alike]
            lines.append(f"Not significantly different from it: {listed(names, MOST_NAMED)}")
        if leader and self.worse:
            names = [
                f"{setting.name} (by {self._size(self.against[setting.key].advantage(leader))})"
                for setting in self.worse
            ]
            lines.append(f"Significantly worse than it: {listed(names, MOST_NAMED)}")
        if self.better:
            names = [setting.name for setting in self.better]
            which = listed(names, MOST_NAMED)
            lines.append(f"Significantly better on the seeds that both have: {which}")
        others = [
            f"{pair.better.name} is better than {pair.other(pair.better).name}"
            for pair in significant
            if pair.better and not (leader and leader.key in (pair.first.key, pair.second.key))
        ]
        if others:
            also = "Also significant" if leader else "Significant"
            lines.append(f"{also}: {listed(others, MOST_NAMED)}")
        if lines and how:
            lines[0] += f"; {how}" if lines[0].endswith(")") else f" ({how})"
        yield from (f"{line}." for line in lines)
        if self.unjudged:
            names = [f"{name} ({reason})" for name, reason in self.unjudged.items()]
            yield f"Without a test against it: {listed(names, MOST_NAMED)}."

    def _seed_lines(self) -> Iterator[str]:
        """Yield how many seeds the difference from the best of the others would need."""
        leader = self.leader
        rival = next((s for s, _ in self._rivals() if s.name in self.seeds_needed), None)
        if leader is None or rival is None:
            return
        pair, needed = self.against[rival.key], self.seeds_needed[rival.name]
        if not pair.comparison.difference.mean:
            return
        if pair.comparison.p is not None and pair.comparison.p < SIGNIFICANT:
            yield (
                f"Compared alone, without a correction for the other pairs, {pair.ahead.name} "
                f"would be significantly better than {pair.other(pair.ahead).name}."
            )
            return
        size = self._size(pair.advantage(leader))
        many = f"more than {MOST_SEEDS:,}" if needed is None else f"about {needed:,}"
        more = f", and more with the correction for {self._tests} tests" if self._tests > 1 else ""
        yield (
            f"A difference like that between {leader.name} and {rival.name} ({size}) would need "
            f"{many} seeds to be found significant in {100 * POWER:.0f} % of all cases{more}."
        )

    def _size(self, difference: Sample) -> str:
        return mean_cell(difference, self.problem.units[self.problem.metric][0]).text

    def _edge_lines(self) -> Iterator[str]:
        """Yield a line for each option and side of its grid."""
        sides: dict[tuple[str, bool], list[Edge]] = {}
        for edge in self.edges:
            sides.setdefault((edge.option, edge.is_largest), []).append(edge)
        for (option, is_largest), edges in sides.items():
            names = [f"{edge.setting.optimizer} ({edge.value:g})" for edge in edges]
            which, try_ = ("largest", "larger") if is_largest else ("smallest", "smaller")
            yield (
                f"The best {option} is the {which} that was tried for "
                f"{listed(names, MOST_NAMED)}: try {try_} ones."
            )


def _gap(setting: Setting) -> str:
    """Return over how many runs the mean of a setting is, if it is not over all."""
    done, all_ = len(setting.finished), len(setting.runs)
    return f"is over {done} of {plural(all_, 'run')}" if done < all_ else ""


def _values(settings: list[Setting], option: str) -> set[float]:
    """Return the numbers that settings have for an option."""
    return {numbers[option] for numbers in map(_numbers, settings) if option in numbers}


def _numbers(setting: Setting) -> dict[str, float]:
    """Return the options of a setting that are finite numbers."""
    parts = {"": setting.table["optimizer"], "schedule.": setting.table["schedule"]}
    return {
        prefix + option: float(value)
        for prefix, options in parts.items()
        for option, value in options.items()
        if type(value) in (int, float) and math.isfinite(value)
    }
