"""Tables for the terminal: the state of runs and their results so far."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...bench.errors import DamagedError, StoreError
from ...bench.report.sample_cells import mean_cell
from ...bench.report.statistics import Sample
from ...bench.spec.labels import Labels, labels, order
from ...bench.store.equal_failures import equal_failures
from ...bench.store.records import (
    Result,
    RunTable,
    chosen_epoch,
    divergence_in_words,
    figures_on,
    is_chosen_on_test,
)
from ...bench.store.run_folder import RunFolder, State
from ...bench.tasks.metric import direction_in_words, shown_as
from ...present.terminal import Column, Table
from ...present.words import duration, in_brackets, plural

if TYPE_CHECKING:
    from ...bench.spec.run import Run

SPLITS = ("validation", "test")


def tables_of(runs: Iterable[Run]) -> dict[str, RunTable]:
    """Return the tables of runs by key."""
    return {run.key: run.as_table() for run in runs}


def outlook(left: Mapping[str, float | str], names: Mapping[str, str], workers: int) -> str:
    """Return in words what is left to do, given the time of each run or why it would fail."""
    if not left:
        return "nothing is left to do."
    seconds = sum(time for time in left.values() if not isinstance(time, str))
    together = f" with {workers} workers" if workers > 1 else ""
    if math.isnan(seconds):
        line = "how long the others take is not known: a function of yours trains them."
    else:
        line = f"the others take about {duration(seconds / workers)}{together}."
    reasons = [f"will fail: {names[k]}: {why}" for k, why in left.items() if isinstance(why, str)]
    return "\n".join([line, *reasons])


def setting_tables(
    states: Mapping[str, State],
    tables: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Result] | None = None,
) -> Iterator[Table]:
    """Yield a table for each task: the states of the runs of each setting, and their results.

    Args:
        states: by key of the run.
        tables: the specs of the same runs.
        results: those of finished and diverged runs.
    """
    names = Labels(tables.values())
    tasks: dict[str, dict[str, list[str]]] = {}
    for key in sorted(tables, key=lambda key: order(tables[key])):
        task, *rest = names.setting(tables[key])
        tasks.setdefault(task, {}).setdefault(", ".join(rest), []).append(key)
    for task, settings in tasks.items():
        own = [(results or {}).get(key) for keys in settings.values() for key in keys]
        yield _task_table(task, settings, states, results or {}, [one for one in own if one])


def _task_table(
    task: str,
    settings: Mapping[str, Sequence[str]],
    states: Mapping[str, State],
    results: Mapping[str, Result],
    own: Sequence[Result],
) -> Table:
    """Return the table of a task, given the keys of each setting and the results of all."""
    splits = [split for split in SPLITS if any(_values([one], split) for one in own)]
    columns = [Column("setting"), Column("runs")]
    # Runs are judged by their test data: those of validation are left out first.
    columns += [Column(split, "right", rank=int(split != "test")) for split in splits]
    scale, unit = _scale(own) if own else (1.0, "")
    table = Table(columns, title=_heading(task, own, unit))
    for setting, keys in settings.items():
        count = Counter(states[key] for key in keys)
        shown = ", ".join(f"{count[state]} {state.value}" for state in State if count[state])
        finished = [results[key] for key in keys if key in results]
        figures = [_figure(finished, split, scale) for split in splits]
        table.add_row(setting, shown, *figures)
    return table


def _heading(task: str, results: Sequence[Result], unit: str) -> str:
    """Return the title of a task's table: what its results are, said once for all rows."""
    if not results:
        return task
    metric = results[0]["metric"]
    how = ", best epoch on test" if any(map(is_chosen_on_test, results)) else ""
    direction = direction_in_words(results[0]["largest"])
    return f"{task}: {metric}{in_brackets(unit)}, {direction}{how}"


def _figure(results: Sequence[Result], split: str, scale: float) -> str:
    """Return the metric of the finished runs of a setting, as a report shows it."""
    values = _values(results, split)
    return mean_cell(Sample(tuple(values)), scale).text if values else ""


def _scale(results: Sequence[Result]) -> tuple[float, str]:
    """Return the factor and the unit with which the metric of a task is shown."""
    values = [value for split in SPLITS for value in _values(results, split)]
    return shown_as(results[0]["metric"], results[0].get("unit"), values)


def _values(results: Sequence[Result], split: str) -> list[float]:
    """Return the metric of the runs that are finished, at the epoch that counts."""
    finished = [result for result in results if result["diverged_at_step"] is None]
    chosen = [(r["metric"], row) for r in finished if (row := chosen_epoch(r)) is not None]
    figures = [figures_on(row, split).get(metric) for metric, row in chosen]
    return [value for value in figures if value is not None]


def store_report(folders: Iterable[RunFolder]) -> Iterable[Any]:
    """Yield tables and lines about the runs in a store; the state of each run is asked once."""
    tables, states, results, by_key = {}, {}, {}, {}
    for folder in folders:
        try:
            table = folder.read_table()
        except DamagedError as error:
            yield f"damaged: {error}; sgdf run of its experiment repairs it"
            continue
        except StoreError as error:
            yield f"unreadable: {error}"
            continue
        state, result = folder.state_and_result()
        tables[folder.key], states[folder.key], by_key[folder.key] = table, state, folder
        if result is not None:
            results[folder.key] = result
    yield from setting_tables(states, tables, results)
    remarkable = [key for key in tables if states[key] in (*_REMARKS, State.FAILED)]
    names = labels(tables) if remarkable else {}
    remarkable.sort(key=names.__getitem__)
    for state, remark in _REMARKS.items():
        for key in (key for key in remarkable if states[key] is state):
            try:
                yield f"{state.value}: {names[key]}: {remark(by_key[key])}"
            except StoreError as error:
                yield f"{state.value}: {names[key]}: {error}"
    failed = [by_key[key] for key in remarkable if states[key] is State.FAILED]
    for failure, (first, *others) in equal_failures(failed).items():
        alike = f" and {plural(len(others), 'other run')} alike" if others else ""
        yield f"failed: {names[first.key]}{alike}: {failure} ({first.path / 'failure.json'})"
    if failed:
        yield "sgdf run tries failed runs again once their source has changed, or with --retry."


def _where(folder: RunFolder) -> str:
    rows = folder.rows()
    step = f"step {rows[-1]['step']:,}" if rows else "beginning"
    return f"{step}, {folder.owner() or 'just ended'}"


def _divergence(folder: RunFolder) -> str:
    result = folder.result()
    return divergence_in_words(result) if result else "at an unknown step"


_REMARKS: dict[State, Callable[[RunFolder], str]] = {
    State.RUNNING: _where,
    State.DIVERGED: _divergence,
    State.DAMAGED: lambda folder: f"{folder.damage()} (the next sgdf run repairs it)",
    State.UNREADABLE: RunFolder.damage,
}
"""States that deserve a line for each run, and what it says."""
