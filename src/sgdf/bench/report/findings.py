"""The runs of a store, arranged for comparison: problems, the settings of each, their seeds.

A problem is a task with a protocol and a length of training. A setting is a run without its seed:
the runs of a setting differ in the seed alone.
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

from ..errors import StoreError
from ..spec.labels import Labels, order
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
)
from ..store.run_folder import RunFolder, State
from ..tasks.metric import direction_in_words, shown_as
from .epoch_rows import EpochRows
from .statistics import Sample

SPLITS = ("train", "validation", "test")
"""The splits that every report knows, in the order in which they are shown."""


@dataclass(frozen=True)
class RunRecord:
    """The record of one run."""

    folder: Path
    table: RunTable
    state: State
    result: Result | None
    epochs: EpochRows
    """Its metrics, a row for each epoch."""
    attempts: tuple[Mapping[str, Any], ...]
    """The environments of the attempts that its weights come from: the last start, and resumes."""
    failure: str
    """What is wrong with a failed, damaged or unreadable run, in one line."""
    traceback: str = ""
    """The traceback of a failed run."""

    @classmethod
    def read(cls, folder: RunFolder) -> RunRecord:
        """Return the run of a folder.

        Raises:
            StoreError: if the folder has no table that can be read.
        """
        table = folder.read_table()
        state, result = folder.state_and_result()
        if state in (State.DAMAGED, State.UNREADABLE):
            return cls(folder.path, table, state, None, EpochRows([]), (), folder.damage())
        return cls(
            folder=folder.path,
            table=table,
            state=state,
            result=result,
            epochs=EpochRows([row for row in folder.rows() if row["kind"] == "epoch"]),
            attempts=_last_attempts(folder.environments()),
            failure=(folder.failure() or "") if state is State.FAILED else "",
            traceback=folder.traceback() if state is State.FAILED else "",
        )

    @property
    def key(self) -> str:
        """The key of the run, a hash of its table."""
        return self.folder.name

    @property
    def environment(self) -> Mapping[str, Any]:
        """The environment in which the run was last started or resumed."""
        return self.attempts[-1] if self.attempts else {}

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.table["seed"])

    @property
    def by_function(self) -> bool:
        """Whether a training function trained it, whose time includes everything that it does."""
        return bool(self.table["train"].get("by_function"))

    @property
    def schedule(self) -> Table:
        """The schedule with its options; empty for a training function, which uses its own."""
        return {} if self.by_function else self.table["schedule"]

    @property
    def lost(self) -> bool:
        """Whether the run diverged, failed, or finished without a finite value of its metric."""
        return self.state in (State.DIVERGED, State.FAILED) or self.lacks_value

    @property
    def lacks_value(self) -> bool:
        """Whether the run is finished, but its metric was not finite."""
        return self.state is State.FINISHED and self.chosen is None

    @cached_property
    def chosen(self) -> EpochFigures | None:
        """The figures of the chosen epoch; None unless the run is finished with finite values.

        The metric has to be finite on the data that the epoch was chosen on, and on the test
        data: otherwise there is nothing to compare.
        """
        if self.result is None or self.state is not State.FINISHED:
            return None
        row, metric = chosen_epoch(self.result), self.result["metric"]
        if row is None:
            return None
        judged_on = PROTOCOLS[self.table["protocol"]].chooses_on
        values = (figures_on(row, split).get(metric, 0.0) for split in (judged_on, "test"))
        return row if all(map(math.isfinite, values)) else None

    def value(self, split: str, metric: str, epoch: str = "") -> float | None:
        """Return a metric at the chosen epoch, or at the ``"last"`` one; None if it is missing."""
        row = self.chosen
        if epoch == "last" and row is not None and self.result is not None:
            row = self.result.get("last")
        return None if row is None else figures_on(row, split).get(metric)


@dataclass(frozen=True)
class Setting:
    """An optimizer with its options on one problem, and its runs by seed.

    Attributes:
        name: the optimizer, and the options in which settings of the problem differ.
        optimizer: the optimizer's name.
        runs: one run for each seed, ordered by seed.
    """

    name: str
    optimizer: str
    runs: tuple[RunRecord, ...]

    @property
    def table(self) -> RunTable:
        """The spec of its first run; the others differ from it in the seed alone."""
        return self.runs[0].table

    @property
    def key(self) -> str:
        """The key of its first run, which identifies the setting."""
        return self.runs[0].key

    @property
    def finished(self) -> tuple[RunRecord, ...]:
        """The finished runs whose metric has a finite value."""
        return tuple(run for run in self.runs if run.chosen is not None)

    def values(self, split: str, metric: str, epoch: str = "") -> dict[int, float]:
        """Return a metric of each finished run by its seed; runs without it are left out."""
        values = {run.seed: run.value(split, metric, epoch) for run in self.finished}
        return {seed: value for seed, value in values.items() if value is not None}

    def sample(self, split: str, metric: str, epoch: str = "") -> Sample:
        """Return the values of a metric over the seeds."""
        return Sample(tuple(self.values(split, metric, epoch).values()))

    def rows_by_epoch(self, split: str, metric: str) -> list[list[Row]]:
        """Return the rows of the finished runs, for each epoch at which all have a metric."""
        runs = [
            {row["epoch"]: row for row in run.epochs if metric in figures_on(row, split)}
            for run in self.finished
        ]
        epochs = sorted(set.intersection(*map(set, runs))) if runs else []
        return [[run[epoch] for run in runs] for epoch in epochs]

    def median(self, figure: Callable[[Result], float | None]) -> float | None:
        """Return the median over the finished runs of a number computed from their results."""
        figures = [figure(run.result) for run in self.finished if run.result]
        values = [value for value in figures if value is not None]
        return statistics.median(values) if values else None

    @property
    def rate(self) -> float | None:
        """The learning rate, if there is one and it is a number."""
        rate = self.table["optimizer"].get("lr")
        return float(rate) if rate is not None and type(rate) in (int, float) else None

    @property
    def milliseconds(self) -> float | None:
        """The time of a step, with its forward and backward pass.

        It is not known of a function that trains by itself, which may do anything else meanwhile.
        """
        if self.runs[0].by_function:
            return None
        return self.median(lambda result: _ratio(1e3 * result["seconds"]["step"], result["step"]))

    @property
    def state_bytes(self) -> float | None:
        """The bytes of optimizer state for each parameter."""
        return self.median(lambda result: _ratio(result["state_bytes"], result["parameters"]))


@dataclass(frozen=True)
class Problem:
    """A task with a protocol and a length of training, and the settings tried on it."""

    name: str
    settings: tuple[Setting, ...]

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of all settings."""
        return [run for setting in self.settings for run in setting.runs]

    @property
    def task(self) -> Table:
        """The name and the options of the task."""
        return self.settings[0].table["task"]

    @property
    def protocol(self) -> Protocol:
        """The protocol, by which its runs choose an epoch."""
        return PROTOCOLS[self.settings[0].table["protocol"]]

    @property
    def by_function(self) -> bool:
        """Whether a training function trained its runs."""
        return self.runs[0].by_function

    @cached_property
    def has_single_rows(self) -> bool:
        """Whether each finished run was evaluated once, so that it has no epoch to choose."""
        return {len(run.epochs) for s in self.settings for run in s.finished} == {1}

    @property
    def returned_once(self) -> bool:
        """Whether a training function returned its metrics, instead of yielding them by epoch."""
        return self.by_function and self.has_single_rows

    @property
    def judged_on(self) -> str:
        """The split on which epochs are chosen and targets are set."""
        return self.protocol.chooses_on

    @cached_property
    def metric(self) -> str:
        """The name of the metric by which settings are judged."""
        return self._result["metric"] if self._result else "loss"

    @cached_property
    def larger_is_better(self) -> bool:
        """Whether a larger value of the metric is better."""
        return self._result["largest"] if self._result else False

    @property
    def direction(self) -> str:
        """Which values of the metric are better, in words."""
        return direction_in_words(self.larger_is_better)

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of all metrics, first the one by which settings are judged."""
        names = {name for run in self.runs for _, name in run.epochs.names}
        return (self.metric, *sorted(names - {self.metric}))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        """The names of all splits: those that every report knows, then the task's own."""
        names = {split for run in self.runs for split, _ in run.epochs.names}
        return (*SPLITS, *sorted(names - set(SPLITS)))

    @cached_property
    def headline(self) -> tuple[Setting, ...]:
        """The best setting of each optimizer by the mean on validation data, the best first.

        Settings with lost runs come after those without, and settings with unfinished runs after
        both, because a mean over fewer seeds may be better by luck. The paper's protocol leaves
        no data to choose settings on: then all settings are here.
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
        """Return a key to sort settings by: the best setting has the largest."""
        lost = sum(run.lost for run in setting.runs)
        unfinished = len(setting.runs) - lost - len(setting.finished)
        mean = setting.sample(self.judged_on, self.metric).mean
        loss = setting.sample(self.judged_on, "loss").mean
        score = mean if self.larger_is_better else -mean
        return (
            len(setting.finished) > 0,
            -unfinished,
            -lost,
            # Rounded, so that means that differ by rounding alone are decided by the loss.
            -math.inf if math.isnan(score) else round(score, 12),
            -math.inf if math.isnan(loss) else -loss,
        )

    @cached_property
    def most_seeds(self) -> int:
        """The largest number of finished runs that a setting has."""
        return max((len(setting.finished) for setting in self.settings), default=0)

    @cached_property
    def units(self) -> dict[str, tuple[float, str]]:
        """For each metric the factor by which it is multiplied when shown, and its unit."""
        rows: list[EpochFigures] = [row for run in self.runs for row in run.epochs[-1:]]
        rows += [run.chosen for run in self.runs if run.chosen]
        units = {}
        for metric in self.metrics:
            stated = self._result.get("unit") if self._result and metric == self.metric else None
            # A metric may be in early epochs alone; only for such a one all rows are unpacked.
            values = self._values(metric, rows) or self._values(
                metric, (row for run in self.runs for row in run.epochs)
            )
            units[metric] = shown_as(metric, stated, values)
        return units

    def _values(self, metric: str, rows: Iterable[EpochFigures]) -> list[float]:
        """Return the values of a metric in rows, on all splits."""
        values = (figures_on(row, split).get(metric) for row in rows for split in self.splits)
        return [value for value in values if value is not None]

    @cached_property
    def _result(self) -> Result | None:
        """The result of any of the runs: all have the same metric."""
        return next((run.result for run in self.runs if run.result), None)


@dataclass(frozen=True)
class Findings:
    """All runs of one or several stores.

    Attributes:
        problems: the problems, with their settings and runs.
        unreadable: what is wrong with each folder of a run whose table cannot be read.
    """

    problems: tuple[Problem, ...]
    unreadable: tuple[str, ...]

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of all problems."""
        return [run for problem in self.problems for run in problem.runs]

    @cached_property
    def optimizers(self) -> tuple[str, ...]:
        """The names of all optimizers, sorted."""
        return tuple(sorted({s.optimizer for p in self.problems for s in p.settings}))


