"""The results of a search: every trial, the best settings, and the record of both."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import tomli_w
from optuna.trial import FrozenTrial, TrialState

from ...environment import environment
from ...present.json_numbers import replace_nonfinite
from ..jobs.provenance import commit
from ..spec.run import Run
from ..store.records import Table
from ..tasks.metric import Metric
from .ownership import open_trials
from .search import Candidate, Search
from .trials import Trials

OUTCOMES = ("finished", "pruned", "diverged", "failed")


@dataclass(frozen=True)
class TrialResult:
    """A trial: its setting and its result.

    Attributes:
        number: of the trial, among those of its optimizer.
        outcome: "finished", "pruned" (stopped early as worse than others), "diverged" or "failed";
            of a trial that has not ended, Optuna's state.
        options: the setting.
        value: the metric on validation data, the mean over the seeds; None unless finished.
        loss: the loss on the same data.
        epochs: how many were trained, over all seeds together.
        runs: the keys of its runs.
    """

    number: int
    outcome: str
    options: Table
    value: float | None
    loss: float | None
    epochs: int
    runs: list[str]

    @property
    def has_ended(self) -> bool:
        """Whether the trial is finished, pruned, diverged or failed."""
        return self.outcome in OUTCOMES

    @classmethod
    def of(cls, trial: FrozenTrial) -> TrialResult:
        """Return the result of a trial in Optuna's storage."""
        attributes = trial.user_attrs
        return cls(
            number=trial.number,
            outcome=attributes.get("outcome", trial.state.name.lower()),
            options=attributes.get("options", {}),
            value=trial.value if trial.state is TrialState.COMPLETE else None,
            loss=attributes.get("loss"),
            epochs=attributes.get("epochs", 0),
            runs=attributes.get("runs", []),
        )


@dataclass(frozen=True)
class OptimizerResult:
    """The results of a search for one optimizer.

    Attributes:
        candidate: the optimizer.
        trials: those of its budget, and their retries.
        retried: how many of them repeat a failed one, in addition to the budget.
        left: how many have not ended.
        at_work: how many of these a process is working on.
        metric: what the trials are judged by.
    """

    candidate: Candidate
    trials: list[TrialResult]
    retried: int
    left: int
    at_work: int
    metric: Metric

    @property
    def best(self) -> TrialResult | None:
        """The best trial on validation data; of equals, the one with the lower loss there."""
        finished = [trial for trial in self.trials if trial.value is not None]
        return min(finished, key=self._rank, default=None)

    def _rank(self, trial: TrialResult) -> tuple[float, float]:
        value = math.inf if trial.value is None else trial.value
        loss = math.inf if trial.loss is None or math.isnan(trial.loss) else trial.loss
        return (-value if self.metric.is_maximized else value, loss)

    @property
    def at_edge(self) -> list[str]:
        """The options whose best value is at the edge of the values that were tried."""
        best = self.best
        if best is None:
            return []
        return [
            option
            for option, values in self.candidate.space.items()
            if option in best.options and values.at_edge(best.options[option])
        ]

    @property
    def epochs(self) -> int:
        """How many epochs were trained, over all trials."""
        return sum(trial.epochs for trial in self.trials)

    def count(self, outcome: str) -> int:
        """Return how many trials have this outcome."""
        return sum(trial.outcome == outcome for trial in self.trials)

    @property
    def failed(self) -> int:
        """How many trials failed and were not retried."""
        return self.count("failed") - self.retried


