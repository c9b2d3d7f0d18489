"""``sgdf tasks``, ``sgdf optimizers``, ``sgdf experiments``: what an experiment can name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import make_console, refusing, say_all
from .options import Name

if TYPE_CHECKING:
    from ..present.terminal import Table


def tasks(name: Name = None) -> None:
    """List the tasks that an experiment can name, or explain one and its options."""
    from .show.catalog import task_help, task_table

    _list_or_explain(name, task_table, task_help)


def optimizers(name: Name = None) -> None:
    """List the optimizers that an experiment can name, or the options of one."""
    from .show.catalog import optimizer_help, optimizer_table

    _list_or_explain(name, optimizer_table, optimizer_help)


def experiments(
    name: Annotated[
        str | None, typer.Argument(help="One of them, to print its file. Default: list all.")
    ] = None,
) -> None:
    """List the bundled experiments, or print the file of one, to copy and change.

    For example: sgdf experiments digits > mine.toml
    """
    from .show.catalog import experiment_table, experiment_text

    _list_or_explain(name, experiment_table, experiment_text)


def _list_or_explain(
    name: str | None, table: Callable[[], Table], explain: Callable[[str], str]
) -> None:
    from ..bench.catalog.lookup import importable_from
    from ..bench.errors import naming

    importable_from(Path.cwd())
    with refusing():
        if name is None:
            make_console().print(table())
        else:
            with naming(name):
                say_all(make_console(), explain(name).rstrip())