def gather(folders: Iterable[RunFolder]) -> Findings:
    """Read the runs of these folders; a run that is in several stores counts once."""
    unreadable: list[str] = []
    runs: dict[str, RunRecord] = {}
    for folder in folders:
        try:
            run = RunRecord.read(folder)
        except StoreError as error:
            unreadable.append(str(error))
        else:
            runs.setdefault(run.key, run)
    names = _problem_names([run.table for run in runs.values()])
    problems = [
        _make_problem(list(group), names)
        for _, group in itertools.groupby(sorted(runs.values(), key=_problem_key), key=_problem_key)
    ]
    return Findings(tuple(problems), tuple(unreadable))


def _last_attempts(attempts: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the environments of the last attempt from the start, and of its resumes."""
    starts = [i for i, entry in enumerate(attempts) if "resumed at step" not in entry]
    return tuple(attempts[max(starts, default=0) :])


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _problem_key(run: RunRecord) -> str:
    """Return a text that the runs of a problem share."""
    table = run.table
    length = table["train"].get("epochs"), table["train"].get("steps")
    return json.dumps([table["task"], table["protocol"], length], sort_keys=True)


def _setting_key(run: RunRecord) -> str:
    """Return a text that the runs of a setting share."""
    rest = {key: value for key, value in run.table.items() if key != "seed"}
    return json.dumps(rest, sort_keys=True)


def _make_problem(runs: list[RunRecord], problem_name: Callable[[RunTable], str]) -> Problem:
    names = Labels([run.table for run in runs])
    settings = []
    for _, group in itertools.groupby(sorted(runs, key=_setting_key), key=_setting_key):
        by_seed = sorted(group, key=lambda run: run.seed)
        table = by_seed[0].table
        name = ", ".join(names.setting(table)[1:])
        settings.append(Setting(name, str(table["optimizer"]["name"]), tuple(by_seed)))
    settings.sort(key=lambda setting: order(setting.table))
    return Problem(problem_name(runs[0].table), tuple(settings))


def _problem_names(tables: Sequence[RunTable]) -> Callable[[RunTable], str]:
    """Return a function that names the problem of a run among those of all runs."""
    names = Labels(tables)
    lengths: dict[str, set[str]] = {}
    protocols: dict[str, set[str]] = {}
    for table in tables:
        task = json.dumps(table["task"], sort_keys=True)
        lengths.setdefault(task, set()).add(length_in_words(table["train"]))
        protocols.setdefault(task, set()).add(table["protocol"])

    def name(table: RunTable) -> str:
        task = json.dumps(table["task"], sort_keys=True)
        parts = [names.setting(table)[0]]
        if len(lengths[task]) > 1:
            parts.append(length_in_words(table["train"]))
        if len(protocols[task]) > 1:
            parts.append(f"{table['protocol']} protocol")
        return ", ".join(parts)

    return name
