"""Tables for the terminal: what a store holds, and what there is to choose from."""

from __future__ import annotations

import inspect
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import JustifyMethod
from rich.markup import escape
from rich.table import Table

from ...bench.catalog.lookup import required
from ...bench.catalog.optimizers import (
    OPTIMIZERS,
    find_optimizer,
    optimizer_options,
    optimizer_preset,
)
from ...bench.errors import SpecError
from ...bench.paper.settings import published_settings, search_space
from ...bench.spec.bundled import bundled_experiments, bundled_searches
from ...bench.spec.document import load_document
from ...bench.spec.labels import labels, order, settings_label
from ...bench.spec.read import load
from ...bench.spec.run import Run
from ...bench.store.records import Result, RunTable, chosen_epoch, figures_on
from ...bench.store.run_folder import RunFolder, State
from ...bench.tasks import TASKS, Task, find_task
from ...present.formats import one_line
from ...present.table import Table as ReportTable

if TYPE_CHECKING:
    from ...present.document import Document  # which needs matplotlib, and that takes its time


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(3.2), duration(75), duration(4000)
    ('3 s', '1 min 15 s', '1 h 6 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def outlook(left: Mapping[str, float | str], names: Mapping[str, str], workers: int) -> str:
    """Return in words what is left to do, given the time of each run or why it would fail."""
    if not left:
        return "nothing is left to do."
    seconds = sum(time for time in left.values() if not isinstance(time, str))
    together = f" with {workers} workers" if workers > 1 else ""
    line = f"the others take about {duration(seconds / workers)} of training{together}."
    reasons = [f"will fail: {names[k]}: {why}" for k, why in left.items() if isinstance(why, str)]
    return "\n".join([line, *reasons])


def grid_table(
    states: Mapping[str, State],
    tables: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Result] | None = None,
) -> Table:
    """Return how many runs of each setting are how far, and what they came to.

    Args:
        states: by key of the run.
        tables: the specs of the same runs.
        results: those of runs that are over.
    """
    settings: dict[str, list[str]] = {}
    for key in sorted(tables, key=lambda key: order(tables[key])):
        settings.setdefault(", ".join(settings_label(tables[key], tables)), []).append(key)
    shown = [state for state in State if state in states.values()]
    result = catalogue("setting")
    for title in ("runs", *(state.value for state in shown)):
        result.add_column(title, justify="right")
    if results:
        for split in ("validation", "test"):
            result.add_column(f"on {split}, mean ± sd")
    for setting, keys in settings.items():
        count = Counter(states[key] for key in keys)
        figures = [str(count[state] or "") for state in shown]
        over = [results[key] for key in keys if key in results] if results else []
        came_to = [summary(over, split) for split in ("validation", "test")] if results else []
        result.add_row(escape(setting), str(len(keys)), *figures, *came_to)
    return result


def summary(results: list[Result], split: str) -> str:
    """Return the figures of finished runs in words; one run has no spread."""
    finished = [result for result in results if result["diverged_at_step"] is None]
    chosen = [row for result in finished if (row := chosen_epoch(result)) is not None]
    if not chosen or not figures_on(chosen[0], split):
        return ""
    metric = finished[0]["metric"]
    values = [figures_on(row, split)[metric] for row in chosen]
    spread = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    how = "" if "selected" in finished[0] else ", best epoch on test"
    return f"{metric} {statistics.fmean(values):.4g}{spread}{how}"


def store_report(folders: Iterable[RunFolder]) -> Iterable[Any]:
    """Yield what is to be said of the runs in a store, a table or a line at a time."""
    tables, states, results, by_key = {}, {}, {}, {}
    for folder in folders:
        table = folder.table()
        if table is None:
            yield f"{escape(str(folder.path))}: no whole spec; sgdf run of its experiment mends it"
            continue
        tables[folder.key], states[folder.key] = table, folder.state()
        by_key[folder.key] = folder
        result = folder.result()
        if result is not None and states[folder.key].has_result:
            results[folder.key] = result
    yield grid_table(states, tables, results)
    names = labels(tables)
    for state, what in _REMARKABLE.items():
        for key in sorted((key for key in tables if states[key] is state), key=names.__getitem__):
            yield f"{state.value}: {escape(names[key])}: {escape(what(by_key[key]))}"
    if State.FAILED in states.values():
        yield "sgdf run with --retry tries the failed ones again."


def _where(folder: RunFolder) -> str:
    rows = folder.rows()
    step = f"step {rows[-1]['step']:,}" if rows else "beginning"
    return f"{step}, {folder.owner() or 'just ended'}"


def _diverged_at(folder: RunFolder) -> int | None:
    result = folder.result()
    return result["diverged_at_step"] if result else None


_REMARKABLE: dict[State, Callable[[RunFolder], str]] = {
    State.RUNNING: _where,
    State.DIVERGED: lambda folder: f"at step {_diverged_at(folder)}",
    State.DAMAGED: lambda folder: f"{folder.path} (the next sgdf run mends it)",
    State.FAILED: lambda folder: f"{folder.failure()} ({folder.path / 'failure.json'})",
}


