"""The options of the filter that studies of it share."""

from __future__ import annotations

from typing import Annotated

import typer

Beta1 = Annotated[
    float,
    typer.Option("--beta1", min=0.1, max=0.99, help="Decay rate of the filter's running mean."),
]
Beta2 = Annotated[
    float,
    typer.Option("--beta2", min=0.9, max=0.9999, help="Decay rate of its running variance."),
]
Gamma = Annotated[float, typer.Option(min=0.0, max=4.0, help="Power of the gain.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the random numbers of all simulations.")]
