"""Results printed in the paper, beside those measured here on the same task."""

from __future__ import annotations

from collections.abc import Iterator

from ...present.table import Cell, Table
from ...present.words import in_brackets, plural
from ..catalog.lookup import options_of
from ..catalog.optimizers import OPTIMIZERS, optimizer_options
from ..paper.published import Published
from ..paper.settings import published_settings
from ..spec.grid import quote_lists
from ..store.records import RunTable
from ..tasks import TASKS, find_task
from ..tasks.metric import direction_in_words, shown_as
from .findings import Problem, Setting
from .sample_cells import mean_cell


def paper_tables(problem: Problem, index: int, columns: tuple[Published, ...]) -> Iterator[Table]:
    """Yield a table for each column of the paper that a problem can be compared with."""
    for place, column in enumerate(fitting_columns(problem, columns)):
        rows = [
            _row(problem, column, printed, setting)
            for printed in column.values
            for setting in problem.headline
            if setting.optimizer == column.optimizers[printed] and setting.finished
        ]
        if rows:
            yield Table(
                f"paper-{index}-{place}",
                problem.name,
                f"Beside the paper's {column.label} ({column.name})",
                _about(problem, column),
                (
                    "optimizer",
                    f"here, test {column.metric}{in_brackets(column.unit)}",
                    f"paper, {column.metric}{in_brackets(column.unit)}",
                    "paper's name",
                    "source",
                    "setting here",
                ),
                tuple(rows),
            )


def fitting_columns(problem: Problem, columns: tuple[Published, ...]) -> list[Published]:
    """Return the columns on the same task and metric whose task options agree the most."""
    same = [
        column
        for column in columns
        if column.task.get("name") == problem.task["name"] and column.metric in problem.metrics
    ]
    equal = [sum(problem.task.get(key) == v for key, v in one.task.items()) for one in same]
    return [column for column, count in zip(same, equal, strict=True) if count == max(equal)]


def _row(problem: Problem, column: Published, printed: str, setting: Setting) -> tuple[Cell, ...]:
    value, source = column.values[printed], column.quoted.get(printed)
    ours = setting.sample("test", column.metric)
    scale, _ = shown_as(column.metric, column.unit, ours.values)
    spread = f" ± {value[1]:g}" if len(value) > 1 else ""
    return (
        Cell(setting.name, key=setting.key, optimizer=setting.optimizer),
        mean_cell(ours, scale),
        Cell(f"{value[0]:g}{spread}", value[0], dict(zip(("mean", "sd"), value, strict=False))),
        Cell(printed),
        Cell(f"quoted from {source}" if source else "the paper's own"),
        Cell(_size_note(column, setting)),
    )


def _size_note(column: Published, setting: Setting) -> str:
    """Return how a setting differs from the paper's, as far as the paper's tables say."""
    differing = deviations(column, setting.table)
    return f"DIFFERS: {'; '.join(differing)}" if differing else "of the paper's size"


def deviations(column: Published, table: RunTable) -> list[str]:
    """Return in words each value of a run's table that differs from the paper's.

    Options of the task that the paper does not mention are taken to have their defaults there.
    """
    task, name = column.task["name"], table["optimizer"]["name"]
    defaults = options_of(find_task(task), {}) if task in TASKS else {}
    unmentioned = {key: value for key, value in defaults.items() if key in table["task"]}
    settings = published_settings(name).get(task, {}) if name in OPTIMIZERS else {}
    options = quote_lists(optimizer_options(name, settings)) if settings else {}
    compared = [
        (table["task"], {**unmentioned, **column.task}),
        (table["train"], column.train),
        (table["optimizer"], options),
    ]
    return [
        f"{key} {ours.get(key, 'not set')} instead of {value}"
        for ours, theirs in compared
        for key, value in theirs.items()
        if ours.get(key) != value
    ]


def _about(problem: Problem, column: Published) -> str:
    if column.seeds:
        seeds = f" Seeds {', '.join(map(str, column.seeds))}."
    else:
        seeds = f" {plural(column.runs, 'run')}." if column.runs else ""
    choice = (
        " Here the epoch was chosen on validation data, in the paper on test data."
        if problem.protocol.is_fair
        else ""
    )
    direction = f" For {column.metric}, {direction_in_words(column.larger_is_better)}."
    return f"{column.about}.{direction}{seeds}{choice} {column.note}".strip()
