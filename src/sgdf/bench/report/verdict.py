"""The verdict on a problem: what leads, what differs from it significantly, and what to try next.

The leader is the setting with the best mean on test data among those that were chosen, on
validation data, for their optimizers. It is named as an observation: whether it is better than
another one is decided by the paired tests. Settings with equal means share the lead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...present.words import listed, plural
from .comparability import mixture_in, warnings_about
from .edges import Edge, find_edges
from .findings import Problem, Setting
from .pairs import MOST_COMPARED, SIGNIFICANT, Pair, compare_pairs
from .sample_cells import mean_cell
from .statistics import FEWEST_SEEDS, MOST_SEEDS, POWER, Sample, seeds_needed

MOST_NAMED = 6
"""The most settings or differences that a line names."""


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
            pairs = [pair for pair in self.pairs if pair.is_tested]
            tested = {setting.key for pair in pairs for setting in (pair.first, pair.second)}
            which = f"the {len(tested)} settings"
            if len(tested) < len(self.ranked):
                which = f"{len(tested)} of the {len(self.ranked)} settings"
            return f"No difference between {which} is significant at 5 % ({self._tests_in_words})."
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
