"""One trial of a search, from where it was left to its end."""

from __future__ import annotations

import math
import statistics
import time

from optuna.trial import Trial, TrialState

from ...present.words import plural
from ..jobs.events import Display, Event
from ..jobs.plan import Plan
from ..jobs.recorder import never_stop
from ..jobs.run_one import run_one
from ..jobs.signals import Stop
from ..spec.labels import setting_text
from ..spec.run import Run
from ..store.records import Result, Row, figures_on
from ..store.run_folder import RunFolder, State, Store
from ..training.ranks import Ranks
from .trials import Trials

PAUSE_SECONDS = 0.05
"""Between two looks at a run that another process trains."""


class TrialRun:
    """The work on one trial: a run for each seed of the search, one after the other.

    Only the run of the first seed can be pruned: the pruner compares trials at equal epochs.

    Args:
        trials: all trials of the optimizer.
        trial: the trial to do; its lock is held.
        display: receives the events of its runs.
        stop: asks the trial to save and stop.
        ranks: this process alone.
    """

    def __init__(
        self, trials: Trials, trial: Trial, display: Display, stop: Stop, ranks: Ranks
    ) -> None:
        self.trials, self.trial, self.display, self.stop = trials, trial, display, stop
        self.ranks = ranks
        self.search, candidate = trials.search, trials.candidate
        self.reported = set(trials.all()[trial.number].intermediate_values)
        self.options = candidate.draw(trial)
        self.runs = self.search.runs(candidate, self.options)
        self.pruned_at: int | None = None
        self.last_line = ""

    def work(self) -> bool:
        """Do the runs and record the result; return False if the trial was stopped before."""
        self.trial.set_user_attr("options", self.options)
        self.trial.set_user_attr("runs", [run.key for run in self.runs])
        results: list[Result] = []
        for run in self.runs:
            state = self._train(run)
            folder = Store(self.search.store).folder(run.key)
            if state is State.FINISHED:
                results.append(_result(folder))
                continue
            epochs = sum(result["epoch"] for result in results) + _epochs(folder.rows())
            if self.pruned_at is not None:
                self._end("pruned", epochs, state=TrialState.PRUNED)
            elif state is State.DIVERGED:
                self._end("diverged", epochs, state=TrialState.PRUNED)
            elif state is State.FAILED:
                self._end("failed", epochs, state=TrialState.FAIL)
            else:
                return False
            return True
        self._end_with(results)
        return True

    @property
    def name(self) -> str:
        """Its name for people."""
        setting = setting_text(self.options)
        return f"{self.trials.candidate.name} trial {self.trial.number}, {setting}"

    def _train(self, run: Run) -> State:
        """Train a run, or wait for the process that does; return the run's state."""
        plan = Plan((run,), self.search.store, self.search.checkpoint_every)
        plan.prepare()
        folder = Store(self.search.store).folder(run.key)
        watch = self._watch if run is self.runs[0] else never_stop
        while not self.stop.is_set():
            tried = run_one(
                run,
                self.search.store,
                self.search.checkpoint_every,
                self._show,
                self.stop,
                self.ranks,
                watch,
            )
            state = folder.progress()
            if state.has_result and watch is not never_stop:
                self._report(folder.rows())  # of a run that was trained without this trial too
            if tried or state.has_result or state is State.FAILED:
                return state
            time.sleep(PAUSE_SECONDS)
        return folder.progress()

    def _watch(self, rows: list[Row]) -> bool:
        """Report each epoch's metric; return whether the trial is to be pruned."""
        self._report(rows)
        if self.trial.should_prune():
            self.pruned_at = rows[-1]["epoch"]
        return self.pruned_at is not None

    def _report(self, rows: list[Row]) -> None:
        """Report each epoch's metric to Optuna, which compares later trials with it."""
        metric = self.search.metric.name
        for row in rows:
            figures = figures_on(row, "validation")
            if metric in figures and row["epoch"] not in self.reported:
                self.trial.report(figures[metric], row["epoch"])
                self.reported.add(row["epoch"])

    def _show(self, run: str, event: Event) -> None:
        """Show an event of a run; the end of a run is shown only if the trial was stopped there."""
        if event["event"] == "begin":
            (seed,) = (one.seed for one in self.runs if one.key == run)
            event = {**event, "name": f"{self.name}, seed {seed}"}
        if event["event"] == "end":
            self.last_line = event["line"]
            stopped = event["state"] == State.PAUSED.value and self.pruned_at is None
            event = {**event, "quiet": not stopped}
        self.display(run, event)

    def _end_with(self, results: list[Result]) -> None:
        """End the trial with the mean over its finished runs."""
        chosen = [result["selected"]["validation"] for result in results]
        metric, epochs = results[0]["metric"], sum(result["epoch"] for result in results)
        if all("loss" in figures for figures in chosen):
            loss = statistics.fmean(figures["loss"] for figures in chosen)
            self.trial.set_user_attr("loss", loss)
        value = statistics.fmean(figures[metric] for figures in chosen)
        if math.isfinite(value):
            self._end("finished", epochs, value)
        else:
            self._end("diverged", epochs, state=TrialState.PRUNED)

    def _end(
        self,
        outcome: str,
        epochs: int,
        value: float | None = None,
        state: TrialState | None = None,
    ) -> None:
        self.trial.set_user_attr("outcome", outcome)
        self.trial.set_user_attr("epochs", epochs)
        self.trials.end(self.trial, value, state)
        epochs_before = plural(self.pruned_at or 0, "epoch")
        lines = {
            "finished": f"validation {self.search.metric.name} {value or 0.0:.4g}",
            "pruned": f"pruned after {epochs_before}, worse than the median of the others",
            "failed": f"failed: {self.last_line}",
        }
        line = lines.get(outcome, self.last_line)
        self.display(self.runs[0].key, {"event": "over", "name": self.name, "line": line})


def _epochs(rows: list[Row]) -> int:
    return max((row["epoch"] for row in rows), default=0)


def _result(folder: RunFolder) -> Result:
    result = folder.result()
    assert result is not None, "a finished run has a result"
    return result
