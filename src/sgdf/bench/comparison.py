"""Compare optimizers from a script or a notebook, with the store and report of the command."""

from __future__ import annotations

import importlib
import io
import operator
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from ..present.visible import visible
from ..present.words import plural
from .catalog.lookup import name_object
from .catalog.optimizers import OPTIMIZERS
from .errors import SpecError
from .jobs.conduct import Conduct, Crew, count_other_sources, count_other_threads
from .jobs.early_stop import first_runs
from .jobs.events import Event
from .jobs.outcome import divergence_of_all, early_stop_in_words, failures_in_words
from .jobs.plan import Plan
from .jobs.signals import stop_on_signals
from .report.brief import results_in_brief
from .report.write import Report, run_rows
from .spec.grid import as_list, quote_lists
from .spec.labels import labels
from .spec.machine import resolve_machine
from .spec.milestones import unreached_milestones
from .spec.read import NAME, read
from .store.records import Table
from .store.run_folder import State, Store
from .tasks import TASKS

WORKER = "sgdf.bench.jobs.worker_main"


def compare(
    task: str | Callable[..., Any],
    optimizers: Mapping[Any, Mapping[str, Any]] | Iterable[Any],
    *,
    seeds: int | Iterable[int] = 3,
    options: Mapping[str, Any] | None = None,
    schedule: str | Mapping[str, Any] | None = None,
    protocol: str | None = None,
    name: str | None = None,
    about: str = "",
    out: str | Path | None = None,
    workers: int = 1,
    retry: bool = False,
    keep_going: bool = False,
    say: Callable[[str], object] | None = print,
    **train: Any,
) -> Comparison:
    """Train with each optimizer and several seeds, and compare the results.

    Every run is kept in a folder. A run that is finished there is not done again, and one that was
    interrupted resumes from its last checkpoint: call it again, in this process or another.

    Args:
        task: the name of a bundled task, a subclass of ``Task``, or a function
            ``train(make_optimizer, seed, **options)`` that trains by itself and returns metrics.
            Such a function has no checkpoints: a run that was interrupted starts again.
        optimizers: names of bundled optimizers or optimizer classes, each with its options, as in
            ``{"sgd": {"lr": 0.1}, torch.optim.NAdam: {"lr": [0.001, 0.01]}}``. A list of values
            is a grid: there is one setting for each. Without options a list of names will do.
        seeds: how many seeds (0, 1, …), or the seeds themselves.
        options: options of the task; arguments of the training function.
        schedule: the name of a schedule, or a table as in an experiment file.
        protocol: ``"validation"``, ``"paper"`` or ``"last"``; see the reference.
        name: the name of the experiment. By default it is that of the task.
        about: a line about the experiment, for the report.
        out: the folder that keeps the runs. By default it is ``results/NAME``.
        workers: how many runs are trained at a time, each in a process of its own.
        retry: try failed runs again; those whose source has changed are tried again anyway.
        keep_going: try all runs, even if the first runs of all optimizers failed alike.
        say: takes a line at the start, whenever a run ends, and at the end; None for silence.
        train: settings of the training loop, as in ``[train]`` of an experiment file: ``epochs``,
            ``batch_size``, ``clip_norm``, … A training function takes none but ``threads``.

    Raises:
        SpecError: if an argument is wrong; it says what is allowed.
        KeyboardInterrupt: after Ctrl-C, once the runs in progress are saved.
        RuntimeError: if runs failed and none has a result.

    Example:
        >>> import tempfile
        >>> from sgdf.bench import compare
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rates = {"sgd": {"lr": 0.1}, "sgdf": {"lr": 1.0}}
        ...     result = compare("logistic", rates, epochs=2, threads=1, out=folder, say=None)
        ...     len(result.rows)
        6
    """
    _refuse_in_worker()
    task_name = task if isinstance(task, str) else name_object(task, "task")
    document: Table = {
        "name": name or _experiment_name(task_name),
        "about": about,
        "seed": [operator.index(seed) for seed in _seeds(seeds)],
        "task": {"name": task_name, **_quoted(options or {})},
        "optimizer": [_optimizer_table(*item) for item in _pairs(optimizers)],
        "train": dict(train),
    }
    if protocol is not None:
        document["protocol"] = protocol
    if schedule is not None:
        document["schedule"] = {"name": schedule} if isinstance(schedule, str) else dict(schedule)
    if workers < 1:
        raise SpecError(f"workers = {workers}: must be at least 1")
    if workers > 1 and "__main__:" in task_name:
        raise SpecError(
            f"workers = {workers}: other processes cannot import the task from here; put it into a "
            "Python file with a name that can be imported, or leave workers at 1"
        )
    crew = Crew(workers)
    experiment = resolve_machine(read(document), crew.threads)
    store = Path(out) if out is not None else Path("results") / experiment.name
    deciding = {} if keep_going else first_runs(experiment.runs)
    plan = Plan(experiment.runs, store, first_runs=deciding)
    conduct = Conduct(plan, experiment)
    notices = tuple(_notices_of_other_runs(conduct))
    for line in (*unreached_milestones(experiment.runs), *notices):
        warnings.warn(line, stacklevel=2)
    _do_runs(conduct, crew, retry, _printing(say))
    return Comparison(store, plan.keys, notices)


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of ``compare``; printed, it is a table and the verdict.

    Attributes:
        store: the folder that keeps the runs.
        keys: the keys of the runs that were compared.
        notices: why the results may not be those of the present code.
    """

    store: Path
    keys: tuple[str, ...]
    notices: tuple[str, ...] = ()

    @cached_property
    def report(self) -> Report:
        """The report on these runs, with the findings that its tables are made of."""
        folders = [Store(self.store).folder(key) for key in self.keys]
        return Report.on(folders, [self.store])

    def write_report(self, folder: str | Path | None = None) -> Path:
        """Write the report in every format; return its page, ``index.html``.

        Args:
            folder: where to write it. By default it is ``report`` in the folder of the runs.
        """
        return self.report.write(self.store / "report" if folder is None else Path(folder))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every run as plain values: settings, seed, state and metrics, as in ``runs.csv``."""
        head, *rows = run_rows(self.report.findings)
        return [dict(zip(head, map(_unquoted, row), strict=True)) for row in rows]

    def to_dataframe(self) -> Any:
        """Return ``rows`` as a pandas DataFrame, a row for each run.

        Raises:
            ModuleNotFoundError: if pandas is not installed.
        """
        try:
            return importlib.import_module("pandas").DataFrame(self.rows)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "pandas is not installed; .rows has the same as a list of dicts", name="pandas"
            ) from error

    def __str__(self) -> str:
        """Return the table of results, and the verdict."""
        document, text = self.report.document, io.StringIO()
        console = Console(file=text, width=shutil.get_terminal_size().columns, color_system=None)
        for part in (*self.notices, *document.summary, *results_in_brief(document)):
            shown = visible(part) if isinstance(part, str) else part
            console.print(shown, markup=False, highlight=False)
        return "\n".join(map(str.rstrip, text.getvalue().splitlines()))

    def __repr__(self) -> str:
        """Return the same, which is what a notebook shows."""
        return str(self)


