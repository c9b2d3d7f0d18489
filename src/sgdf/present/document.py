"""The content of a report, the same for every format: sections, tables, plots, details."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .plots import Plot
from .styles import Style
from .table import Table


@dataclass(frozen=True)
class Detail:
    """A setting with all of its options, and the commands that repeat its runs.

    Attributes:
        key: the key that links to it end in.
        title: its name.
        spec: its options, as TOML.
        commands: the commands.
        obstacle: why there are none.
    """

    key: str
    title: str
    spec: str
    commands: tuple[str, ...]
    obstacle: str = ""


@dataclass(frozen=True)
class Failure:
    """An error that runs failed with, its traceback, and the names of these runs."""

    error: str
    traceback: str
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """A report: sections with tables and plots, then the details behind them."""

    title: str
    about: tuple[str, ...]
    """What was compared, in the words of who compared it."""
    origin: str
    """When the runs were trained, with which version, and where they are kept."""
    version: str
    summary: tuple[str, ...]
    styles: Mapping[str, Style]
    """How each optimizer is drawn, by name."""
    sections: tuple[str, ...]
    notes: Mapping[str, tuple[str, ...]]
    """By section: what was trained, and which differences are significant."""
    tables: tuple[Table, ...]
    plots: tuple[Plot, ...]
    failures: tuple[Failure, ...]
    details: tuple[Detail, ...]
    where: str
    """The folder in which the commands of the details work; empty if there are none."""
    environments: tuple[tuple[Mapping[str, str], tuple[str, ...]], ...]
    """Each environment, with the keys of its runs."""

    def parts(self, section: str) -> list[Table | Plot]:
        """Return the content of a section: its first table, its plots, its other tables."""
        tables = [table for table in self.tables if table.section == section]
        plots = [plot for plot in self.plots if plot.section == section]
        return [*tables[:1], *plots, *tables[1:]]
