"""Search for the settings of optimizers with equal budgets: as many trials, of as many epochs.

A search is an experiment whose file says, for each optimizer, what may be tried. Optuna draws
the settings; a trial is a setting, trained with each seed of the search as an ordinary run in the
store, and judged by the mean over the seeds of the metric on validation data. Every optimizer has
a study of its own, so that none is given up for the success of another.

Any number of processes share a search. Trials are dealt out under locks that die with their
process, and one whose process died is taken up where its runs were left.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import optuna
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, GridSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from . import lock
from .attempt import Stop, apart, to_the_end
from .files import kept
from .grid import Table, grid, quoted
from .launch import Display, Plan, job_line, work_on
from .objects import SpecError
from .optimizers import optimizer_options
from .parts import choice, read_part, whole
from .processes import Processes
from .space import Choices, Range, Space, default_space, filled, read_space, spread
from .spec import Run, read, settled
from .storage import open_storage
from .store import State, Store
from .tasks import find_task
from .train import Row

PAUSE_SECONDS = 0.05
STARTUP = 5
"""Trials of an optimizer that are spread over its space and never given up: a basis for others."""


@dataclass(frozen=True)
class Method:
    """How a search goes about it, the same for every optimizer: ``[search]`` of its file."""

    trials: int = whole(12)
    sampler: str = choice("tpe", ("tpe", "random", "grid"))
    prune: bool = True
    seeds: tuple[int, ...] = (0,)

    def pruner(self, epochs: int) -> BasePruner:
        """Return what gives up a trial that is worse than half of those before it were then.

        The first quarter of the epochs says too little.
        """
        if self.sampler == "grid" or not self.prune:
            return NopPruner()
        return MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=epochs // 4)


@dataclass(frozen=True)
class Arm:
    """An optimizer in a search: what is set of it, and what is tried."""

    name: str
    table: Table
    space: Space

    def draw(self, trial: Trial) -> Table:
        """Return the values of a trial, those that it has already as they are."""
        return {option: tried.draw(trial, option) for option, tried in self.space.items()}

    def optimizer(self, values: Table) -> Table:
        """Return it with the values of a trial, as a spec has it."""
        return {**self.table, **quoted(values)}


@dataclass(frozen=True)
class Search:
    """A search: a job for any number of processes.

    Attributes:
        problem: what is trained, as a spec has it, without seeds and optimizers.
        seeds: those of the comparison to come, which are none of the search's.
        method: how it is searched.
        arms: the optimizers.
        store: the folder that keeps the runs.
        storage: the URL of Optuna's storage.
        threads: of a run that does not say how many it wants.
        checkpoint_every: seconds between checkpoints.
        limit: how many trials a process takes part in at the most.
    """

    problem: Table
    seeds: tuple[int, ...]
    method: Method
    arms: tuple[Arm, ...]
    store: Path
    storage: str
    threads: int = 1
    checkpoint_every: float = 60.0
    limit: float = field(default=math.inf)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.problem["name"])

    def runs(self, arm: Arm, values: Table) -> tuple[Run, ...]:
        """Return the runs of a setting."""
        document = {
            **self.problem,
            "seed": list(self.method.seeds),
            "optimizer": arm.optimizer(values),
        }
        return settled(read(document), self.threads).runs

    @cached_property
    def example(self) -> Run:
        """One of its runs."""
        arm = self.arms[0]
        return self.runs(arm, {option: tried.examples[0] for option, tried in arm.space.items()})[0]

    @cached_property
    def goal(self) -> tuple[str, bool]:
        """The metric that is chosen by, and whether the largest value is the best."""
        run = self.example
        with apart(run):
            task = find_task(run.task.name)(**run.task.options)
        return task.selects, task.largest

    def check(self) -> None:
        """Find out whether what is to be tried can be.

        Raises:
            SpecError: if an option is not known, or does not take one of the values.
        """
        for arm in self.arms:
            for option, tried in arm.space.items():
                for value in tried.examples:
                    others = {o: t.examples[0] for o, t in arm.space.items()}
                    self.runs(arm, {**others, option: value})

    def prepare(self, retry: bool = False) -> None:
        """Make the folder; with ``retry``, let failed trials be tried again."""
        with kept(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        storage = open_storage(self.storage)
        for arm in self.arms if retry else ():
            Trials(self, arm, storage).retry()

    def parts(self) -> list[Search]:
        """Return a search for each trial."""
        trials = range(self.method.trials)
        return [replace(self, arms=(arm,), limit=1) for _ in trials for arm in self.arms]

    def as_json(self) -> str:
        """Return the search as a line for a worker."""
        return job_line(
            "search",
            {
                "document": self.document(),
                "store": str(self.store.absolute()),
                "storage": self.storage,
                "threads": self.threads,
                "checkpoint_every": self.checkpoint_every,
                "limit": None if math.isinf(self.limit) else self.limit,
            },
        )

    def document(self) -> Table:
        """Return the search as its file could have it, with nothing left to a default."""
        method = self.method
        return {
            **self.problem,
            "seed": list(self.seeds),
            "search": {
                "trials": method.trials,
                "sampler": method.sampler,
                "prune": method.prune,
                "seeds": list(method.seeds),
            },
            "optimizer": [
                {
                    **arm.table,
                    "search": {option: tried.table for option, tried in arm.space.items()},
                }
                for arm in self.arms
            ],
        }

    @classmethod
    def from_table(cls, content: Table) -> Search:
        """Return the search that such a line holds."""
        return read_search(
            content["document"],
            store=Path(content["store"]),
            storage=content["storage"],
            threads=content["threads"],
            checkpoint_every=content["checkpoint_every"],
            limit=content["limit"] or math.inf,
        )

    def work(self, display: Display, stop: Stop) -> None:
        """Take part in trials until none is left: one of each optimizer's after the other."""
        storage, processes = open_storage(self.storage), Processes(alone=True)
        left, open_trials = self.limit, [Trials(self, arm, storage) for arm in self.arms]
        while open_trials:
            for trials in list(open_trials):
                if left <= 0 or stop.is_set():
                    return
                left -= 1
                with trials.next() as trial:
                    if not (trial and _Attempt(trials, trial, display, stop, processes).go()):
                        open_trials.remove(trials)


