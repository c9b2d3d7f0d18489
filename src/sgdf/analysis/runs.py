"""The runs that an analysis is about: trained ones in folders, or those of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..bench.errors import SpecError, naming
from ..bench.spec.labels import Labels, order
from ..bench.spec.read import load, read
from ..bench.spec.run import Run
from ..bench.store.records import Figures, Result, Table, figures_on
from ..bench.store.run_folder import RunFolder, State
from ..present.words import listed, plural

if TYPE_CHECKING:
    from torch import nn

    from ..bench.tasks import Task

T = TypeVar("T")


@dataclass(frozen=True)
class AnalysedRun:
    """A run of the bench, as an analysis sees it.

    Attributes:
        run: the run with all of its settings.
        setting: the name of its setting among those that are analysed: the optimizer, and the
            options in which it differs from others. Runs that differ in the seed alone share it.
        folder: the folder of a run that was trained.
        result: the result of a run that was trained.
        task: the name of its task, with the options in which it differs from others of the same
            name among all runs that could be chosen.
    """

    run: Run
    setting: str
    folder: Path | None = None
    result: Result | None = None
    task: str = ""

    @property
    def optimizer(self) -> str:
        """The name of its optimizer, which its colour depends on."""
        return self.run.optimizer.name

    @property
    def key(self) -> str:
        """What its record is named by: the key of the run."""
        return self.run.key

    @property
    def name(self) -> str:
        """Its setting and its seed."""
        return f"{self.setting}, seed {self.run.seed}"

    @property
    def weights(self) -> str:
        """The digest of the trained weights; empty if the run was not trained."""
        return self.result["weights"] if self.result else ""

    def last(self, split: str) -> Figures:
        """Return the figures at the last epoch, whose weights are analysed."""
        record = self.result.get("last") if self.result else None
        return figures_on(record, split) if record else {}

    def open(self) -> tuple[Task, nn.Module]:
        """Return the task and the trained model."""
        from ..bench.training.open_run import open_run  # torch takes a second to import

        assert self.folder is not None, "only a trained run has weights"
        return open_run(self.folder)


def trained_runs(
    folders: Sequence[RunFolder],
    optimizers: Collection[str] = (),
    seeds: Collection[int] = (),
    tasks: Collection[str] = (),
) -> list[AnalysedRun]:
    """Return the finished runs among these folders, in the order of their settings.

    Args:
        folders: the folders of runs.
        optimizers: only runs of these; all if empty.
        seeds: only runs with these seeds; all if empty.
        tasks: only runs of these, by the name of a task, or by its name with the options in which
            it differs from others; all if empty.

    Raises:
        SpecError: if none is finished, or none is left by the choice.
    """
    finished: dict[str, tuple[Run, Path, Result | None]] = {}  # two folders may hold the same run
    others = 0
    for folder in folders:
        state, result = folder.state_and_result()
        table = folder.table() if state is State.FINISHED else None
        if table is None or table["train"].get("by_function"):
            others += 1
        else:
            run = read(dict(table), build=False).runs[0]
            finished.setdefault(run.key, (run, folder.path, result))
    if not finished:
        raise SpecError(
            f"no finished run among {plural(others, 'run')}, or none that has a checkpoint; "
            "sgdf status shows them"
        )
    chosen = _choose([run for run, _, _ in finished.values()], optimizers, seeds, tasks)
    return [
        AnalysedRun(run, setting, *finished[run.key][1:], task) for run, task, setting in chosen
    ]


def experiment_runs(
    sources: Sequence[str],
    changes: Table | None = None,
    optimizers: Collection[str] = (),
    seeds: Collection[int] = (),
    tasks: Collection[str] = (),
) -> list[AnalysedRun]:
    """Return the runs of experiments, for an analysis that trains them itself.

    Args:
        sources: names of bundled experiments, or paths of files, such as the ``spec.toml`` of a
            run.
        changes: values that take the place of those in the files, by dotted key.
        optimizers: only runs of these; all if empty.
        seeds: only runs with these seeds; all if empty.
        tasks: only runs of these, as in ``trained_runs``.
    """
    from ..bench.spec.machine import resolve_machine  # torch takes a second to import

    found: dict[str, Run] = {}
    for source in sources:
        experiment = load(source, changes)
        with naming(source):
            if any(run.train.by_function for run in experiment.runs):
                raise SpecError("its task is a function that trains by itself; nobody can watch it")
            found |= {run.key: run for run in resolve_machine(experiment, threads=1).runs}
    chosen = _choose(found.values(), optimizers, seeds, tasks)
    return [AnalysedRun(run, setting, task=task) for run, task, setting in chosen]


def _choose(
    runs: Iterable[Run],
    optimizers: Collection[str],
    seeds: Collection[int],
    tasks: Collection[str],
) -> list[tuple[Run, str, str]]:
    """Return the chosen runs, each with the names of its task and of its setting.

    Tasks are named before anything is chosen, so that a name always means the same task.
    """
    runs = sorted(runs, key=lambda run: (order(run.as_table()), run.seed))
    names = Labels([run.as_table() for run in runs])
    task_of = {run.key: names.setting(run.as_table())[0] for run in runs}
    runs = _only_tasks(runs, tasks, task_of)
    runs = _only(runs, optimizers, lambda run: run.optimizer.name, "of")
    named = f"of {listed(list(optimizers))} " if optimizers else ""
    runs = _only(runs, seeds, lambda run: run.seed, f"{named}with seed")
    return [(run, task_of[run.key], setting) for run, setting in _settings(runs, task_of)]


def _only_tasks(runs: list[Run], tasks: Collection[str], full: Mapping[str, str]) -> list[Run]:
    # The name of a task stands for all of its options.
    by_name = {task: [full[run.key] for run in runs if run.task.name == task] for task in tasks}
    wanted = [each for task in tasks for each in by_name[task] or [task]]
    return _only(runs, wanted, lambda run: full[run.key], "of the task")


def _only(
    runs: list[Run], wanted: Collection[T], value: Callable[[Run], T], words: str
) -> list[Run]:
    """Return the runs that have a wanted value, all if none is named; each must be there."""
    there = list(dict.fromkeys(map(value, runs)))
    missing = [str(one) for one in wanted if one not in there]
    if missing:
        known = listed(list(map(str, there)))
        raise SpecError(f"no run {words} {listed(missing)}; there are runs {words} {known}")
    return [run for run in runs if not wanted or value(run) in wanted]


def _settings(runs: Sequence[Run], task_of: Mapping[str, str]) -> list[tuple[Run, str]]:
    """Return each run with the name of its setting.

    It begins with the task if there are several.
    """
    names = Labels([run.as_table() for run in runs])
    several = len({task_of[run.key] for run in runs}) > 1
    parts = [
        [*([task_of[run.key]] if several else []), *names.setting(run.as_table())[1:]]
        for run in runs
    ]
    return [(run, ", ".join(part)) for run, part in zip(runs, parts, strict=True)]
