"""The trials of a search: who is at which, what they draw, and how each comes to its end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from . import files, lock
from .attempt import Stop, to_the_end
from .files import kept
from .labels import setting_text
from .launch import MAX_DEATHS, TO_DO, Display, Plan, work_on
from .processes import Processes
from .space import Choices, spread
from .spec import Run
from .store import State, Store
from .train import Row

if TYPE_CHECKING:
    from .tune import Arm, Search

PAUSE_SECONDS = 0.05
STARTUP = 5
"""Trials of an optimizer that are spread over its space; so many are over before one is pruned."""


class Trials:
    """The trials of one optimizer: a study of Optuna's, and who is at which of them.

    Args:
        search: what they belong to.
        arm: the optimizer.
        storage: where Optuna keeps them.
    """

    def __init__(self, search: Search, arm: Arm, storage: BaseStorage) -> None:
        self.search, self.arm, method = search, arm, search.method
        problem = {key: value for key, value in search.problem.items() if key != "about"}
        what = [problem, method.sampler, method.prune, method.seeds, arm.table]
        what += [{option: tried.table for option, tried in arm.space.items()}]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
        self.name = f"{search.name}/{arm.name}/{digest}"
        self.locks = search.store / "search" / digest
        self.study = optuna.create_study(
            storage=storage,
            # Of the same search in another store, the locks are unknown here.
            study_name=f"{self.name}/{_store_id(search.store)}",
            direction="maximize" if search.goal[1] else "minimize",
            pruner=_pruner(search),
            load_if_exists=True,
        )

    def all(self) -> Sequence[FrozenTrial]:
        """Return all trials that there are."""
        return self.study.get_trials(deepcopy=False)

    def counted(self) -> list[FrozenTrial]:
        """Return those within the budget, which may once have been larger, and their retries."""
        trials = self.all()
        own = [trial for trial in trials if "retries" not in trial.user_attrs]
        counted = own[: self.search.method.trials]
        for trial in trials:  # one may retry another that does
            if trial.user_attrs.get("retries") in [other.number for other in counted]:
                counted.append(trial)
        return counted

    @property
    def left(self) -> int:
        """How many trials of the budget are not over."""
        over = sum(trial.state.is_finished() for trial in self.counted())
        return self.search.method.trials + self.retried - over

    @property
    def at_work(self) -> int:
        """How many of these somebody is at."""
        running = [trial for trial in self.counted() if trial.state is TrialState.RUNNING]
        return sum(lock.owner(self._lock(trial.number)) is not None for trial in running)

    @property
    def retried(self) -> int:
        """How many failed trials have another in their place, beyond the budget."""
        return sum("retries" in trial.user_attrs for trial in self.counted())

    def retry(self) -> None:
        """Let the failed trials be tried again, each in a trial of its own."""
        store = Store(self.search.store)
        with self._alone():
            trials = self.counted()
            retried = {trial.user_attrs.get("retries") for trial in trials}
            for trial in trials:
                if trial.state is TrialState.FAIL and trial.number not in retried:
                    for key in trial.user_attrs.get("runs", []):
                        store.folder(key).forgive()
                    self.study.enqueue_trial(trial.params, user_attrs={"retries": trial.number})

    @contextlib.contextmanager
    def next(self) -> Iterator[Trial | None]:
        """Yield a trial that nobody is at, new or left by a process that died; None if none is."""
        with contextlib.ExitStack() as claim:
            with self._alone():
                trial = self._take(claim)
            yield trial

    def tell(
        self, trial: Trial, value: float | None = None, state: TrialState | None = None
    ) -> None:
        """End a trial."""
        self.study.sampler = RandomSampler()  # a grid's would stop a loop that there is not
        self.study.tell(trial, value, state)

    def _take(self, claim: contextlib.ExitStack) -> Trial | None:
        trials = self.counted()
        for left in trials:
            if left.state is TrialState.RUNNING and self._take_up(left.number, claim):
                self.study.sampler = self._sampler(left.number)
                # Optuna has no public way to go on with a trial.
                trial = Trial(self.study, left._trial_id)
                self._count_death(trial, left)
                break
        else:
            waiting = any(trial.state is TrialState.WAITING for trial in trials)
            if len(trials) >= self.search.method.trials + self.retried and not waiting:
                return None
            if self.search.method.sampler == "tpe" and len(trials) < STARTUP and not waiting:
                points = spread(self.arm.space, STARTUP, _seed(self.name))
                self.study.enqueue_trial(points[len(trials)])
            self.study.sampler = self._sampler(len(self.all()))
            trial = self.study.ask()
            self._claim(trial.number, claim)
        for option, tried in self.arm.space.items():  # while no other process can draw the same
            self.study.sampler = self._sampler(trial.number, option)
            tried.draw(trial, option)
        return trial

    def _count_death(self, trial: Trial, left: FrozenTrial) -> None:
        """Let a trial fail whose processes keep dying before they have saved anything."""
        folders = [Store(self.search.store).folder(key) for key in left.user_attrs.get("runs", [])]
        saved = sum(folder.saved() for folder in folders)
        before = left.user_attrs.get("deaths", {"count": 0, "saved": saved})
        count = before["count"] + 1 if before["saved"] == saved else 1
        trial.set_user_attr("deaths", {"count": count, "saved": saved})
        for folder in folders if count >= MAX_DEATHS else ():
            with folder.claimed() as ours:
                if ours and folder.progress() in TO_DO:
                    folder.fail(f"its process died, {count} times in a row before it could save")

    def _take_up(self, number: int, claim: contextlib.ExitStack) -> bool:
        """Claim a trial whose process died, and has not just come to its end."""
        with contextlib.ExitStack() as own:
            if self._claim(number, own) and self.all()[number].state is TrialState.RUNNING:
                claim.enter_context(own.pop_all())
                return True
        return False

    def _claim(self, number: int, claim: contextlib.ExitStack) -> bool:
        return claim.enter_context(lock.held(self._lock(number)))

    def _lock(self, number: int) -> Path:
        return self.locks / f"trial-{number}.lock"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process deal out trials meanwhile."""
        with kept(self.locks):
            self.locks.mkdir(parents=True, exist_ok=True)
        while True:
            with lock.held(self.locks / "lock") as ours:
                if ours:
                    yield
                    return
            time.sleep(PAUSE_SECONDS)

    def _sampler(self, number: int, option: str = "") -> BaseSampler:
        """Return what draws an option of a trial: anew for each, so that who does is the same."""
        if self.search.method.sampler == "grid":
            choices = {o: t.names for o, t in self.arm.space.items() if isinstance(t, Choices)}
            return GridSampler(choices, seed=0)
        seed = _seed(f"{self.name} {number} {option}")
        if self.search.method.sampler == "random":
            return RandomSampler(seed)
        return TPESampler(n_startup_trials=STARTUP, seed=seed)


