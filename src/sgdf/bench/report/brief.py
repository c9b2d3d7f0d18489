"""A report in brief, for the terminal and for notebooks: the tables of results, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...present.table import Table as ReportTable
from ...present.terminal import Column, Table

if TYPE_CHECKING:
    from ...present.document import Document  # which needs matplotlib, and that takes its time

LEFT_OUT_FIRST = ("95 % interval", "training loss", "state", "ms a step", "lr", "seeds")
"""Beginnings of the titles of columns that a terminal may have no room for."""


def results_in_brief(report: Document, with_targets: bool = False) -> Iterable[Any]:
    """Yield the main results, a table or a line at a time; the page has the rest."""
    for section in report.sections:
        for table in report.tables:
            if table.section != section or not table.rows:
                continue
            if table.name.startswith("results-"):
                direction = next(iter(table.better.values()), "")
                title = ", ".join(filter(None, (f"{section}: {table.measure}", direction)))
                yield from ("", _terminal_table(table, title), "", *report.notes[section][1:])
            elif with_targets and table.name.startswith("target-"):
                yield from ("", _terminal_table(table, table.title))


def _terminal_table(table: ReportTable, title: str) -> Table:
    """Return a table whose title names the metric, so that its columns need not.

    Learning rates that are part of all names have no column of their own.
    """
    has_rates = all(" lr=" in row[0].text for row in table.rows)
    kept = [i for i, name in enumerate(table.columns) if not (has_rates and name == "lr")]
    shown = Table(
        [
            Column(
                table.columns[i].removesuffix(f" {table.measure}"),
                "left" if table.rows[0][i].order is None else "right",
                _rank(table.columns[i]),
            )
            for i in kept
        ],
        title,
        table.caption,
    )
    for row in table.rows:
        shown.add_row(*(row[i].marked_text for i in kept))
    return shown


def _rank(title: str) -> int:
    """Return how soon a column is left out; 0 is never."""
    places = [i for i, start in enumerate(LEFT_OUT_FIRST) if title.startswith(start)]
    return len(LEFT_OUT_FIRST) - places[0] if places else 0
