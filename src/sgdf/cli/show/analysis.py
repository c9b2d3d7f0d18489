"""The tables of an analysis in the terminal."""

from __future__ import annotations

from ...present.table import Table as DocumentTable
from ...present.terminal import Column, Table


def terminal_table(table: DocumentTable) -> Table:
    """Return a table of a document for the terminal; its last columns are left out first.

    The first three stay: names, however long, leave room for two numbers.
    """
    columns = [
        Column(
            title,
            "left" if all(row[i].order is None for row in table.rows) else "right",
            rank=i if i > 2 else 0,
        )
        for i, title in enumerate(table.columns)
    ]
    shown = Table(columns, table.title, table.caption)
    for row in table.rows:
        shown.add_row(*(cell.marked_text for cell in row))
    return shown
