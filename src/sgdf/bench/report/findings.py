"""The runs of a store, arranged for comparing: problems, the settings tried on each, their seeds.

A problem is a task under a protocol for a number of epochs. A setting is an optimizer with all
that was set beside it, on one problem; its runs differ in the seed alone.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..spec.labels import order, settings_label
from ..spec.protocol import PROTOCOLS, Protocol
from ..spec.run import length_in_words
from ..store.records import (
    EpochFigures,
    Result,
    Row,
    RunTable,
    Table,
    chosen_epoch,
    figures_on,
    splits_in,
)
from ..store.run_folder import RunFolder, State
from ..tasks.metric import shown_as
from .statistics import Sample

SPLITS = ("train", "validation", "test")
"""Those that every report knows, in the order in which they are shown."""


@dataclass(frozen=True)
class RunRecord:
    """All that is kept of one run."""

    folder: Path
    table: RunTable
    state: State
    result: Result | None
    epochs: Sequence[Row]
    """Its metrics, a row for each epoch."""
    environment: Mapping[str, str]
    """That of its last attempt."""
    failure: str

    @classmethod
    def read(cls, folder: RunFolder) -> RunRecord | None:
        """Return the run of a folder, or None if the folder does not say what it is."""
        table = folder.table()
        if table is None:
            return None
        state = folder.state()
        rows = folder.rows() if state is not State.DAMAGED else []
        environments = [entry for entry in folder.environments() if isinstance(entry, dict)]
        return cls(
            folder=folder.path,
            table=table,
            state=state,
            result=folder.result() if state.has_result else None,
            epochs=[row for row in rows if _is_epoch(row)],
            environment=(environments or [{}])[-1],
            failure=folder.failure() or "",
        )

    @property
    def key(self) -> str:
        """The hash of the run."""
        return self.folder.name

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.table["seed"])

    @property
    def lost(self) -> bool:
        """Whether it came to an end, but not to its own."""
        return self.state in (State.DIVERGED, State.FAILED)

    @property
    def chosen(self) -> EpochFigures | None:
        """The epoch that counts, of a run that went to its end."""
        if self.result is None or self.state is not State.FINISHED:
            return None
        return chosen_epoch(self.result)

    def value(self, split: str, metric: str, epoch: str = "") -> float | None:
        """Return a figure of the epoch that counts, or of the ``"last"`` one."""
        row = self.chosen
        if epoch == "last" and row is not None and self.result is not None:
            row = self.result.get("last")
        return None if row is None else figures_on(row, split).get(metric)


@dataclass(frozen=True)
class Setting:
    """An optimizer as it was set, on one problem, and its runs by seed.

    Attributes:
        name: the optimizer and what tells the setting from others on the problem.
        optimizer: the optimizer's name.
        runs: one for each seed, in order.
    """

    name: str
    optimizer: str
    runs: tuple[RunRecord, ...]

    @property
    def table(self) -> RunTable:
        """Its spec, which holds for all runs but for the seed."""
        return self.runs[0].table

    @property
    def key(self) -> str:
        """The key of its first run, by which the setting can be told from all others."""
        return self.runs[0].key

    @property
    def finished(self) -> tuple[RunRecord, ...]:
        """The runs that went to their end."""
        return tuple(run for run in self.runs if run.chosen is not None)

    def values(self, split: str, metric: str, epoch: str = "") -> dict[int, float]:
        """Return a figure of each finished run by its seed."""
        found = ((run.seed, run.value(split, metric, epoch)) for run in self.finished)
        return {seed: value for seed, value in found if value is not None}

    def sample(self, split: str, metric: str, epoch: str = "") -> Sample:
        """Return a figure over the seeds."""
        return Sample(tuple(self.values(split, metric, epoch).values()))

    def course(self, split: str, metric: str) -> list[list[Row]]:
        """Return the finished runs' rows of each epoch at which all of them have a metric."""
        runs = [
            {row["epoch"]: row for row in run.epochs if metric in figures_on(row, split)}
            for run in self.finished
        ]
        epochs = sorted(set.intersection(*map(set, runs))) if runs else []
        return [[run[epoch] for run in runs] for epoch in epochs]

    def median(self, figure: Callable[[Result], float]) -> float | None:
        """Return the median over the finished runs of something their results tell."""
        found = [figure(run.result) for run in self.finished if run.result]
        return statistics.median(found) if found else None

    @property
    def rate(self) -> float | None:
        """Its learning rate, if it has one that is a number."""
        rate = self.table["optimizer"].get("lr")
        return float(rate) if rate is not None and type(rate) in (int, float) else None

    @property
    def milliseconds(self) -> float | None:
        """The time of a step with its forward and backward pass."""
        return self.median(lambda result: 1e3 * result["seconds"]["step"] / result["step"])

    @property
    def state_bytes(self) -> float | None:
        """What the optimizer keeps for each parameter."""
        return self.median(lambda result: result["state_bytes"] / result["parameters"])