def _do_runs(conduct: Conduct, crew: Crew, retry: bool, say: Callable[[str], object]) -> None:
    """Do the runs that are left, and say how they end."""
    runs, done = conduct.plan.runs, len(conduct.with_result)
    names = labels({run.key: run.as_table() for run in runs})
    conduct.prepare(retry)
    say(f"{plural(len(runs), 'run')}, {done} done, in {conduct.plan.store}")
    unfinished: dict[str, None] = {}

    def show(run: str, event: Event) -> None:
        nonlocal done
        if event["event"] == "notice" or (event["event"] == "end" and not event.get("quiet")):
            if event["event"] == "end":
                done += State(event["state"]).has_result
                if event["state"] in (State.PAUSED.value, State.UNREADABLE.value):
                    unfinished[event["line"]] = None
            say(f"[{done}/{len(runs)}] {names.get(run, run)}: {event['line']}")

    with stop_on_signals() as stop:
        conduct.work(crew, show, stop)
    if stop.is_set():
        raise KeyboardInterrupt("stopped; call it again to do what is left")
    states = conduct.states_now()
    failures = failures_in_words(conduct.store, states)
    lines = [*failures, *early_stop_in_words(conduct, states, "keep_going=True"), *unfinished]
    if lines and not any(state.has_result for state in states.values()):
        raise RuntimeError("\n".join(["no run has a result.", *map(visible, lines)]))
    if failures:
        lines.append("Failed runs are tried again once their source has changed, or by retry=True.")
    elsewhere = sum(state is State.RUNNING for state in states.values())
    if elsewhere:
        lines.append(f"{plural(elsewhere, 'run')} belong to other processes that are at work.")
    for line in (*lines, *divergence_of_all(conduct.store, states)):
        say(line)


