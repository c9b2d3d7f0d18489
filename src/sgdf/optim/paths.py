"""The steps in torch's own operations: one parameter after the other, or lists of them.

Lists are worked off in chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..filter import next_shared_variance
from . import rounding
from .chunks import Piece, chunks, stored_tensors
from .codings import buffer_dtype
from .direction_table import Direction, Group
from .foreach import Number
from .noise import Noise
from .part import Part, are_plain, as_real, buckets
from .state import Format

# One parameter after the other.


def step_single(part: Part) -> None:
    """Update one parameter after the other."""
    group, buffers, format = part.group, part.direction.buffers, part.format
    lrs: dict[Any, float | Tensor] = {}
    for i, (param, grad, step) in enumerate(zip(part.params, part.grads, part.steps, strict=True)):
        step += 1
        count = _count(group, step)
        param, grad, *stored = as_real(param, grad, *(column[i] for column in part.columns))
        noise = part.noise(i, param, count)
        grad = filter_input(group, grad.to(buffer_dtype(param)), param)
        numbers = format.read(buffers, stored)
        direction = part.direction.one(group, grad, numbers, count, format.shares_variance)
        format.write(buffers, stored, numbers, noise)
        place = direction.device, direction.dtype
        lr = lrs[place] if place in lrs else lrs.setdefault(place, moved_lr(group["lr"], *place))

        # Rounded only when written: a bf16 parameter must not lose a small decay.
        value = param.to(direction.dtype)
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            value.mul_(1 - lr * group["weight_decay"])
        value.sub_(lr * direction)
        if value is not param:
            param.copy_(_rounded(group, value, param, noise))


# Lists of parameters.


def step_foreach(part: Part) -> None:
    """Update lists of parameters, with few kernels for each list."""
    group = part.group
    torch._foreach_add_(part.steps, 1)
    for bucket in buckets(part.params):
        param = part.params[bucket[0]]
        lr = moved_lr(group["lr"], param.device, number_dtype(param))
        update = Update.of(group, param, lr)
        counts = {i: _count(group, part.steps[i]) for i in bucket}
        squares = _sums_of_squares(part, bucket)
        for chunk in chunks(part, bucket):
            _step_chunk(part, chunk, counts, update, squares)
        if squares:
            variances = shared_variances(part.direction, part.format, part.columns)
            params, owned = ([column[i] for i in bucket] for column in (part.params, variances))
            update_variances(params, owned, list(squares.values()), *shared_weights(group))


class Update(NamedTuple):
    """How parameters move along their directions."""

    lr: Number
    decay: Number | None
    """Of coupled decay; None for none."""
    shrinkage: Number | None
    """The factor of decoupled decay; None for none."""
    maximize: bool
    rounds: bool
    """Whether the parameters are rounded stochastically."""

    @classmethod
    def of(cls, group: Group, param: Tensor, lr: Number) -> Update:
        """Return what the options of ``group`` ask for, for parameters like this one."""
        decay, decoupled = group["weight_decay"], group["decoupled_weight_decay"]
        return cls(
            lr=lr,
            decay=decay if decay and not decoupled else None,
            shrinkage=1 - lr * decay if decay and decoupled else None,
            maximize=bool(group["maximize"]),
            rounds=rounds(group, param),
        )


class Lists(NamedTuple):
    """Tensors of one device and dtype to update, none of them complex."""

    params: list[Tensor]
    grads: list[Tensor]
    columns: list[list[Tensor]]
    """The tensors of the state, a list for each key of the format."""
    noises: list[Noise]
    squares: list[Tensor] | None
    """For a shared variance the sums of squares that are added to."""


def update_lists(
    group: Group,
    direction: Direction,
    format: Format,
    update: Update,
    numbers: Any,
    lists: Lists,
) -> None:
    """Update parameters and state in place.

    Numbers are Python's, or tensors that ``torch.compile`` then makes no constants of. ``numbers``
    are those of ``direction.numbers``.
    """
    params, grads, columns, noises, squares = lists
    buffers, dtype = direction.buffers, buffer_dtype(params[0])
    grads = _as_dtype(grads, dtype)
    if update.maximize:
        grads = list(torch._foreach_neg(grads))
    if isinstance(update.decay, Tensor):  # in a compiled step such a product takes no memory
        decays = torch._foreach_mul(_as_dtype(params, dtype), update.decay)
        grads = list(torch._foreach_add(grads, decays))
    elif update.decay is not None:
        grads = list(torch._foreach_add(grads, params, alpha=update.decay))

    stored = list(zip(*columns, strict=True))
    read = [format.read(buffers, tensors) for tensors in stored]
    directions = direction.many(
        group, numbers, grads, list(map(list, zip(*read, strict=True))), squares
    )
    del grads
    for tensors, values_of_state, noise in zip(stored, read, noises, strict=True):
        format.write(buffers, tensors, values_of_state, noise)
    del read

    values = _as_dtype(params, dtype)
    if update.shrinkage is not None:
        torch._foreach_mul_(values, update.shrinkage)
    torch._foreach_mul_(directions, update.lr)
    torch._foreach_sub_(values, directions)
    del directions
    if values is not params:
        if update.rounds:
            rows = zip(values, params, noises, strict=True)
            values = [
                _ROUNDINGS[param.dtype](value, noise.of("param")) for value, param, noise in rows
            ]
        torch._foreach_copy_(params, values)


def _step_chunk(
    part: Part,
    chunk: list[Piece],
    counts: dict[int, float | Tensor],
    update: Update,
    squares: dict[int, Tensor],
) -> None:
    group, direction, format = part.group, part.direction, part.format
    rows = [
        as_real(
            piece.of(part.params[piece.position]), piece.of(part.grads[piece.position]), *stored
        )
        for piece in chunk
        for stored in [stored_tensors(part, piece)]
    ]
    params, grads, *columns = map(list, zip(*rows, strict=True))
    steps = [counts[piece.position] for piece in chunk]
    lists = Lists(
        params,
        grads,
        columns,
        noises=[
            part.noise(piece.position, param, step, piece.start)
            for piece, param, step in zip(chunk, params, steps, strict=True)
        ],
        squares=[squares[piece.position] for piece in chunk] if squares else None,
    )
    dtype = buffer_dtype(params[0])
    numbers = direction.numbers(group, steps, dtype, format.shares_variance)
    update_lists(group, direction, format, update, numbers, lists)


def _as_dtype(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the tensors, copied if their dtype is another."""
    if all(tensor.dtype == dtype for tensor in tensors):
        return tensors
    if _is_compiling() or not are_plain(tensors):
        return [tensor.to(dtype) for tensor in tensors]
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, tensors)
    return copies


