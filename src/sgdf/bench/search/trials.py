"""The trials of one optimizer, and how they are dealt out to processes.

A process that takes a trial holds the trial's lock file. The lock is released when the process
ends, however it ends; the next process that asks for a trial then resumes that one first.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from ..errors import SpecError
from ..jobs.job import MAX_DEATHS, TO_DO, repeated_deaths
from ..store import lock
from ..store.files import store_errors
from ..store.identity import digest
from ..store.run_folder import Store
from .ownership import store_id
from .search import Candidate, Search
from .space import Choices, latin_hypercube

STARTUP = 5
"""Trials placed by Latin hypercube before TPE starts; pruning waits for as many finished ones."""


class Trials:
    """The trials of one optimizer: an Optuna study, and a lock file for each trial.

    Args:
        search: the search that they belong to.
        candidate: the optimizer.
        storage: where Optuna keeps them.
    """

    def __init__(self, search: Search, candidate: Candidate, storage: BaseStorage) -> None:
        self.search, self.candidate, method = search, candidate, search.method
        problem = {key: value for key, value in search.problem.items() if key != "about"}
        identity = [problem, method.sampler, method.prune, method.seeds, candidate.table]
        identity += [{option: values.table for option, values in candidate.space.items()}]
        key = digest(json.dumps(identity, sort_keys=True).encode())[:12]
        self.name = f"{search.name}/{candidate.name}/{key}"
        self.locks = search.store / "search" / key
        direction: Literal["maximize", "minimize"]
        direction = "maximize" if search.metric.is_maximized else "minimize"
        self.study = optuna.create_study(
            storage=storage,
            # The store's id is part of the name: the locks of another store are invisible to us.
            study_name=f"{self.name}/{store_id(search.store)}",
            direction=direction,
            pruner=_pruner(search),
            load_if_exists=True,
        )
        if self.study.direction.name.lower() != direction:
            raise SpecError(
                f"{search.store} holds a search that did not {direction} {search.metric.name}; "
                "--out another folder"
            )

    def all(self) -> Sequence[FrozenTrial]:
        """Return every trial of the study."""
        return self.study.get_trials(deepcopy=False)

    def within_budget(self) -> list[FrozenTrial]:
        """Return the trials of the budget and their retries.

        There are more if an earlier command had a larger budget.
        """
        trials = self.all()
        first_tries = [trial for trial in trials if "retries" not in trial.user_attrs]
        counted = first_tries[: self.search.method.trials]
        for trial in trials:  # in order, so that a retry of a retry is found too
            if trial.user_attrs.get("retries") in [other.number for other in counted]:
                counted.append(trial)
        return counted

    @property
    def left(self) -> int:
        """How many trials of the budget have not ended."""
        ended = sum(trial.state.is_finished() for trial in self.within_budget())
        return self.search.method.trials + self.retried - ended

    @property
    def at_work(self) -> int:
        """How many of these a process is working on."""
        running = [trial for trial in self.within_budget() if trial.state is TrialState.RUNNING]
        return sum(lock.owner(self._lock_path(trial.number)) is not None for trial in running)

    @property
    def retried(self) -> int:
        """How many trials repeat a failed one, in addition to the budget."""
        return sum("retries" in trial.user_attrs for trial in self.within_budget())

    def retry(self) -> None:
        """Add a new trial with the same setting for each failed one."""
        store = Store(self.search.store)
        with self._dealing():
            trials = self.within_budget()
            retried = {trial.user_attrs.get("retries") for trial in trials}
            for trial in trials:
                if trial.state is TrialState.FAIL and trial.number not in retried:
                    for key in trial.user_attrs.get("runs", []):
                        store.folder(key).clear_failure()
                    self.study.enqueue_trial(trial.params, user_attrs={"retries": trial.number})

    @contextlib.contextmanager
    def next(self) -> Iterator[Trial | None]:
        """Hold the lock of the next trial meanwhile, and yield the trial.

        That is one whose process died, or else a new one; None if the budget is used up or other
        processes work on the rest.
        """
        with contextlib.ExitStack() as locks:
            with self._dealing():
                trials = self.within_budget()
                trial = self._interrupted(trials, locks) or self._new(trials, locks)
                if trial is not None:
                    self._draw(trial)
            yield trial

    def end(
        self, trial: Trial, value: float | None = None, state: TrialState | None = None
    ) -> None:
        """Record the end of a trial in the study."""
        # Study.tell() calls the sampler's after_trial(). That of GridSampler calls Study.stop()
        # after the last point, which raises an error outside of Study.optimize(), where we are;
        # that of RandomSampler does nothing.
        self.study.sampler = RandomSampler()
        self.study.tell(trial, value, state)

    def _interrupted(
        self, trials: Sequence[FrozenTrial], locks: contextlib.ExitStack
    ) -> Trial | None:
        """Return a trial whose process died, with its lock held; None if there is none."""
        for left in trials:
            if left.state is TrialState.RUNNING and self._lock_running(left.number, locks):
                self.study.sampler = self._sampler(left.number)
                trial = Trial(self.study, left._trial_id)  # Optuna has no public way to resume one
                self._count_death(trial, left)
                return trial
        return None

    def _new(self, trials: Sequence[FrozenTrial], locks: contextlib.ExitStack) -> Trial | None:
        """Return a new trial, with its lock held; None if the budget is used up."""
        waiting = any(trial.state is TrialState.WAITING for trial in trials)
        if len(trials) >= self.search.method.trials + self.retried and not waiting:
            return None
        if self.search.method.sampler == "tpe" and len(trials) < STARTUP and not waiting:
            points = latin_hypercube(self.candidate.space, STARTUP, _seed(self.name))
            self.study.enqueue_trial(points[len(trials)])
        self.study.sampler = self._sampler(len(self.all()))
        trial = self.study.ask()
        self._lock(trial.number, locks)
        return trial

    def _draw(self, trial: Trial) -> None:
        """Draw all options now, while no other process can draw the same values."""
        for option, values in self.candidate.space.items():
            self.study.sampler = self._sampler(trial.number, option)
            values.draw(trial, option)

    def _count_death(self, trial: Trial, left: FrozenTrial) -> None:
        """Mark the runs of a trial as failed if its processes keep dying before they can save."""
        folders = [Store(self.search.store).folder(key) for key in left.user_attrs.get("runs", [])]
        saved = sum(folder.saved() for folder in folders)
        before = left.user_attrs.get("deaths", {"count": 0, "saved": saved})
        count = before["count"] + 1 if before["saved"] == saved else 1
        trial.set_user_attr("deaths", {"count": count, "saved": saved})
        for folder in folders if count >= MAX_DEATHS else ():
            with folder.claim() as ours:
                if ours and folder.progress() in TO_DO:
                    log = f"The terminal or {self.search.store / 'workers.log'}"
                    folder.fail(repeated_deaths("its process died", count, log))

    def _lock_running(self, number: int, locks: contextlib.ExitStack) -> bool:
        """Lock a trial if no process works on it; return whether it is locked and has not ended."""
        with contextlib.ExitStack() as held:
            # The trial may have ended after its state was read and before its lock was released.
            if self._lock(number, held) and self.all()[number].state is TrialState.RUNNING:
                locks.enter_context(held.pop_all())
                return True
        return False

    def _lock(self, number: int, locks: contextlib.ExitStack) -> bool:
        return locks.enter_context(lock.hold(self._lock_path(number)))

    def _lock_path(self, number: int) -> Path:
        return self.locks / f"trial-{number}.lock"

    @contextlib.contextmanager
    def _dealing(self) -> Iterator[None]:
        """Keep other processes from taking or adding trials meanwhile."""
        with store_errors(self.locks):
            self.locks.mkdir(parents=True, exist_ok=True)
        with lock.wait_for(self.locks / "lock"):
            yield

    def _sampler(self, number: int, option: str = "") -> BaseSampler:
        """Return the sampler for one option of one trial.

        Each has its own seed, so that every process draws the same values for it.
        """
        if self.search.method.sampler == "grid":
            choices = {
                option: values.names
                for option, values in self.candidate.space.items()
                if isinstance(values, Choices)
            }
            return GridSampler(choices, seed=0)
        seed = _seed(f"{self.name} {number} {option}")
        if self.search.method.sampler == "random":
            return RandomSampler(seed)
        return TPESampler(n_startup_trials=STARTUP, seed=seed)


def _pruner(search: Search) -> BasePruner:
    """Return the pruner: a trial is pruned if its best value is worse than the others' median.

    It is not asked during the first quarter of the epochs, whose values say too little.
    """
    if search.method.sampler == "grid" or not search.method.prune:
        return NopPruner()
    return MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=search.epochs // 4)


def _seed(text: str) -> int:
    return int(digest(text.encode())[:8], 16)
