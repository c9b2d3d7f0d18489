"""Tables for the terminal: the results of a search or a range test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...bench.search.range_test import RangeTest
from ...bench.search.results import OUTCOMES, OptimizerResult, SearchResult
from ...bench.search.search import Search
from ...bench.search.space import Choices, Range
from ...bench.spec.labels import setting_text
from ...present.terminal import Column, Table
from ...present.words import plural


def space_table(search: Search) -> Table:
    """Return the settings that would be tried of each optimizer."""
    table = Table((Column("optimizer"), Column("set", rank=2), Column("tried")))
    for candidate in search.candidates:
        fixed = {key: value for key, value in candidate.table.items() if key != "name"}
        tried = ", ".join(f"{option} {_tried(one)}" for option, one in candidate.space.items())
        if search.method.sampler == "grid":
            points = math.prod(len(one.examples) for one in candidate.space.values())
            tried += f" ({search.method.trials} of {points} points)"
        table.add_row(candidate.name, setting_text(fixed), tried)
    return table


def search_outlook(search: Search) -> str:
    """Return in a line how much is to be searched, and how."""
    method, optimizers = search.method, len(search.candidates)
    seeds = f"seed{'' if len(method.seeds) == 1 else 's'} {', '.join(map(str, method.seeds))}"
    return (
        f"{plural(optimizers, 'optimizer')}, {plural(method.trials, 'trial')} of up to "
        f"{search.example.train.length} for each ({method.sampler}, {seeds})"
    )


def search_report(result: SearchResult) -> Iterable[Any]:
    """Yield the best setting of each optimizer and what went wrong, a table or line at a time."""
    shown = [o for o in OUTCOMES if any(one.count(o) for one in result.optimizers)]
    counted = [Column(outcome, "right", rank=1) for outcome in shown]
    best_columns = [Column("optimizer"), Column("best setting"), Column("validation", "right")]
    table = Table(
        [*best_columns, *counted, Column("epochs", "right", rank=2)],
        title=f"validation {result.metric.name}, {result.metric.direction}",
    )
    for one in sorted(result.optimizers, key=lambda one: _order(one, result.metric.is_maximized)):
        best = one.best
        setting = setting_text(best.options) if best else "no trial has finished"
        value = f"{best.value:.4g}" if best else ""
        counts = [str(one.count(outcome) or "") for outcome in shown]
        table.add_row(one.candidate.name, setting, value, *counts, str(one.epochs))
    yield table
    for one in result.optimizers:
        if one.at_edge and result.complete:
            options = ", ".join(one.at_edge)
            yield (
                f"{one.candidate.name}: the best {options} is at the edge of the search space; a "
                "better value may lie beyond. Widen [optimizer.search]."
            )
        if one.failed:
            yield f"{one.candidate.name}: {one.failed} failed; --retry tries them again."
    if result.at_work:
        yield f"{_count(result.at_work)} running in another process."
    if result.left:
        yield f"{_count(result.left)} unfinished: run the same command again to resume."


def range_table(tests: Sequence[RangeTest]) -> Table:
    """Return the rates at which the loss of each range test falls fastest and is lowest."""
    titles = ("loss falls fastest at", "loss is lowest at", "steps")
    table = Table((Column("optimizer"), *(Column(title, "right") for title in titles)))
    for test in tests:
        rates = ["–" if rate is None else f"{rate:g}" for rate in (test.steepest, test.lowest)]
        table.add_row(test.optimizer, *rates, str(len(test.rates)))
    return table


def _count(trials: int) -> str:
    return "1 trial is" if trials == 1 else f"{trials} trials are"


def _tried(tried: Range | Choices) -> str:
    if isinstance(tried, Range):
        return f"from {tried.low:g} to {tried.high:g}"
    return f"one of {', '.join(map(str, tried.values))}"


def _order(one: OptimizerResult, largest: bool) -> tuple[bool, float]:
    if one.best is None or one.best.value is None:
        return (True, 0.0)
    return (False, -one.best.value if largest else one.best.value)
