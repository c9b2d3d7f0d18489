"""``sgdf theory momentum``: momentum as an estimator of the gradient."""

from __future__ import annotations

from typing import Annotated

import typer

from ..console import refuse
from ..options import JsonFile, PlotFile
from .frame import present
from .options import Seed, check_decay_rates


def momentum(
    lam: Annotated[float, typer.Option(min=0.0, help="The curvature λ of the loss ½λθ².")] = 1.0,
    sigma: Annotated[
        float, typer.Option(min=0.0, help="The standard deviation of a gradient's noise.")
    ] = 1.0,
    alpha: Annotated[float, typer.Option(min=0.0, help="The learning rate.")] = 0.1,
    beta: Annotated[
        list[float] | None,
        typer.Option(
            "--beta",
            metavar="RATE",
            callback=check_decay_rates,
            help="A decay of the momentum, below 1. Default: 0, 0.5, 0.8, 0.9, 0.95 and 0.99. "
            "May be repeated.",
        ),
    ] = None,
    u: Annotated[
        float | None,
        typer.Option(
            "--u",
            min=0.0,
            help="The weight of the gradient; 1 for classical momentum. Default: 1 − β, which is "
            "a running mean.",
        ),
    ] = None,
    theta0: Annotated[float, typer.Option(help="Where the paths begin.")] = 10.0,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: PlotFile = None,
) -> None:
    """Show the law of momentum on a quadratic: closed forms, simulations and bounds over β.

    The tables have variance and covariance of momentum and parameter, for the recursion and for
    the paper's stochastic differential equation (SDE), the error of the momentum as an estimate of
    the gradient beside the bounds, and mean and deviation of the loss along the path.
    """
    from ...analysis.theory.momentum import BETAS, study_momentum

    try:
        study = study_momentum(lam, sigma, alpha, beta or BETAS, u, theta0, seed)
    except ValueError as error:
        raise refuse(error) from error
    present(study, json_file, plot)
