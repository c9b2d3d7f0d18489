"""The loss of a network along directions through its parameters, and on planes of two of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from torch import nn

from ..borrowed_model import in_mode
from .directions import Direction, trained_parameters

Loss = Callable[[], float]
"""Returns the loss of a network as it is at that moment, without computing a gradient."""


class Move(Protocol):
    """Moves a network away from its centre, which is where it was at first."""

    def __call__(self, *steps: tuple[float, Direction]) -> None:
        """Set the parameters to those of the centre plus factor times direction for each step."""


@contextlib.contextmanager
def leaving_as_found(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode; afterwards it is as it was before, to the bit.

    That holds for parameters, buffers and the mode of each module, and after an error too. Within
    the block write to ``param.data``: autograd does not count that, so that a loss which was
    computed before can still go backward after it.
    """
    own = {param: param.data for param in model.parameters()}
    try:
        for param, data in own.items():
            param.data = data.clone()
        with in_mode(model, training=False):
            yield
    finally:
        for param, data in own.items():
            param.data = data


@contextlib.contextmanager
def moving(model: nn.Module) -> Iterator[Move]:
    """Let a model be moved within the block, in evaluation mode, and leave it as it was."""
    params = trained_parameters(model)
    centre = {name: param.data for name, param in params.items()}

    def move(*steps: tuple[float, Direction]) -> None:
        for name, param in params.items():
            param.data.copy_(centre[name])
            for factor, direction in steps:
                param.data.add_(direction[name], alpha=factor)

    with leaving_as_found(model):
        yield move


def slice_losses(
    model: nn.Module, loss: Loss, direction: Direction, positions: Sequence[float]
) -> list[float]:
    """Return the loss at positions along a direction; position 0 is the model as it is."""
    losses = []
    with moving(model) as move:
        for position in positions:
            move((position, direction))
            losses.append(loss())
    return losses


def plane_rows(
    model: nn.Module,
    loss: Loss,
    first: Direction,
    second: Direction,
    positions: Sequence[float],
    start: int = 0,
) -> Iterator[list[float]]:
    """Yield the losses on a plane row after row; between two rows the model is as it was.

    Args:
        model: the network, which is the centre of the plane.
        loss: returns its loss.
        first: the direction along a row.
        second: the direction from row to row.
        positions: the grid in both directions.
        start: the row to begin with, if those before it are known.
    """
    for across in positions[start:]:
        row = []
        with moving(model) as move:
            for along in positions:
                move((along, first), (across, second))
                row.append(loss())
        yield row


def curvature(model: nn.Module, loss: Loss, direction: Direction, step: float) -> float:
    """Return the second difference of the loss along a direction.

    For a small step that is the Hessian's quadratic form: direction, Hessian, direction.
    """
    before, centre, after = slice_losses(model, loss, direction, (-step, 0.0, step))
    return (before - 2.0 * centre + after) / step**2
