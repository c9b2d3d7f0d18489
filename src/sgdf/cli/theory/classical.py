"""``sgdf theory classical``: when classical momentum helps."""

from __future__ import annotations

from typing import Annotated

import typer

from ..console import refuse
from ..options import JsonFile, PlotFile
from .frame import present
from .options import check_decay_rates


def classical(
    beta: Annotated[
        list[float] | None,
        typer.Option(
            "--beta",
            metavar="RATE",
            callback=check_decay_rates,
            help="A momentum, below 1. Default: 0, 0.5 and 0.9. May be repeated.",
        ),
    ] = None,
    sigma: Annotated[
        float, typer.Option(min=0.0, help="The standard deviation of the noise of one example.")
    ] = 1.0,
    condition: Annotated[
        float,
        typer.Option(min=1.0, help="The condition number of the loss that batches are tried on."),
    ] = 100.0,
    steps: Annotated[
        int, typer.Option(min=1, max=2000, help="How many steps are taken on that loss.")
    ] = 100,
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Show what classical momentum gains: under noise, without noise, and over the batch size.

    On quadratics, in closed form: the loss at which momentum settles over the effective rate
    α/(1 − β); the best contraction by condition number; and the loss after some steps at the best
    learning rate of each β, over the size of the batch.
    """
    from ...analysis.theory.classical import BETAS, study_classical

    try:
        study = study_classical(beta or BETAS, sigma, condition, steps)
    except ValueError as error:
        raise refuse(error) from error
    present(study, json_file, plot)