def _store_id(store: Path) -> str:
    """Return what tells a store from all others, written down where it was searched first."""
    path = store / "search" / "id"
    with kept(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    while not files.read(path):
        with lock.held(path.with_name("id.lock")) as ours:
            if ours and not files.read(path):
                files.write(path, uuid.uuid4().hex[:8].encode())
    return files.read(path).decode()


def _pruner(search: Search) -> BasePruner:
    """Return what gives up a trial whose best so far is worse than the median of finished ones.

    The first quarter of the epochs says too little.
    """
    if search.method.sampler == "grid" or not search.method.prune:
        return NopPruner()
    epochs = search.example.train.epochs
    return MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=epochs // 4)


def _seed(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


class Attempt:
    """One trial from where it was left to its end.

    Args:
        trials: those that it is one of.
        trial: which.
        display: is told of its runs.
        stop: asks for an end.
        processes: this one.
    """

    def __init__(
        self, trials: Trials, trial: Trial, display: Display, stop: Stop, processes: Processes
    ) -> None:
        self.trials, self.trial, self.display, self.stop = trials, trial, display, stop
        self.processes = processes
        self.search, arm = trials.search, trials.arm
        self.reported = set(trials.all()[trial.number].intermediate_values)
        self.options = arm.draw(trial)
        self.runs = self.search.runs(arm, self.options)
        self.pruned_at: int | None = None
        self.last_line = ""

    def go(self) -> bool:
        """Do its runs and tell Optuna; return whether it came to an end."""
        self.trial.set_user_attr("options", self.options)
        self.trial.set_user_attr("runs", [run.key for run in self.runs])
        results: list[dict[str, Any]] = []
        for run in self.runs:
            state = self._do(run)
            folder = Store(self.search.store).folder(run)
            if state is State.FINISHED:
                results.append(folder.result() or {})
                continue
            epochs = sum(result["epoch"] for result in results) + self._epochs(folder.rows())
            if self.pruned_at is not None:
                self._end("pruned", epochs, state=TrialState.PRUNED)
            elif state is State.DIVERGED:
                self._end("diverged", epochs, state=TrialState.PRUNED)
            elif state is State.FAILED:
                self._end("failed", epochs, state=TrialState.FAIL)
            else:
                return False
            return True
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
        return True

    def _do(self, run: Run) -> State:
        """Do a run, or wait for who is at it."""
        plan = Plan((run,), self.search.store, self.search.checkpoint_every)
        plan.prepare()
        folder = Store(self.search.store).folder(run)
        watch = self._watch if run is self.runs[0] else to_the_end
        while not self.stop.is_set():
            tried = work_on(run, plan, self._tell, self.stop, self.processes, watch)
            state = folder.progress()
            if tried or state.over or state is State.FAILED:
                return state
            time.sleep(PAUSE_SECONDS)
        return folder.progress()

    def _watch(self, rows: list[Row]) -> bool:
        """Report each epoch's metric, and say whether the trial is to be given up."""
        metric, _ = self.search.goal
        for row in rows:
            if "validation" in row and row["epoch"] not in self.reported:
                self.trial.report(row["validation"][metric], row["epoch"])
                self.reported.add(row["epoch"])
        if self.trial.should_prune():
            self.pruned_at = rows[-1]["epoch"]
        return self.pruned_at is not None

    def _tell(self, run: str, event: dict[str, Any]) -> None:
        """Pass on what happens; how runs end is told of the trial as a whole."""
        if event["event"] == "begin":
            (seed,) = (one.seed for one in self.runs if one.key == run)
            event = {**event, "name": f"{self.name}, seed {seed}"}
        if event["event"] == "end":
            self.last_line = event["line"]
            stopped = event["state"] == State.PAUSED.value and self.pruned_at is None
            event = {**event, "quiet": not stopped}
        self.display(run, event)

    @property
    def name(self) -> str:
        """What it is called."""
        setting = setting_text(self.options)
        return f"{self.trials.arm.name} trial {self.trial.number}, {setting}"

    def _end(
        self,
        outcome: str,
        epochs: int,
        value: float | None = None,
        state: TrialState | None = None,
    ) -> None:
        self.trial.set_user_attr("outcome", outcome)
        self.trial.set_user_attr("epochs", epochs)
        self.trials.tell(self.trial, value, state)
        lines = {
            "finished": f"validation {self.search.goal[0]} {value or 0.0:.4g}",
            "pruned": f"given up after {self.pruned_at} epochs, worse than others were then",
            "failed": f"failed: {self.last_line}",
        }
        line = lines.get(outcome, self.last_line)
        self.display(self.runs[0].key, {"event": "over", "name": self.name, "line": line})

    def _epochs(self, rows: list[Row]) -> int:
        return max((row["epoch"] for row in rows), default=0)
