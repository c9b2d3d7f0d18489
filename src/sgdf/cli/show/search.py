"""Tables for the terminal: what a search or a range test came to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from ...bench.search.range_test import RangeTest
from ...bench.search.results import OUTCOMES, OptimizerResult, SearchResult
from ...bench.search.search import Search
from ...bench.search.space import Choices, Range
from ...bench.spec.labels import setting_text
from .catalog import catalogue


def space_table(search: Search) -> Table:
    """Return what would be tried of each optimizer."""
    table = catalogue("optimizer", "set", "tried")
    for candidate in search.candidates:
        fixed = {key: value for key, value in candidate.table.items() if key != "name"}
        tried = ", ".join(f"{option} {_tried(one)}" for option, one in candidate.space.items())
        if search.method.sampler == "grid":
            points = math.prod(len(one.examples) for one in candidate.space.values())
            tried += f" ({search.method.trials} of {points} points)"
        table.add_row(escape(candidate.name), escape(setting_text(fixed)), escape(tried))
    return table


def search_outlook(search: Search) -> str:
    """Return in a line what is to be searched."""
    method, optimizers = search.method, len(search.candidates)
    seeds = f"seed{'' if len(method.seeds) == 1 else 's'} {', '.join(map(str, method.seeds))}"
    return (
        f"{optimizers} optimizer{'' if optimizers == 1 else 's'}, {method.trials} trials of up to "
        f"{search.example.train.length} for each ({method.sampler}, {seeds})"
    )


def search_report(tuned: SearchResult) -> Iterable[Any]:
    """Yield what is to be said of a search, a table or a line at a time."""
    shown = [o for o in OUTCOMES if any(found.count(o) for found in tuned.found)]
    table = catalogue("optimizer", "best setting", f"validation {tuned.metric.name}")
    for title in (*shown, "epochs"):
        table.add_column(title, justify="right")
    for found in sorted(tuned.found, key=lambda found: _order(found, tuned.metric.is_maximized)):
        best = found.best
        setting = setting_text(best.options) if best else "none came to an end"
        value = f"{best.value:.4g}" if best else ""
        counts = [str(found.count(outcome) or "") for outcome in shown]
        epochs = sum(trial.epochs for trial in found.trials)
        table.add_row(escape(found.candidate.name), escape(setting), value, *counts, str(epochs))
    yield table
    for found in tuned.found:
        if found.at_edge and tuned.complete:
            options = ", ".join(found.at_edge)
            yield escape(
                f"{found.candidate.name}: the best {options} is at the edge of what was tried; a "
                "better one may lie beyond. Widen [optimizer.search]."
            )
        if found.failed:
            name = escape(found.candidate.name)
            yield f"{name}: {found.failed} failed; --retry tries them again."
    if tuned.at_work:
        yield f"{_count(tuned.at_work)} at work elsewhere."
    if tuned.left:
        yield f"{_count(tuned.left)} not over: the same command goes on."


def range_table(tests: Sequence[RangeTest]) -> Table:
    """Return where each range test fell the fastest and where it was the lowest."""
    table = catalogue("optimizer", "loss falls fastest at", "loss is lowest at", "steps")
    for test in tests:
        rates = ["–" if rate is None else f"{rate:g}" for rate in (test.steepest, test.lowest)]
        table.add_row(escape(test.optimizer), *rates, str(len(test.rates)))
    return table


def _count(trials: int) -> str:
    return "1 trial is" if trials == 1 else f"{trials} trials are"


def _tried(tried: Range | Choices) -> str:
    if isinstance(tried, Range):
        return f"from {tried.low:g} to {tried.high:g}"
    return f"one of {', '.join(map(str, tried.values))}"


def _order(found: OptimizerResult, largest: bool) -> tuple[bool, float]:
    if found.best is None or found.best.value is None:
        return (True, 0.0)
    return (False, -found.best.value if largest else found.best.value)