def plan_tables(runs: Iterable[Run]) -> dict[str, RunTable]:
    """Return the tables of runs by key."""
    return {run.key: run.as_table() for run in runs}


def results_in_brief(report: Document, with_targets: bool) -> Iterable[Any]:
    """Yield what came out, a table or a line at a time; the page has the rest."""
    for section in report.sections:
        for table in report.tables:
            if table.section != section or not table.rows:
                continue
            if table.name.startswith("results-"):
                yield _in_terminal(table, one_line(section))
                yield from (escape(one_line(line)) for line in report.notes[section][1:])
            elif with_targets and table.name.startswith("target-"):
                yield _in_terminal(table, table.title)


def _in_terminal(table: ReportTable, title: str) -> Table:
    """Return a table without what a terminal has no room for."""
    dispensable = ("95 % interval", "training loss", "state")
    kept = [i for i, name in enumerate(table.columns) if not name.startswith(dispensable)]
    shown = catalogue()
    shown.title, shown.title_justify = escape(title), "left"
    for i in kept:
        justify: JustifyMethod = "left" if table.rows[0][i].order is None else "right"
        shown.add_column(escape(one_line(table.columns[i])), justify=justify)
    for row in table.rows:
        shown.add_row(*(escape(one_line(row[i].text)) for i in kept))
    return shown


def task_table() -> Table:
    """Return the bundled tasks."""
    result = catalogue("task", "what it trains", "options")
    for name in TASKS:
        task = find_task(name)
        result.add_row(name, _first_line(task), _options(task))
    return result


def optimizer_table() -> Table:
    """Return the bundled optimizers."""
    result = catalogue("optimizer", "what it is", "class", "set beside its defaults")
    for name, entry in OPTIMIZERS.items():
        extra = ", ".join(f"{key}={value}" for key, value in entry.options.items())
        result.add_row(name, entry.about, entry.path, extra)
    return result


def experiment_table() -> Table:
    """Return the bundled experiments."""
    result = catalogue("experiment", "what it compares", "runs")
    for name in bundled_experiments():
        experiment = load(name)
        result.add_row(name, experiment.about, str(len(experiment.runs)))
    for name in bundled_searches():
        document = load_document(name)
        result.add_row(name, document["about"], f"{document['search']['trials']} trials each")
    return result


def task_help(name: str) -> str:
    """Return what a task says of itself and its options."""
    task = find_task(name)
    told = [inspect.cleandoc(one.__doc__ or "") for one in task.__mro__ if issubclass(one, Task)]
    own, *inherited = told
    if "\nArgs:" not in own:  # then the options are those of the class that it is one of
        explained = next((doc for doc in inherited if "\nArgs:" in doc), "")
        own += "\n\n" + explained[explained.find("\nArgs:") + 1 :]
    return f"{name}({_options(task)})\n\n{own}"


def optimizer_help(name: str) -> str:
    """Return an optimizer's options as a spec has them."""
    needed = [key for key in required(find_optimizer(name)) if key not in optimizer_preset(name)]
    options = optimizer_options(name, dict.fromkeys(needed, 0.0))
    lines = [
        f"# {key} has no default" if key in needed else f"{key} = {_toml(value)}"
        for key, value in options.items()
    ]
    lines += _in_the_paper(name)
    return "\n".join(["[[optimizer]]", f'name = "{name}"', *lines])


def _in_the_paper(name: str) -> list[str]:
    """Return what the paper sets and searched for an optimizer, as comments of a spec."""
    lines = []
    settings, searched = published_settings(name), search_space(name)
    if settings:
        lines += ["", "# In the paper, by task:"]
    for task, options in settings.items():
        told = (f"{key} = {_toml(value)}" for key, value in options.items())
        lines.append(f"# {task}: {', '.join(told)}")
    if searched:
        lines += ["", "# What the paper searched:"]
    for key, values in searched.items():
        # A tuple is a list within a list already.
        told = (
            _toml(value)[1:-1] if isinstance(value, tuple) else _toml(value) for value in values
        )
        lines.append(f"# {key} = [{', '.join(told)}]")
    return lines


def experiment_text(name: str) -> str:
    """Return a bundled experiment's file."""
    bundled = {**bundled_experiments(), **bundled_searches()}
    if name not in bundled:
        raise SpecError(f"no such experiment; allowed: {', '.join(bundled)}")
    return Path(bundled[name]).read_text(encoding="utf-8")


def catalogue(*columns: str) -> Table:
    """Return a table without lines around it, to be filled."""
    result = Table(box=None, pad_edge=False)
    for column in columns:
        result.add_column(column, overflow="fold")
    return result


def _first_line(target: Callable[..., Any]) -> str:
    return (inspect.getdoc(target) or "").partition("\n")[0]


def _options(target: Callable[..., Any]) -> str:
    parameters = inspect.signature(target).parameters.values()
    return ", ".join(
        p.name if p.default is p.empty else f"{p.name}={getattr(p.default, '__name__', p.default)}"
        for p in parameters
    )


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[[{', '.join(map(_toml, value))}]]"
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