@dataclass(frozen=True)
class Problem:
    """A task under a protocol for a number of epochs, and the settings tried on it."""

    name: str
    settings: tuple[Setting, ...]

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of all settings."""
        return [run for setting in self.settings for run in setting.runs]

    @property
    def task(self) -> Table:
        """The task with its options."""
        return self.settings[0].table["task"]

    @property
    def protocol(self) -> Protocol:
        """How its runs choose the epoch that counts."""
        return PROTOCOLS[self.settings[0].table["protocol"]]

    @property
    def judged_on(self) -> str:
        """The split that epochs are chosen by, and that targets are set on."""
        return self.protocol.chooses_on

    @cached_property
    def metric(self) -> str:
        """What settings are judged by."""
        return self._result["metric"] if self._result else "loss"

    @cached_property
    def larger_is_better(self) -> bool:
        """Whether more of the metric is better."""
        return self._result["largest"] if self._result else False

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that the runs have, the one they are judged by first."""
        rows = (row for run in self.runs for row in run.epochs[-1:])
        found = {name for row in rows for s in splits_in(row) for name in figures_on(row, s)}
        return (self.metric, *sorted(found - {self.metric}))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """All splits that the runs have figures of, those that every report knows first."""
        found = {split for run in self.runs for row in run.epochs[-1:] for split in splits_in(row)}
        return (*SPLITS, *sorted(found - set(SPLITS)))

    @cached_property
    def headline(self) -> tuple[Setting, ...]:
        """The best setting of each optimizer by the mean on validation data, the best first.

        Settings where runs were lost come after those where none was, and those that are not
        done yet after both: a mean over fewer seeds is not to win by luck. Under the paper's
        protocol there is nothing to choose by: all settings are here.
        """
        if not self.protocol.is_fair:
            return tuple(sorted(self.settings, key=self._rank, reverse=True))
        best: dict[str, Setting] = {}
        for setting in self.settings:
            rival = best.get(setting.optimizer)
            if rival is None or self._rank(setting) > self._rank(rival):
                best[setting.optimizer] = setting
        return tuple(sorted(best.values(), key=self._rank, reverse=True))

    def _rank(self, setting: Setting) -> tuple[float, ...]:
        """Return what the best setting has most of."""
        lost = sum(run.lost for run in setting.runs)
        unfinished = len(setting.runs) - lost - len(setting.finished)
        mean = setting.sample(self.judged_on, self.metric).mean
        loss = setting.sample(self.judged_on, "loss").mean
        score = mean if self.larger_is_better else -mean
        return (
            len(setting.finished) > 0,
            -unfinished,
            -lost,
            -math.inf if math.isnan(score) else round(score, 12),  # equal but for rounding
            -math.inf if math.isnan(loss) else -loss,
        )

    @cached_property
    def most_seeds(self) -> int:
        """How many finished runs the figures of a setting rest on at most."""
        return max((len(setting.finished) for setting in self.settings), default=0)

    @cached_property
    def units(self) -> dict[str, tuple[float, str]]:
        """What each metric is multiplied by when shown, and its unit in brackets."""
        rows: list[EpochFigures] = [row for run in self.runs for row in run.epochs[-1:]]
        rows += [run.chosen for run in self.runs if run.chosen]
        units = {}
        for metric in self.metrics:
            stated = self._result.get("unit") if self._result and metric == self.metric else None
            seen = (figures_on(row, split).get(metric) for row in rows for split in self.splits)
            scale, unit = shown_as(metric, stated, [value for value in seen if value is not None])
            units[metric] = scale, f" ({unit})" if unit else ""
        return units

    @cached_property
    def _result(self) -> Result | None:
        """The result of one of the runs: they all have the same metric."""
        return next((run.result for run in self.runs if run.result), None)