class Trials:
    """The trials of one optimizer: a study of Optuna's, and who is at which of them.

    Args:
        search: what they belong to.
        arm: the optimizer.
        storage: where Optuna keeps them.
    """

    def __init__(self, search: Search, arm: Arm, storage: BaseStorage) -> None:
        self.search, self.arm, method = search, arm, search.method
        what = [search.problem, method.sampler, method.prune, method.seeds, arm.table]
        what += [{option: tried.table for option, tried in arm.space.items()}]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
        self.name = f"{search.name}/{arm.name}/{digest}"
        self.study = optuna.create_study(
            storage=storage,
            study_name=self.name,
            direction="maximize" if search.goal[1] else "minimize",
            pruner=method.pruner(search.example.train.epochs),
            load_if_exists=True,
        )
        self.locks = search.store / "search" / digest

    def all(self) -> Sequence[FrozenTrial]:
        """Return all trials that there are."""
        return self.study.get_trials(deepcopy=False)

    def is_over(self) -> bool:
        """Return whether all of the budget is spent."""
        return self._dealt_out() and all(trial.state.is_finished() for trial in self.all())

    @property
    def retried(self) -> int:
        """How many failed trials have another in their place, beyond the budget."""
        return sum("retries" in trial.user_attrs for trial in self.all())

    def retry(self) -> None:
        """Let the failed trials be tried again, each in a trial of its own."""
        store = Store(self.search.store)
        with self._alone():
            trials = self.all()
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
        trials = self.all()
        self.study.sampler = self._sampler(len(trials))
        for left in trials:
            if left.state is TrialState.RUNNING and self._claim(left.number, claim):
                # Optuna has no public way to go on with a trial.
                trial = Trial(self.study, left._trial_id)
                break
        else:
            waiting = any(trial.state is TrialState.WAITING for trial in trials)
            if self._dealt_out() and not waiting:
                return None
            if self.search.method.sampler == "tpe" and len(trials) < STARTUP and not waiting:
                points = spread(self.arm.space, STARTUP, _seed(self.name))
                self.study.enqueue_trial(points[len(trials)])
            trial = self.study.ask()
            self._claim(trial.number, claim)
        self.arm.draw(trial)  # while no other process can draw the same
        return trial

    def _dealt_out(self) -> bool:
        return len(self.all()) >= self.search.method.trials + self.retried

    def _claim(self, number: int, claim: contextlib.ExitStack) -> bool:
        return claim.enter_context(lock.held(self.locks / f"trial-{number}.lock"))

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

    def _sampler(self, number: int) -> BaseSampler:
        """Return what draws a trial: anew for each, so that it does not matter who draws it."""
        if self.search.method.sampler == "grid":
            choices = {o: t.names for o, t in self.arm.space.items() if isinstance(t, Choices)}
            return GridSampler(choices, seed=0)
        seed = _seed(f"{self.name} {number}")
        if self.search.method.sampler == "random":
            return RandomSampler(seed)
        return TPESampler(n_startup_trials=STARTUP, seed=seed)


def _seed(text: str) -> int:
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16)


