"""The command line: ``sgdf --help``. It needs the ``bench`` extra.

A module for each command, which imports what it needs when it is called: help and mistakes are
answered before torch is imported, which takes a second.
"""

from __future__ import annotations

from typing import Annotated

try:
    import rich  # noqa: F401  # every command prints with it
    import typer
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"The sgdf command needs {missing.name}, which is not installed: pip install 'sgdf[bench]'"
    ) from None

import sgdf

from . import analyze, catalog, cost, report, run, status, theory, tune
from .console import make_console, say
from .help import Command, Group

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        say(make_console(), sgdf.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Compare optimizers, and measure what a step of SGDF costs. Begin with sgdf quickstart."""


for command in (
    run.quickstart,
    cost.cost,
    run.run,
    tune.tune,
    status.status,
    report.report,
    catalog.tasks,
    catalog.optimizers,
    catalog.experiments,
):
    app.command(cls=Command)(command)
app.add_typer(analyze.app, name="analyze")
app.add_typer(theory.app, name="theory")
