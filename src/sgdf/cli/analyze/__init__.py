"""``sgdf analyze``: what the trained models of runs, and their gradients, are like."""

from __future__ import annotations

from collections.abc import Callable

import typer

from ..help import Command, Group
from . import estimator, gradients, hessian, landscape

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def analyze() -> None:
    """Analyse trained models and gradients: Hessian, loss landscape, gradients, estimates.

    Each command writes a page (index.html), its tables and figures, and all numbers as JSON. You
    may interrupt it with Ctrl-C, or kill it: the same command resumes. Started a second time in
    another terminal, it shares the runs with the first.
    """


COMMANDS: list[Callable[..., None]] = [
    hessian.hessian,
    landscape.landscape,
    gradients.gradients,
    estimator.estimator,
]
for command in COMMANDS:
    app.command(cls=Command)(command)
