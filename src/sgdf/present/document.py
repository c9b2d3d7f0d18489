"""A report before it is written in one form or another: sections, tables, plots, details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .plots import Plot
from .styles import Style
from .table import Table


@dataclass(frozen=True)
class Detail:
    """A setting to the last option, and how to do its runs again."""

    key: str
    title: str
    spec: str
    commands: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A report: sections with tables and plots, then the details behind them."""

    title: str
    version: str
    summary: tuple[str, ...]
    styles: Mapping[str, Style]
    """How each optimizer is drawn, by name."""
    sections: tuple[str, ...]
    notes: Mapping[str, tuple[str, ...]]
    """By section: what was trained, and which differences are shown."""
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...]
    details: tuple[Detail, ...]
    where: str
    """Where the commands of the details hold."""
    environments: tuple[tuple[Mapping[str, str], tuple[str, ...]], ...]

    def parts(self, section: str) -> list[Table | Plot]:
        """Return what is in a section: what came out, then the plots, then all else."""
        own = [table for table in self.tables if table.section == section]
        drawn = [plot for plot in self.plots if plot.section == section]
        return [*own[:1], *drawn, *own[1:]]
