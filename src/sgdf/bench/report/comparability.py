"""Which runs can be compared, by what each of them recorded about its sources, versions and data.

What a run did not record, as runs of earlier versions did not, is no obstacle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ...present.words import listed
from .findings import Problem, RunRecord, Setting

MOST_NAMED = 3
"""The most settings that a warning names."""

Fact = Callable[[RunRecord], frozenset[str]]
"""What a run recorded under one entry: several values if it was resumed with another, or none."""


@dataclass(frozen=True)
class Version:
    """An entry that tells versions of something apart.

    Attributes:
        entry: the entry of an environment.
        words: what it is a version of.
        hinders: whether runs of different versions are not compared.
        shown: whether the versions are names that people know.
    """

    entry: str
    words: str
    hinders: bool
    shown: bool

    def of(self, run: RunRecord) -> frozenset[str]:
        """Return the versions that a run was made with."""
        versions = _values(self.entry, run)
        if self.entry == "torch":  # its patch releases only mend errors
            return frozenset(".".join(version.split(".")[:2]) for version in versions)
        return versions

    def in_words(self, runs: Iterable[RunRecord]) -> str:
        """Return what the versions of these runs are versions of, and which they are."""
        names = f" ({listed(sorted(_union(self.of, runs)))})" if self.shown else ""
        return f"versions of {self.words}{names}"


TASK = Version("task source", "the task's source", hinders=True, shown=False)
IMPORTED = Version("imported source", "the task's own modules", hinders=True, shown=False)
OPTIMIZER = Version("optimizer source", "the optimizer's source", hinders=False, shown=False)
TORCH = Version("torch", "torch", hinders=True, shown=True)
SGDF = Version("sgdf", "sgdf", hinders=False, shown=True)

DATA = {
    "data": "data",
    "data of train": "training data",
    "data of validation": "validation data",
    "data of test": "test data",
}
"""Entries with a digest of data, and what they are called."""


def obstacle(one: RunRecord, other: RunRecord) -> str:
    """Return why two runs of the same seed cannot be compared; empty if they can."""
    for version in (TASK, IMPORTED, TORCH):
        if _clash(version.of, [one, other]):
            return f"another version of {version.words}"
    return next((f"other {words}" for e, words in DATA.items() if _data_clash(e, [one, other])), "")


def mixture_in(setting: Setting, problem: Problem) -> str:
    """Return what the mean of a setting mixes that does not compare; empty if it mixes nothing.

    Data that depend on the seed in the same way for all settings are no mixture.
    """
    for version in (TASK, IMPORTED, TORCH):
        count = len(_union(version.of, setting.finished))
        if count > 1:
            return f"{count} {version.in_words(setting.finished)}"
    everyone = [run for other in problem.settings for run in other.finished]
    mixed = [
        entry
        for entry in DATA
        if _data_clash(entry, setting.finished)
        and _data_clash(entry, everyone, lambda run: run.seed)
    ]
    return f"different {_data_words(mixed)}" if mixed else ""


def warnings_about(problem: Problem) -> list[str]:
    """Return a line for each way in which the runs of a problem differ and should not."""
    finished = [run for setting in problem.settings for run in setting.finished]
    return [
        *(
            line
            for version in (TASK, IMPORTED, OPTIMIZER, TORCH, SGDF)
            if len(_union(version.of, finished)) > 1
            for line in _version_lines(problem, finished, version)
        ),
        *_data_lines(finished),
        *_machine_lines(finished),
        *_shared_row_lines(finished),
    ]


def _version_lines(
    problem: Problem, finished: Sequence[RunRecord], version: Version
) -> Iterator[str]:
    """Yield lines about means over several versions, and about pairs of different versions."""
    mixed = [s for s in problem.settings if len(_union(version.of, s.finished)) > 1]
    if mixed:
        count = max(len(_union(version.of, setting.finished)) for setting in mixed)
        which = version.in_words([run for setting in mixed for run in setting.finished])
        one = len(mixed) == 1
        its, mixes = ("its", "its mean mixes") if one else ("their", "their means mix")
        names = listed([setting.name for setting in mixed], MOST_NAMED)
        yield f"{names}: {its} runs were made with {count} {which}, so {mixes} them."
    if version is OPTIMIZER:
        yield from _optimizer_lines(problem, {setting.optimizer for setting in mixed})
        return
    if _clash(version.of, finished, lambda run: run.seed):
        yield (
            f"Runs of the same seed were made with different {version.in_words(finished)}"
            f"{': they are not compared' if version.hinders else ''}."
        )


def _optimizer_lines(problem: Problem, said: set[str]) -> Iterator[str]:
    """Yield a line for each optimizer whose settings have different versions of it."""
    runs: dict[str, list[RunRecord]] = {}
    for setting in problem.settings:
        runs.setdefault(setting.optimizer, []).extend(setting.finished)
    for name, finished in runs.items():
        count = len(_union(OPTIMIZER.of, finished))
        if count > 1 and name not in said:
            yield f"The settings of {name} were run with {count} {OPTIMIZER.in_words(finished)}."


def _data_lines(finished: Sequence[RunRecord]) -> Iterator[str]:
    """Yield lines about data that differ among runs of one seed, or from seed to seed."""
    within = [e for e in DATA if _data_clash(e, finished, lambda run: run.seed)]
    among = [e for e in DATA if e not in within and _data_clash(e, finished)]
    if within:
        yield f"Runs of the same seed had different {_data_words(within)}: they are not compared."
    if among:
        yield (
            f"The {_data_words(among)} differ from seed to seed: runs of the same seed are "
            "compared, and the spread over the seeds includes that of the data."
        )


def _machine_lines(finished: Sequence[RunRecord]) -> Iterator[str]:
    machines = sorted(_union(_machine, finished))
    if len(machines) > 1:
        yield (
            f"The runs were made on {len(machines)} kinds of CPU ({listed(machines, MOST_NAMED)}): "
            "their times cannot be compared."
        )


def _shared_row_lines(finished: Sequence[RunRecord]) -> Iterator[str]:
    counts = _union(partial(_values, "test rows in train"), finished)
    shared = {int(c.split()[0].replace(",", "")): c for c in counts if re.match(r"[\d,]*\d of ", c)}
    if shared and max(shared):
        yield (
            f"{shared[max(shared)]} test rows are also training rows: the test figures are too "
            "good."
        )


def _clash(
    fact: Fact, runs: Iterable[RunRecord], group: Callable[[RunRecord], Hashable] = lambda run: None
) -> bool:
    """Return whether two runs of one group differ in a fact that both recorded."""
    seen: dict[Hashable, frozenset[str]] = {}
    known = ((group(run), recorded) for run in runs if (recorded := fact(run)))
    return any(seen.setdefault(which, recorded) != recorded for which, recorded in known)


def _data_clash(
    entry: str,
    runs: Sequence[RunRecord],
    group: Callable[[RunRecord], Hashable] = lambda run: None,
) -> bool:
    """Return whether two runs of one group had different data.

    A task that computes its data may round them differently on another machine, and their digest
    is another then. Between machines the number of rows decides, which the digest is followed by.
    """
    digests = partial(_values, entry)
    if len(_union(digests, runs)) < 2:
        return False
    return _clash(digests, runs, lambda run: (group(run), _machine(run))) or _clash(
        lambda run: frozenset(digest.partition(" of ")[2] for digest in digests(run)), runs, group
    )


def _data_words(entries: Sequence[str]) -> str:
    """Return entries with digests of data in words: "training and test data"."""
    kinds = [DATA[entry].removesuffix("data").strip() for entry in entries]
    return f"{listed(list(filter(None, kinds)))} data" if any(kinds) else "data"


def _machine(run: RunRecord) -> frozenset[str]:
    return _values("cpu", run)


def _values(entry: str, run: RunRecord) -> frozenset[str]:
    """Return the values of an entry in the attempts that a run's weights come from."""
    values = (attempt.get(entry) for attempt in run.attempts)
    return frozenset(value for value in values if isinstance(value, str) and value)


def _union(fact: Fact, runs: Iterable[RunRecord]) -> frozenset[str]:
    return frozenset().union(*map(fact, runs))
