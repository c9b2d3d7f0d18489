"""Tables for the terminal: what a store holds, and what there is to choose from."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from .labels import labels, settings_label
from .objects import SpecError
from .optimizers import OPTIMIZERS, optimizer_options
from .spec import Run, bundled_experiments, load
from .store import RunFolder, State
from .tasks import TASKS, find_task


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(3.2), duration(75), duration(4000)
    ('3 s', '1 min 15 s', '1 h 6 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def grid_table(states: Mapping[str, State], tables: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return how many runs of each setting are how far.

    Args:
        states: by key of the run.
        tables: the specs of the same runs.
    """
    counts: dict[str, Counter[State]] = {}
    for key, table in tables.items():
        setting = ", ".join(settings_label(table, tables))
        counts.setdefault(setting, Counter())[states[key]] += 1
    shown = [state for state in State if any(state in count for count in counts.values())]
    result = Table(box=None, pad_edge=False)
    result.add_column("setting", overflow="fold")
    result.add_column("runs", justify="right")
    for state in shown:
        result.add_column(state.value, justify="right")
    for setting, count in counts.items():
        figures = [str(count[state] or "") for state in shown]
        result.add_row(escape(setting), str(count.total()), *figures)
    return result


def store_report(folders: Iterable[RunFolder]) -> Iterable[Any]:
    """Yield what is to be said of the runs in a store, a table or a line at a time."""
    tables, states, by_key = {}, {}, {}
    for folder in folders:
        table = folder.table()
        if table is None:
            yield f"{escape(str(folder.path))}: its spec is damaged; delete this folder"
            continue
        tables[folder.key], states[folder.key] = table, folder.state()
        by_key[folder.key] = folder
    yield grid_table(states, tables)
    names = labels(tables)
    for state, what in _REMARKABLE.items():
        for key in (key for key in tables if states[key] is state):
            yield f"{state.value}: {escape(names[key])}: {escape(what(by_key[key]))}"
    if State.FAILED in states.values():
        yield "sgdf run --retry tries the failed ones again."


def _where(folder: RunFolder) -> str:
    rows = folder.rows()
    step = f"step {rows[-1]['step']:,}" if rows else "beginning"
    return f"{step}, {folder.owner() or 'just ended'}"


_REMARKABLE: dict[State, Callable[[RunFolder], str]] = {
    State.RUNNING: _where,
    State.DIVERGED: lambda folder: f"at step {(folder.result() or {}).get('diverged_at_step')}",
    State.DAMAGED: lambda folder: f"{folder.path} (the next sgdf run mends it)",
    State.FAILED: lambda folder: f"{folder.failure()} ({folder.path / 'failure.json'})",
}


def plan_tables(runs: Iterable[Run]) -> dict[str, dict[str, Any]]:
    """Return the tables of runs by key."""
    return {run.key: run.as_table() for run in runs}


def task_table() -> Table:
    """Return the bundled tasks."""
    result = _catalogue("task", "what it trains", "options")
    for name in TASKS:
        task = find_task(name)
        result.add_row(name, _first_line(task), _options(task))
    return result


def optimizer_table() -> Table:
    """Return the bundled optimizers."""
    result = _catalogue("optimizer", "what it is", "class", "set beside its defaults")
    for name, entry in OPTIMIZERS.items():
        extra = ", ".join(f"{key}={value}" for key, value in entry.options.items())
        result.add_row(name, entry.about, entry.path, extra)
    return result


def experiment_table() -> Table:
    """Return the bundled experiments."""
    result = _catalogue("experiment", "what it compares", "runs")
    for name in bundled_experiments():
        experiment = load(name)
        result.add_row(name, experiment.about, str(len(experiment.runs)))
    return result


def task_help(name: str) -> str:
    """Return what a task says of itself and its options."""
    task = find_task(name)
    return f"{name}({_options(task)})\n\n{inspect.getdoc(task) or ''}"


def optimizer_help(name: str) -> str:
    """Return an optimizer's options as a spec has them."""
    options = optimizer_options(name, {})
    lines = [f"{key} = {_toml(value)}" for key, value in options.items()]
    return "\n".join(["[[optimizer]]", f'name = "{name}"', *lines])


def experiment_text(name: str) -> str:
    """Return a bundled experiment's file."""
    bundled = bundled_experiments()
    if name not in bundled:
        raise SpecError(f"{name}: no such experiment; allowed: {', '.join(bundled)}")
    return Path(bundled[name]).read_text(encoding="utf-8")


def _catalogue(*columns: str) -> Table:
    result = Table(box=None, pad_edge=False)
    for column in columns:
        result.add_column(column, overflow="fold")
    return result


def _first_line(target: Callable[..., Any]) -> str:
    return (inspect.getdoc(target) or "").partition("\n")[0]


def _options(target: Callable[..., Any]) -> str:
    parameters = inspect.signature(target).parameters.values()
    return ", ".join(f"{p.name}={p.default}" for p in parameters if p.default is not p.empty)


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[[{', '.join(map(_toml, value))}]]"
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
