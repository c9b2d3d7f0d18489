"""Results that the paper prints, beside those measured here on the same task."""

from __future__ import annotations

from collections.abc import Iterator

from ..published import Published
from .cells import Cell, Table, figure
from .data import Problem, Setting


def beside_the_paper(
    problem: Problem, index: int, columns: tuple[Published, ...]
) -> Iterator[Table]:
    """Yield a table for each column of the paper that a problem can stand beside."""
    for place, column in enumerate(fitting(problem, columns)):
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
                    f"here, test {column.metric}{_unit(column)}",
                    f"paper, {column.metric}{_unit(column)}",
                    "paper's name",
                    "source",
                    "setting here",
                ),
                tuple(rows),
            )


def fitting(problem: Problem, columns: tuple[Published, ...]) -> list[Published]:
    """Return the columns on the same task and metrics, those that fit its options best."""
    same = [
        column
        for column in columns
        if column.task.get("name") == problem.task["name"] and column.metric in problem.metrics
    ]
    fit = [sum(problem.task.get(key) == v for key, v in one.task.items()) for one in same]
    return [column for column, own in zip(same, fit, strict=True) if own == max(fit)]


def _row(problem: Problem, column: Published, printed: str, setting: Setting) -> tuple[Cell, ...]:
    value, source = column.values[printed], column.quoted.get(printed)
    ours = setting.sample("test", column.metric)
    shares = column.unit == "%" and all(abs(value) <= 1.0 for value in ours.values)
    spread = f" ± {value[1]:g}" if len(value) > 1 else ""
    return (
        Cell(setting.name, key=setting.key, optimizer=setting.optimizer),
        figure(ours, 100.0 if shares else 1.0),
        Cell(f"{value[0]:g}{spread}", value[0], dict(zip(("mean", "sd"), value, strict=False))),
        Cell(printed),
        Cell(f"quoted from {source}" if source else "the paper's own"),
        Cell(_size(column, setting)),
    )


def _size(column: Published, setting: Setting) -> str:
    """Say in what a setting is not the paper's, as far as the paper's tables tell."""
    deviations = column.deviations(setting.table)
    return f"DIFFERS: {'; '.join(deviations)}" if deviations else "of the paper's size"


def _about(problem: Problem, column: Published) -> str:
    if column.seeds:
        seeds = f" Seeds {', '.join(map(str, column.seeds))}."
    else:
        seeds = f" {column.runs} runs." if column.runs else ""
    picked = (
        " Here the epoch was chosen on validation data, there on test data."
        if problem.protocol == "validation"
        else ""
    )
    return f"{column.about}.{seeds}{picked} {column.note}".strip()


def _unit(column: Published) -> str:
    return f" ({column.unit})" if column.unit else ""