@dataclass(frozen=True)
class Findings:
    """All runs of one or several stores.

    Attributes:
        problems: what was tried, on what.
        unreadable: folders that do not say what run they hold.
    """

    problems: tuple[Problem, ...]
    unreadable: tuple[Path, ...]

    @property
    def runs(self) -> list[RunRecord]:
        """Every run."""
        return [run for problem in self.problems for run in problem.runs]

    @cached_property
    def optimizers(self) -> tuple[str, ...]:
        """The names of all optimizers."""
        return tuple(sorted({s.optimizer for p in self.problems for s in p.settings}))


def gather(folders: Iterable[RunFolder]) -> Findings:
    """Read the runs of these folders; one that is found twice counts once."""
    unreadable: list[Path] = []
    runs: dict[str, RunRecord] = {}
    for folder in folders:
        run = RunRecord.read(folder)
        if run is None:
            unreadable.append(folder.path)
        else:
            runs.setdefault(run.key, run)
    tables = {key: run.table for key, run in runs.items()}
    problems = [
        _problem(list(group), tables)
        for _, group in itertools.groupby(sorted(runs.values(), key=_problem_of), key=_problem_of)
    ]
    return Findings(tuple(problems), tuple(unreadable))


def _is_epoch(row: Any) -> bool:
    """Return whether this is a whole row of an epoch: the file may be anything."""
    return (
        isinstance(row, dict)
        and row.get("kind") == "epoch"
        and isinstance(row.get("epoch"), int)
        and isinstance(row.get("step"), int)
        and isinstance(row.get("seconds"), dict)
        and {"step", "data"} <= row["seconds"].keys()
        and all(isinstance(row.get(split, {}), dict) for split in SPLITS)
    )


def _problem_of(run: RunRecord) -> str:
    table = run.table
    length = table["train"].get("epochs"), table["train"].get("steps")
    return json.dumps([table["task"], table["protocol"], length], sort_keys=True)


def _setting_of(run: RunRecord) -> str:
    rest = {key: value for key, value in run.table.items() if key != "seed"}
    return json.dumps(rest, sort_keys=True)


def _problem(runs: list[RunRecord], everywhere: Mapping[str, RunTable]) -> Problem:
    tables = {run.key: run.table for run in runs}
    settings = []
    for _, group in itertools.groupby(sorted(runs, key=_setting_of), key=_setting_of):
        own = sorted(group, key=lambda run: run.seed)
        name = ", ".join(settings_label(own[0].table, tables)[1:])
        settings.append(Setting(name, str(own[0].table["optimizer"]["name"]), tuple(own)))
    settings.sort(key=lambda setting: order(setting.table))
    return Problem(_problem_name(runs[0].table, everywhere), tuple(settings))


def _problem_name(table: RunTable, everywhere: Mapping[str, RunTable]) -> str:
    name = settings_label(table, everywhere)[0]
    alike = [other for other in everywhere.values() if other["task"] == table["task"]]
    if len({length_in_words(other["train"]) for other in alike}) > 1:
        name += f", {length_in_words(table['train'])}"
    if len({other["protocol"] for other in alike}) > 1:
        name += f", {table['protocol']} protocol"
    return name