def _notices_of_other_runs(conduct: Conduct) -> Iterator[str]:
    """Yield lines about finished runs of another source, and of those with other threads."""
    changed = count_other_sources(conduct.store, conduct.with_result)
    if changed:
        yield (
            f"{plural(changed, 'finished run')} of {conduct.plan.store} had another version of the "
            "task's or the optimizer's source, and will not be done again; choose another folder "
            "with out= to train with the present version."
        )
    threads = {} if conduct.with_result else count_other_threads(conduct)
    for number, count in threads.items():
        yield (
            f"{plural(count, 'finished run')} of {conduct.plan.store} had another number of "
            f"threads and are otherwise the same; threads={number} counts them, too."
        )


def _printing(say: Callable[[str], object] | None) -> Callable[[str], object]:
    """Return what takes a line: texts of files could obey or deceive a terminal."""
    return (lambda line: None) if say is None else lambda line: say(visible(line))


def _pairs(optimizers: Any) -> Iterable[tuple[Any, Table]]:
    """Yield each optimizer with its options."""
    if isinstance(optimizers, Mapping):
        for target, given in optimizers.items():
            if not isinstance(given, Mapping):
                raise SpecError(f"optimizers: {given!r} for {target!r}; write {{'lr': {given!r}}}")
            yield target, dict(given)
        return
    for item in as_list(optimizers) if isinstance(optimizers, str) else optimizers:
        table = dict(item) if isinstance(item, Mapping) else {"name": item}
        if "name" not in table:
            raise SpecError(f"optimizers: {item!r} has no name")
        yield table.pop("name"), table


def _optimizer_table(target: Any, given: Table) -> Table:
    """Return the table of an optimizer; what is bundled keeps its short name."""
    if not isinstance(target, str):
        path = name_object(target, "optimizer")
        plain = (n for n, entry in OPTIMIZERS.items() if entry.path == path and not entry.options)
        target = next(plain, path)
    return {"name": target, **_quoted(given)}


def _seeds(seeds: int | Iterable[int]) -> Iterable[int]:
    return seeds if isinstance(seeds, Iterable) else range(operator.index(seeds))


def _quoted(options: Mapping[str, Any]) -> Table:
    """Return options as a file has them: a list is a grid, a tuple is one value.

    Numbers of numpy become plain ones, and its arrays lists.
    """
    quoted: Table = {}
    for key, value in options.items():
        plain = value.tolist() if hasattr(value, "tolist") else value
        if isinstance(plain, list):
            plain = [item.item() if hasattr(item, "item") else item for item in plain]
        quoted[key] = quote_lists({key: plain})[key] if isinstance(plain, tuple) else plain
    return quoted


def _unquoted(value: Any) -> Any:
    """Return the value of an option: a file has a tuple as a list within a list."""
    is_quoted = isinstance(value, list) and len(value) == 1 and isinstance(value[0], list)
    return tuple(value[0]) if is_quoted else value


def _experiment_name(task: str) -> str:
    """Return the name of the experiment on a task: that of its module and its own.

    Many scripts have a function ``train``, and each needs a folder of its own.
    """
    module, _, name = task.rpartition(":")
    own = "" if module == "__main__" else module.rpartition(".")[2]
    found = task if task in TASKS else "-".join(filter(None, [own, name]))
    return found if NAME.fullmatch(found) else "experiment"


def _refuse_in_worker() -> None:
    """Raise in a worker that imports a script which would compare again."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if getattr(spec, "name", "") == WORKER:
        raise RuntimeError(
            "compare() was called by a worker process that imports this script; put the call below "
            'if __name__ == "__main__":'
        )