def _sums_of_squares(part: Part, bucket: list[int]) -> dict[int, Tensor]:
    """Return a sum of 0 for each parameter whose variance is one number."""
    if not part.format.shares_variance:
        return {}
    variances = shared_variances(part.direction, part.format, part.columns)
    return {i: torch.zeros_like(variances[i]) for i in bucket}


def shared_variances(
    direction: Direction, format: Format, columns: list[list[Tensor]]
) -> list[Tensor]:
    """Return the column of the variances that are one number each."""
    return columns[format.keys(direction.buffers).index("exp_var")]


def shared_weights(group: Group) -> tuple[float, float]:
    """Return the weights of the old variance and of a mean square in the new shared variance."""
    beta2: float = group["betas"][1]
    return beta2, 1.0 - beta2


def update_variances(
    params: list[Tensor],
    variances: list[Tensor],
    squares: list[Tensor],
    beta2: Number,
    weight: Number,
) -> None:
    """Update shared variances, given the sums of squares of a whole step."""
    for param, variance, square in zip(params, variances, squares, strict=True):
        mean = square / max(1, param.numel())
        variance.copy_(next_shared_variance(variance, mean, beta2, weight))


# What both need.


def filter_input(group: Group, grad: Tensor, param: Tensor) -> Tensor:
    """Return the gradient that the direction is computed from: with sign and coupled decay."""
    if group["maximize"]:
        grad = -grad
    if group["weight_decay"] and not group["decoupled_weight_decay"]:
        grad = grad.add(param, alpha=group["weight_decay"])
    return grad


def rounds(group: Group, param: Tensor) -> bool:
    """Return whether ``param`` is rounded stochastically."""
    return bool(group["stochastic_rounding"]) and param.dtype in _ROUNDINGS


_ROUNDINGS: dict[torch.dtype, Callable[[Tensor, Tensor], Tensor]] = {
    torch.bfloat16: rounding.to_bfloat16,
    torch.float16: rounding.to_float16,
}


def _rounded(group: Group, value: Tensor, param: Tensor, noise: Noise) -> Tensor:
    """Return what is written to the parameter: if asked for, rounded stochastically."""
    return _ROUNDINGS[param.dtype](value, noise.of("param")) if rounds(group, param) else value


def moved_lr(lr: float | Tensor, device: torch.device, dtype: torch.dtype) -> float | Tensor:
    """Return lr as a number, or as a 0-dimensional tensor on a device.

    In a compiled graph, adding a number to a tensor makes it an input of the graph.
    Otherwise it would be a constant, and each value of a schedule would need a new graph.
    """
    if isinstance(lr, Tensor):
        return lr.reshape(()).to(device, dtype)
    if _is_compiling():
        return torch.zeros((), dtype=dtype, device=device) + lr
    return lr


def number_dtype(param: Tensor) -> torch.dtype:
    """Return the real dtype in which the step of a parameter is computed."""
    return buffer_dtype(as_real(param, param)[0])


def _count(group: Group, step: Tensor) -> float | Tensor:
    """Return the step as a number, or as the tensor if the device must not be waited for.

    torch.compile traces every optimizer as if it were capturable.
    """
    return step if group["capturable"] else step.item()


def _is_compiling() -> bool:
    return torch.compiler.is_compiling()


def uses_foreach(group: Group, params: list[Tensor]) -> bool:
    """Return whether lists are requested; by default they are used if all types allow it.

    As in ``torch.optim``, False for either of ``foreach`` and ``fused`` requests the loop.
    """
    if group["differentiable"]:
        return False
    if group["foreach"] is None:
        return group["fused"] is not False and are_plain(params)
    return bool(group["foreach"])
