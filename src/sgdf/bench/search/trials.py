"""The trials of a search: who is at which, what they draw, and how each comes to its end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from ..jobs.job import MAX_DEATHS, TO_DO
from ..store import files, lock
from ..store.files import store_errors
from ..store.run_folder import Store
from .search import Candidate, Search
from .space import Choices, latin_hypercube

PAUSE_SECONDS = 0.05
STARTUP = 5
"""Trials placed by Latin hypercube before TPE starts; pruning waits for as many finished ones."""


class Trials:
    """The trials of one optimizer: a study of Optuna's, and who is at which of them.

    Args:
        search: what they belong to.
        candidate: the optimizer.
        storage: where Optuna keeps them.
    """

    def __init__(self, search: Search, candidate: Candidate, storage: BaseStorage) -> None:
        self.search, self.candidate, method = search, candidate, search.method
        problem = {key: value for key, value in search.problem.items() if key != "about"}
        what = [problem, method.sampler, method.prune, method.seeds, candidate.table]
        what += [{option: tried.table for option, tried in candidate.space.items()}]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
        self.name = f"{search.name}/{candidate.name}/{digest}"
        self.locks = search.store / "search" / digest
        self.study = optuna.create_study(
            storage=storage,
            # Of the same search in another store, the locks are unknown here.
            study_name=f"{self.name}/{_store_id(search.store)}",
            direction="maximize" if search.metric.is_maximized else "minimize",
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
                        store.folder(key).clear_failure()
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
                points = latin_hypercube(self.candidate.space, STARTUP, _seed(self.name))
                self.study.enqueue_trial(points[len(trials)])
            self.study.sampler = self._sampler(len(self.all()))
            trial = self.study.ask()
            self._claim(trial.number, claim)
        for (
            option,
            tried,
        ) in self.candidate.space.items():  # while no other process can draw the same
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
        return claim.enter_context(lock.hold(self._lock(number)))

    def _lock(self, number: int) -> Path:
        return self.locks / f"trial-{number}.lock"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other process deal out trials meanwhile."""
        with store_errors(self.locks):
            self.locks.mkdir(parents=True, exist_ok=True)
        while True:
            with lock.hold(self.locks / "lock") as ours:
                if ours:
                    yield
                    return
            time.sleep(PAUSE_SECONDS)

    def _sampler(self, number: int, option: str = "") -> BaseSampler:
        """Return what draws an option of a trial: anew for each, so that who does is the same."""
        if self.search.method.sampler == "grid":
            choices = {
                o: t.names for o, t in self.candidate.space.items() if isinstance(t, Choices)
            }
            return GridSampler(choices, seed=0)
        seed = _seed(f"{self.name} {number} {option}")
        if self.search.method.sampler == "random":
            return RandomSampler(seed)
        return TPESampler(n_startup_trials=STARTUP, seed=seed)


def _store_id(store: Path) -> str:
    """Return what tells a store from all others, written down where it was searched first."""
    path = store / "search" / "id"
    with store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    while not files.read(path):
        with lock.hold(path.with_name("id.lock")) as ours:
            if ours and not files.read(path):
                files.write(path, uuid.uuid4().hex[:8].encode())
    return files.read(path).decode()


def _pruner(search: Search) -> BasePruner:
    """Return what gives up a trial whose best so far is worse than the median of finished ones.

    The first quarter of the epochs says too little.
    """
    if search.method.sampler == "grid" or not search.method.prune:
        return NopPruner()
    epochs = search.epochs
    return MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=epochs // 4)


def _seed(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)
