"""Tables for the terminal: the results of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import JustifyMethod
from rich.table import Table

from ...present.table import Table as ReportTable
from .table import bare_table

if TYPE_CHECKING:
    from ...present.document import Document  # which needs matplotlib, and that takes its time

DISPENSABLE = ("95 % interval", "training loss", "state")
"""Beginnings of the titles of columns that a terminal has no room for."""


def results_in_brief(report: Document, with_targets: bool) -> Iterable[Any]:
    """Yield the main results, a table or a line at a time; the page has the rest."""
    for section in report.sections:
        for table in report.tables:
            if table.section != section or not table.rows:
                continue
            if table.name.startswith("results-"):
                yield _terminal_table(table, section)
                yield from report.notes[section][1:]
            elif with_targets and table.name.startswith("target-"):
                yield _terminal_table(table, table.title)


def _terminal_table(table: ReportTable, title: str) -> Table:
    """Return a table without what a terminal has no room for."""
    kept = [i for i, name in enumerate(table.columns) if not name.startswith(DISPENSABLE)]
    shown = bare_table()
    shown.title, shown.title_justify = title, "left"
    for i in kept:
        justify: JustifyMethod = "left" if table.rows[0][i].order is None else "right"
        shown.add_column(table.columns[i], justify=justify)
    for row in table.rows:
        shown.add_row(*(row[i].text for i in kept))
    return shown
