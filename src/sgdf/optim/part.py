"""Lists of parameters that step alike, and what they are checked for.

Base collects them, and every path and backend takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import _foreach_supported_types

from .direction_table import Direction, Group
from .noise import Noise
from .state import Format

State = Mapping[Tensor, Mapping[str, Tensor]]

PLAIN_TYPES = frozenset(_foreach_supported_types)


class Part(NamedTuple):
    """The parameters of a group that have a gradient, one direction and one format."""

    group: Group
    direction: Direction
    format: Format
    params: list[Tensor]
    grads: list[Tensor]
    steps: list[Tensor]
    indices: list[int]
    """The index of each parameter in the optimizer; empty if nothing is rounded with noise."""
    columns: list[list[Tensor]]
    """The tensors of the state, a list for each key of the format."""

    def of(self, positions: Sequence[int]) -> Part:
        """Return the part that consists of the parameters at these positions."""
        params, grads, steps, *columns = (
            [column[i] for i in positions]
            for column in (self.params, self.grads, self.steps, *self.columns)
        )
        indices = [self.indices[i] for i in positions] if self.indices else []
        return self._replace(
            params=params, grads=grads, steps=steps, indices=indices, columns=columns
        )

    def noise(self, i: int, param: Tensor, count: float | Tensor, start: int = 0) -> Noise:
        """Return the random numbers for a parameter of the list, or the part of it from ``start``.

        ``param`` is the parameter or this part.
        """
        return Noise(
            self.indices[i] if self.indices else -1, count, param.shape, param.device, start
        )


class Backend(Protocol):
    """Steps that keep something from one to the next: addresses of tensors, compiled code."""

    def wants(self, part: Part) -> bool:
        """Return whether options, types and devices ask for this step."""

    def step(self, part: Part, idle: Callable[[], list[Tensor]], state: State) -> Part | None:
        """Update these parameters; return those that have to take another path, or None.

        Args:
            part: the parameters that have a gradient.
            idle: returns those that have none, but a state of the same direction and format.
            state: of all parameters.
        """


def are_plain(params: list[Tensor]) -> bool:
    """Return whether all parameters are of types that torch's foreach kernels support."""
    return PLAIN_TYPES.issuperset(map(type, params))


def check_dense(optimizer: Optimizer, grads: list[Tensor]) -> None:
    """Raise if a gradient is sparse."""
    if any([grad.layout is not torch.strided for grad in grads]):  # noqa: C419 (a list is twice as fast)
        (grad, *_) = (grad for grad in grads if grad.layout is not torch.strided)
        raise RuntimeError(
            f"{type(optimizer).__name__} does not support sparse gradients, got one of "
            f"layout {grad.layout} and shape {tuple(grad.shape)}; an Embedding makes dense ones "
            "with sparse=False"
        )


def read_only(grads: list[Tensor], *written: list[Tensor]) -> list[Tensor]:
    """Return the gradients, copied where one begins in memory where a written tensor does.

    Otherwise a step would change a gradient before it has read it, on each path at another time.
    """
    columns = grads, *written
    if torch.compiler.is_compiling() or not all(map(are_plain, columns)):
        return grads
    addresses = {
        address for column in written for tensor in column if (address := tensor.data_ptr())
    }
    return [grad.clone() if grad.data_ptr() in addresses else grad for grad in grads]


def as_real(param: Tensor, grad: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
    """Return complex tensors as pairs of reals; parameter and buffers as views, to write to."""
    if not param.is_complex():
        return param, grad, *buffers
    return tuple(map(torch.view_as_real, (param, grad.resolve_conj(), *buffers)))


def buckets(params: list[Tensor]) -> list[list[int]]:
    """Return the indices grouped by device and dtype, as foreach kernels need them."""
    buckets: dict[Any, list[int]] = {}
    for index, param in enumerate(params):
        buckets.setdefault((param.device, param.dtype), []).append(index)
    return list(buckets.values())
