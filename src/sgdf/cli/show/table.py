"""The table that every list in the terminal is shown in."""

from __future__ import annotations

from rich.table import Table


def bare_table(*columns: str) -> Table:
    """Return a table without lines around it, to be filled."""
    result = Table(box=None, pad_edge=False)
    for column in columns:
        result.add_column(column, overflow="fold")
    return result
