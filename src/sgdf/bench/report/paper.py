"""Published results, printed in the paper or not, beside those measured here on the same task."""

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
    """Yield a table for each published column that a problem can be compared with."""
    for place, column in enumerate(fitting_columns(problem, columns)):
        rows = [
            _row(problem, column, printed, setting)
            for printed in column.values
            for setting in problem.headline
            if setting.optimizer == column.optimizers[printed] and setting.finished
        ]
        if rows:
            label = f"{column.label} ({column.name})"
            title = f"{label}: {column.source}" if column.source else f"the paper's {label}"
            measure = f"{column.metric}{in_brackets(column.unit)}"
            yield Table(
                f"paper-{index}-{place}",
                problem.name,
                f"Beside {title}",
                _about(problem, column),
                (
                    "optimizer",
                    f"here, test {measure}",
                    f"{'published' if column.source else 'paper'}, {measure}",
                    "name there" if column.source else "paper's name",
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
        if column.task.get("name") == problem.task["name"]
        and column.metric in problem.metrics
        and all(problem.task.get(key) in values for key, values in column.only_with.items())
    ]
    equal = [sum(problem.task.get(key) == v for key, v in one.task.items()) for one in same]
    return [column for column, count in zip(same, equal, strict=True) if count == max(equal)]


def _row(problem: Problem, column: Published, printed: str, setting: Setting) -> tuple[Cell, ...]:
    value, quoted = column.values[printed], column.quoted.get(printed)
    ours = setting.sample("test", column.metric)
    scale, _ = shown_as(column.metric, column.unit, ours.values)
    spread = f" ± {value[1]:g}" if len(value) > 1 else ""
    return (
        Cell(setting.name, key=setting.key, optimizer=setting.optimizer),
        mean_cell(ours, scale),
        Cell(f"{value[0]:g}{spread}", value[0], dict(zip(("mean", "sd"), value, strict=False))),
        Cell(printed),
        Cell(f"quoted from {quoted}" if quoted else column.source or "the paper's own"),
        Cell(_size_note(column, printed, setting)),
    )


def _size_note(column: Published, printed: str, setting: Setting) -> str:
    """Return how a setting differs from the published one, as far as that is known."""
    differing = deviations(column, printed, setting.table)
    if differing:
        return f"DIFFERS: {'; '.join(differing)}"
    return "of the same size" if column.source else "of the paper's size"


def deviations(column: Published, printed: str, table: RunTable) -> list[str]:
    """Return in words each value of a run's table that differs from the published run's.

    Options of the task that are not published are taken to have their defaults there.

    Args:
        column: the published results.
        printed: the name of the optimizer there.
        table: the table of the run.
    """
    task, name = column.task["name"], table["optimizer"]["name"]
    defaults = options_of(find_task(task), {}) if task in TASKS else {}
    unmentioned = {
        key: value
        for key, value in defaults.items()
        if key in table["task"] and key not in column.free
    }
    own = column.settings.get(printed, {})
    settings = (
        {**published_settings(name).get(task, {}), **own.get("optimizer", {})}
        if name in OPTIMIZERS
        else {}
    )
    options = quote_lists(optimizer_options(name, settings)) if settings else {}
    compared = [
        (table["task"], {**unmentioned, **column.task}),
        (table["train"], {**column.train, **own.get("train", {})}),
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
        several = "s" if len(column.seeds) > 1 else ""
        seeds = f" Seed{several} {', '.join(map(str, column.seeds))}."
    else:
        seeds = f" {plural(column.runs, 'run')}." if column.runs else ""
    choice = ""
    if problem.protocol.is_fair:
        there = "there" if column.source else "in the paper"
        choice = f" Here the epoch was chosen on validation data, {there} on test data."
    direction = f" For {column.metric}, {direction_in_words(column.larger_is_better)}."
    return f"{column.about}.{direction}{seeds}{choice} {column.note}".strip()
