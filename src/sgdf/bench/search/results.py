"""What a search came to: the record of every trial, the best settings as an experiment, a plot."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

import tomli_w
from optuna.trial import FrozenTrial, TrialState

from ...environment import environment
from ..jobs.provenance import commit
from ..spec.run import Run
from ..store.records import Table
from ..tasks.metric import Metric
from .search import Candidate, Search
from .storage import open_storage
from .trials import Trials

OUTCOMES = ("finished", "pruned", "diverged", "failed")


@dataclass(frozen=True)
class TrialResult:
    """A trial: its setting, and what that came to.

    Attributes:
        number: of the trial, among those of its optimizer.
        outcome: "finished", "pruned" (given up as worse than others), "diverged", "failed", or
            how far it is.
        options: the setting.
        value: the metric on validation data, the mean over the seeds; None unless finished.
        loss: the loss there.
        epochs: how many were trained, all seeds together.
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
    def is_over(self) -> bool:
        """Whether it came to an end, good or bad."""
        return self.outcome in OUTCOMES

    @classmethod
    def of(cls, trial: FrozenTrial) -> TrialResult:
        """Return what Optuna has of a trial."""
        told = trial.user_attrs
        return cls(
            number=trial.number,
            outcome=told.get("outcome", trial.state.name.lower()),
            options=told.get("options", {}),
            value=trial.value if trial.state is TrialState.COMPLETE else None,
            loss=told.get("loss"),
            epochs=told.get("epochs", 0),
            runs=told.get("runs", []),
        )


@dataclass(frozen=True)
class OptimizerResult:
    """What the search came to for one optimizer.

    Attributes:
        candidate: the optimizer.
        trials: those within its budget.
        retried: how many of them were beyond it, in place of failed ones.
        left: how many are not over.
        at_work: how many of these somebody is at.
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
        """The options whose best value is at the edge of what was tried."""
        if self.best is None:
            return []
        options = self.best.options
        return [
            o
            for o, tried in self.candidate.space.items()
            if o in options and tried.at_edge(options[o])
        ]

    def count(self, outcome: str) -> int:
        """Return how many trials came to that."""
        return sum(trial.outcome == outcome for trial in self.trials)

    @property
    def failed(self) -> int:
        """How many trials failed and were not tried again."""
        return self.count("failed") - self.retried


class SearchResult:
    """All that a search came to, as far as it is.

    Args:
        search: which.
    """

    def __init__(self, search: Search) -> None:
        self.search, storage = search, open_storage(search.storage)
        self.metric = search.metric
        self.found = []
        for candidate in search.candidates:
            trials = Trials(search, candidate, storage)
            tried = [TrialResult.of(trial) for trial in trials.counted()]
            self.found.append(
                OptimizerResult(
                    candidate, tried, trials.retried, trials.left, trials.at_work, self.metric
                )
            )

    @property
    def runs(self) -> list[Run]:
        """The runs of all trials that are over."""
        return [
            run
            for found in self.found
            for trial in found.trials
            if trial.is_over
            for run in self.search.runs(found.candidate, trial.options)
        ]

    @property
    def budget(self) -> int:
        """How many trials there are to be, of all optimizers together."""
        return sum(self.search.method.trials + found.retried for found in self.found)

    @property
    def spent(self) -> int:
        """How many of them are over."""
        return sum(trial.is_over for found in self.found for trial in found.trials)

    @property
    def at_work(self) -> int:
        """How many trials somebody is at."""
        return sum(found.at_work for found in self.found)

    @property
    def left(self) -> int:
        """How many trials are not over, and nobody is at them."""
        return sum(found.left for found in self.found) - self.at_work

    @property
    def complete(self) -> bool:
        """Whether every optimizer has had all of its trials."""
        return not any(found.left for found in self.found)

    def record(self) -> Table:
        """Return everything about the search, as JSON has it."""
        return {
            "search": self.search.document(),
            "metric": self.metric.name,
            "largest": self.metric.is_maximized,
            "over": self.complete,
            "environment": {**environment(), "commit": commit()},
            "optimizers": {
                found.candidate.name: {
                    "best": found.best and found.best.number,
                    "at_edge": found.at_edge,
                    "epochs": sum(trial.epochs for trial in found.trials),
                    "trials": [_finite(asdict(trial)) for trial in found.trials],
                }
                for found in self.found
            },
        }

    def experiment(self) -> str:
        """Return the best settings as an experiment."""
        search, method = self.search, self.search.method
        problem = {key: value for key, value in search.problem.items() if key != "about"}
        head = {
            **problem,
            "name": f"{search.name}-tuned",
            "about": f"{search.name}, with the settings that sgdf tune found best",
            "seed": list(search.seeds),
        }
        lines = [
            f"# Chosen by {self.metric.name} on validation data: for every optimizer "
            f"{method.trials} trials of",
            f"# up to {search.example.train.length} ({method.sampler}) with seeds that are "
            f"none of those below: {', '.join(map(str, method.seeds))}.",
            "# search.json has the whole search.",
            "",
            *_toml(head),
        ]
        for found in self.found:
            if found.best is None:
                lines += ["", f"# {found.candidate.name}: none of its trials came to an end."]
                continue
            remark = f"# {self.metric.name} {found.best.value:.4g} on validation data"
            if found.at_edge:
                remark += f"; {', '.join(found.at_edge)} at the edge of what was tried"
            table = found.candidate.optimizer(found.best.options)
            lines += ["", remark, "[[optimizer]]", *_toml(table, "optimizer.")]
        return "\n".join(lines) + "\n"


def _toml(table: Table, within: str = "") -> list[str]:
    """Return the lines of a table, a list on one of them and tables at the end."""
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
    """Return a trial as JSON has it, which knows no NaN."""
    wrong = [
        key for key in ("value", "loss") if trial[key] is not None and not math.isfinite(trial[key])
    ]
    return {**trial, **dict.fromkeys(wrong)}
