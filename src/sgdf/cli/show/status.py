"""Tables for the terminal: the state of runs and their results so far."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ...bench.errors import DamagedError, StoreError
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
from ...bench.tasks.metric import direction_in_words
from ...present.words import duration, plural
from .table import bare_table

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
        line = f"the others take about {duration(seconds / workers)} of training{together}."
    reasons = [f"will fail: {names[k]}: {why}" for k, why in left.items() if isinstance(why, str)]
    return "\n".join([line, *reasons])


def setting_table(
    states: Mapping[str, State],
    tables: Mapping[str, Mapping[str, Any]],
    results: Mapping[str, Result] | None = None,
) -> Table:
    """Return how many runs of each setting are in each state, and their results.

    Args:
        states: by key of the run.
        tables: the specs of the same runs.
        results: those of finished and diverged runs.
    """
    settings: dict[str, list[str]] = {}
    names = Labels(tables.values())
    for key in sorted(tables, key=lambda key: order(tables[key])):
        settings.setdefault(", ".join(names.setting(tables[key])), []).append(key)
    shown = [state for state in State if state in states.values()]
    metrics = {(result["metric"], result["largest"]) for result in (results or {}).values()}
    result = bare_table("setting")
    for title in ("runs", *(state.value for state in shown)):
        result.add_column(title, justify="right")
    for split in SPLITS if results else ():
        result.add_column(_metric_title(split, metrics))
    for setting, keys in settings.items():
        count = Counter(states[key] for key in keys)
        figures = [str(count[state] or "") for state in shown]
        own = [results[key] for key in keys if key in results] if results else []
        values = [summary(own, split, with_name=len(metrics) > 1) for split in SPLITS if results]
        result.add_row(setting, str(len(keys)), *figures, *values)
    return result


def _metric_title(split: str, metrics: set[tuple[str, bool]]) -> str:
    """Return the title of a column of results; of several metrics, each cell names its own."""
    if len(metrics) > 1:
        return f"{split}, mean ± sd"
    ((metric, largest),) = metrics
    return f"{split} {metric} ({direction_in_words(largest)}), mean ± sd"


def summary(results: list[Result], split: str, with_name: bool) -> str:
    """Return the metric of finished runs in words; one run has no spread.

    Args:
        results: of runs of one setting.
        split: "validation" or "test".
        with_name: whether to name the metric and its direction.
    """
    finished = [result for result in results if result["diverged_at_step"] is None]
    chosen = [row for result in finished if (row := chosen_epoch(result)) is not None]
    if not chosen or not figures_on(chosen[0], split):
        return ""
    metric = finished[0]["metric"]
    figures = [figures_on(row, split) for row in chosen]
    values = [one[metric] for one in figures if metric in one]
    text = mean_and_spread(values) if values else "–"
    if with_name:
        text = f"{metric} {text} ({direction_in_words(finished[0]['largest'])})"
    return text + (", best epoch on test" if is_chosen_on_test(finished[0]) else "")


def mean_and_spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation; there is no spread of one value, or with infinity.

    >>> mean_and_spread([1.0, 2.0]), mean_and_spread([0.5]), mean_and_spread([1.0, math.inf])
    ('1.5 ± 0.71', '0.5', 'inf')
    """
    is_finite = all(map(math.isfinite, values))
    spread = f" ± {statistics.stdev(values):.2g}" if is_finite and len(values) > 1 else ""
    return f"{sum(values) / len(values):.4g}{spread}"


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
    yield setting_table(states, tables, results)
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
