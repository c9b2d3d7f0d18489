"""``sgdf theory``: the paper's theory in numbers, each part with its table and its picture."""

from __future__ import annotations

from collections.abc import Callable

import typer

from ..help import Command, Group
from .classical import classical
from .counter_examples import counter_examples
from .fusion import fusion
from .gain import gain
from .momentum import momentum
from .regret import regret
from .stationarity import stationarity

app = typer.Typer(cls=Group, no_args_is_help=True, rich_markup_mode="markdown")


@app.callback()
def theory() -> None:
    """Show the paper's theory in numbers: closed forms, simulations, bounds, counter-examples.

    Each command prints tables within seconds. With --plot it draws them, and with --json it writes
    all numbers. The functions behind them are in sgdf.theory; docs/paper/theory.md goes through
    the paper statement by statement.
    """


COMMANDS: list[Callable[..., None]] = [
    momentum,
    classical,
    gain,
    fusion,
    regret,
    stationarity,
    counter_examples,
]
for command in COMMANDS:
    app.command(cls=Command)(command)