class SearchResult:
    """The results of a search so far.

    Args:
        search: the search.

    Attributes:
        optimizers: the results for each optimizer, in the order of the search.
        metric: what trials are judged by.
    """

    def __init__(self, search: Search) -> None:
        self.search, storage = search, open_trials(search)
        self.metric = search.metric
        self.optimizers: list[OptimizerResult] = []
        for candidate in search.candidates:
            trials = Trials(search, candidate, storage)
            results = [TrialResult.of(trial) for trial in trials.within_budget()]
            self.optimizers.append(
                OptimizerResult(
                    candidate, results, trials.retried, trials.left, trials.at_work, self.metric
                )
            )

    @property
    def runs(self) -> list[Run]:
        """The runs of all trials that have ended."""
        return [
            run
            for optimizer in self.optimizers
            for trial in optimizer.trials
            if trial.has_ended
            for run in self.search.runs(optimizer.candidate, trial.options)
        ]

    @property
    def budget(self) -> int:
        """How many trials there will be at the end, over all optimizers."""
        trials = self.search.method.trials
        return sum(trials + optimizer.retried for optimizer in self.optimizers)

    @property
    def spent(self) -> int:
        """How many of them have ended."""
        return sum(trial.has_ended for optimizer in self.optimizers for trial in optimizer.trials)

    @property
    def at_work(self) -> int:
        """How many trials a process is working on."""
        return sum(optimizer.at_work for optimizer in self.optimizers)

    @property
    def left(self) -> int:
        """How many trials have not ended while no process is working on them."""
        return sum(optimizer.left for optimizer in self.optimizers) - self.at_work

    @property
    def complete(self) -> bool:
        """Whether all trials of every optimizer have ended."""
        return not any(optimizer.left for optimizer in self.optimizers)

    def record(self) -> Table:
        """Return the content of search.json: the whole search, and all of its results."""
        return {
            "search": self.search.document(),
            "metric": self.metric.name,
            "largest": self.metric.is_maximized,
            "over": self.complete,
            "environment": {**environment(), "commit": commit()},
            "optimizers": {
                optimizer.candidate.name: {
                    "best": optimizer.best and optimizer.best.number,
                    "at_edge": optimizer.at_edge,
                    "epochs": optimizer.epochs,
                    "trials": [_finite(asdict(trial)) for trial in optimizer.trials],
                }
                for optimizer in self.optimizers
            },
        }

    def experiment(self) -> str:
        """Return a TOML file that compares the optimizers, each with its best setting."""
        search, method = self.search, self.search.method
        problem = {key: value for key, value in search.problem.items() if key != "about"}
        head = {
            **problem,
            "name": f"{search.name}-tuned",
            "about": f"{search.name}, with the settings that sgdf tune found best",
            "seed": list(search.seeds),
        }
        lines = [
            f"# Chosen by {self.metric.name} on validation data: {method.trials} trials for every "
            "optimizer,",
            f"# each of up to {search.example.train.length} ({method.sampler}), with seeds other "
            f"than those below: {', '.join(map(str, method.seeds))}.",
            "# search.json has the whole search.",
            "",
            *_toml(head),
        ]
        for optimizer in self.optimizers:
            best = optimizer.best
            if best is None:
                lines += ["", f"# {optimizer.candidate.name}: none of its trials finished."]
                continue
            remark = f"# {self.metric.name} {best.value:.4g} on validation data"
            if optimizer.at_edge:
                remark += f"; {', '.join(optimizer.at_edge)} at the edge of what was tried"
            table = optimizer.candidate.optimizer(best.options)
            lines += ["", remark, "[[optimizer]]", *_toml(table, "optimizer.")]
        return "\n".join(lines) + "\n"


def _toml(table: Table, within: str = "") -> list[str]:
    """Return the lines of a TOML table: each list on one line, inner tables at the end."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [
        f"{key} = {json.dumps(value)}"
        if isinstance(value, list)
        else tomli_w.dumps({key: value})[:-1]
        for key, value in plain.items()
    ]
    for key in (key for key in table if key not in plain):
        lines += ["", f"[{within}{key}]", *_toml(table[key], f"{within}{key}.")]
    return lines


def _finite(trial: Table) -> Table:
    """Return a trial for JSON, which has neither NaN nor infinity: they become null."""
    numbers = {key: trial[key] for key in ("value", "loss")}
    return {**trial, **replace_nonfinite(numbers, lambda number: None)}