class _Attempt:
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
        metric = results[0]["metric"]
        if all("loss" in figures for figures in chosen):
            loss = statistics.fmean(figures["loss"] for figures in chosen)
            self.trial.set_user_attr("loss", loss)
        value = statistics.fmean(figures[metric] for figures in chosen)
        self._end("finished", sum(result["epoch"] for result in results), value)
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
        """Pass on what happens, in the words of a search."""
        seeds = {one.key: one.seed for one in self.runs}
        if event["event"] == "begin":
            setting = " ".join(f"{option}={value}" for option, value in self.options.items())
            what = f"{self.trials.arm.name} trial {self.trial.number}, {setting}"
            event = {**event, "name": f"{what}, seed {seeds[run]}"}
        if event["event"] == "end":
            last = run == self.runs[-1].key or event["state"] != State.FINISHED.value
            event = {**event, "counts": last and event["state"] != State.PAUSED.value}
            if event["state"] == State.FINISHED.value:
                event = {**event, "line": self._line(run)}
            if self.pruned_at is not None:
                line = f"epoch {self.pruned_at}, worse than half of the trials before it"
                event = {**event, "state": "given up", "line": line, "counts": True}
        self.display(run, event)

    def _line(self, run: str) -> str:
        """Return what a run came to, without the test data, which are not to be looked at yet."""
        result = Store(self.search.store).folder(run).result() or {}
        chosen, metric = result["selected"], result["metric"]
        return f"validation {metric} {chosen['validation'][metric]:.4g} (epoch {chosen['epoch']})"

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

    def _epochs(self, rows: list[Row]) -> int:
        return max((row["epoch"] for row in rows), default=0)


def read_search(document: Table, only: Sequence[str] | None = None, **options: Any) -> Search:
    """Return the search that a parsed TOML document describes.

    Args:
        document: an experiment, whose optimizers may have tables of what to search.
        only: search these optimizers, whether the document has them or not.
        options: the attributes of a search that the document does not say.
    """
    document = dict(document)
    tables, table = document.pop("optimizer", None), document.pop("search", {})
    seeds = document.pop("seed", 0)
    seeds = tuple(seeds) if isinstance(seeds, list) else (seeds,)
    if tables is None and not only:
        raise SpecError("[optimizer]: missing")
    if document.get("protocol", "validation") != "validation":
        raise SpecError(
            'protocol = "paper": holds back no data to choose by; it must be "validation"'
        )
    if len(list(grid(document))) > 1:
        raise SpecError(
            "a search is for one problem, but a list stands in its task, schedule or training; "
            "choose one of its values, as with --set train.batch_size=64"
        )
    method = _method(table, seeds)
    found = list(_optimizers(tables))
    if only:
        named = {str(one.get("name")): one for one in found}
        found = [named.get(name, {"name": name, "search": {}}) for name in dict.fromkeys(only)]
    arms = [_arm(one, method) for one in found]
    twice = {arm.name for arm in arms if sum(arm.name == other.name for other in arms) > 1}
    if twice:
        raise SpecError(
            f"optimizer {', '.join(sorted(twice))}: is there more than once; what is to be tried "
            "of it belongs into one [optimizer.search]"
        )
    search = Search(document, seeds, method, tuple(arms), **options)
    search.check()
    return search


def _method(table: Any, compared: tuple[int, ...]) -> Method:
    if not isinstance(table, dict):
        raise SpecError(f"search = {table!r}: must be a table, [search]")
    table = dict(table)
    numbers = all(isinstance(seed, int) for seed in compared)
    seeds = table.pop("seeds", [max(compared) + 1 if numbers else 0])
    if not isinstance(seeds, list) or not seeds or len(set(map(repr, seeds))) < len(seeds):
        raise SpecError(f"search.seeds = {seeds!r}: must be a list of different seeds")
    if set(seeds) & set(compared):
        raise SpecError(
            f"search.seeds = {seeds!r}: must be none of those that are compared with, seed = "
            f"{list(compared)!r}"
        )
    return read_part(Method, table, "search", seeds=tuple(seeds))


def _optimizers(tables: Any) -> Iterator[Table]:
    """Yield each optimizer's table, what is to be searched left as it is."""
    for table in tables if isinstance(tables, list) else filter(None, [tables]):
        if not isinstance(table, dict):
            raise SpecError(f"optimizer = {table!r}: must be a table, [optimizer]")
        rest = {key: value for key, value in table.items() if key != "search"}
        searched = table.get("search", {})
        if not isinstance(searched, dict):
            raise SpecError(f"optimizer.search = {searched!r}: must be a table, [optimizer.search]")
        for one in grid(rest):
            yield {**quoted(one), "search": searched}


def _arm(table: Table, method: Method) -> Arm:
    table = dict(table)
    name, searched = table.get("name"), table.pop("search")
    if not isinstance(name, str):
        raise SpecError(f"optimizer.name = {name!r}: must be a string")
    try:
        space = read_space(searched) if searched else default_space(name, method.sampler)
        if method.sampler == "grid":
            space = filled(space, method.trials)
        table = {key: value for key, value in table.items() if key not in space}
        examples = {option: tried.examples[0] for option, tried in space.items()}
        given = {
            key: value
            for key, value in {**table, **examples}.items()
            if key not in ("name", "train")
        }
        known = optimizer_options(name, {key: _unquoted(value) for key, value in given.items()})
    except SpecError as error:
        raise SpecError(f"optimizer {name!r}: {error}") from error
    return Arm(name, table, {o: _fitted(tried, known[o]) for o, tried in space.items()})


def _unquoted(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], list) else value


def _fitted(tried: Range | Choices, example: Any) -> Range | Choices:
    """Return a range of whole numbers as one of all numbers, if the option takes such."""
    if isinstance(tried, Range) and isinstance(example, float):
        return replace(tried, low=float(tried.low), high=float(tried.high))
    return tried
