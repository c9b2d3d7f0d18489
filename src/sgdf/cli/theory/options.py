"""The options that commands of ``sgdf theory`` share."""

from __future__ import annotations

from typing import Annotated

import typer


def check_decay_rate(rate: float) -> float:
    """Return a decay rate.

    Raises:
        typer.BadParameter: if it is not at least 0 and below 1.
    """
    if not 0.0 <= rate < 1.0:
        raise typer.BadParameter(f"{rate:g} is not at least 0 and below 1")
    return rate


def check_decay_rates(rates: list[float] | None) -> list[float] | None:
    """Return decay rates.

    Raises:
        typer.BadParameter: if one is not at least 0 and below 1.
    """
    for rate in rates or ():
        check_decay_rate(rate)
    return rates


Beta1 = Annotated[
    float,
    typer.Option(
        "--beta1", callback=check_decay_rate, help="Decay rate of the running mean, 0 ≤ β₁ < 1."
    ),
]
Beta2 = Annotated[
    float,
    typer.Option(
        "--beta2",
        callback=check_decay_rate,
        help="Decay rate of the residual variance, 0 ≤ β₂ < 1.",
    ),
]
Gamma = Annotated[float, typer.Option(min=0.0, max=10.0, help="Power of the gain.")]
Steps = Annotated[
    int, typer.Option(min=100, max=1_000_000, help="How many steps each run takes, the largest T.")
]
Copies = Annotated[
    int,
    typer.Option(min=2, max=100_000, help="How many independent runs each number is a mean of."),
]
Seed = Annotated[int, typer.Option(min=0, help="The seed of all random numbers.")]
