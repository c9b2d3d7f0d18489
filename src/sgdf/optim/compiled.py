"""The step that compiles itself: lists of tensors in one pass over memory, on an accelerator.

``torch.compile`` translates ``paths.update_lists`` for each list of parameters. All that changes
from step to step enters as a tensor, so that nothing is compiled twice: the numbers of the step
as one vector, the keys of the noise as another.
"""

from __future__ import annotations

import logging
import os
import types
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .codings import BFLOAT16, FULL, SHARED
from .direction_table import DIRECTIONS
from .foreach import Number
from .noise import Key, Noise, noise_keys
from .part import Part, State, are_plain, as_real, buckets
from .paths import (
    Lists,
    Update,
    moved_lr,
    number_dtype,
    rounds,
    shared_variances,
    shared_weights,
    update_lists,
    update_variances,
)
from .state import FORMATS

VARIABLE = "SGDF_STEP"
"""The environment variable that asks for the compiled step on any device."""
BACKEND = "inductor"
"""Of ``torch.compile``."""
INDUCTOR_OPTIONS = {
    # Else the long arithmetic of the noise is cut into several passes over memory.
    "realize_opcount_threshold": 1000,
}
PATIENCE = 100
"""After so many steps without a gradient, parameters are left out of the compiled list."""

_log = logging.getLogger("sgdf")
_has_told = False

# When it is taken.


def is_forced() -> bool:
    """Return whether the environment asks for the compiled step, where no other path is."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "compiled"):
        raise ValueError(f"Invalid {VARIABLE}: {value!r}, expected 'compiled', or leave it unset")
    return value == "compiled"


def is_accelerated(param: Tensor) -> bool:
    """Return whether ``fused=True`` means the compiled step for this parameter."""
    is_number = param.is_floating_point() or param.is_complex()
    return is_number and not (param.is_cpu or param.is_meta)


# The function that is compiled.


class Rule(NamedTuple):
    """What a compiled function has as constants."""

    direction: str
    format: str
    structure: Hashable
    """Of the changing numbers: see ``_structure``."""
    maximize: bool
    rounds: bool


def list_function(rule: Rule) -> Callable[..., None]:
    """Return the function to compile, as ``arguments_of`` has its arguments."""
    direction, format = DIRECTIONS[rule.direction], FORMATS[rule.format]

    def step_list(
        params: list[Tensor],
        grads: list[Tensor],
        columns: list[list[Tensor]],
        vector: Tensor,
        keys: Tensor | None,
    ) -> None:
        if not torch.compiler.is_compiling():
            raise RuntimeError("torch.compile is switched off")
        of_update, numbers, weights, moving = _filled(rule.structure, iter(vector.unbind()))
        lr, decay, shrinkage = of_update
        update = Update(lr, decay, shrinkage, rule.maximize, rule.rounds)
        known = _unpacked(keys) if keys is not None else [()] * len(params)
        noises = [
            Noise(0, 0, param.shape, param.device, keys=own)
            for param, own in zip(params, known, strict=True)
        ]
        squares = None
        if weights is not None:
            variances = shared_variances(direction, format, columns)
            squares = [torch.zeros_like(variance) for variance in variances]
        written = params, *columns
        before = (
            [[tensor.clone() for tensor in column] for column in written]
            if moving is not None
            else []
        )

        lists = Lists(params, grads, columns, noises, squares)
        update_lists({}, direction, format, update, numbers, lists)
        if weights is not None and squares is not None:
            update_variances(params, variances, squares, *weights)

        if moving is not None:
            for column, old in zip(written, before, strict=True):
                for tensor, value, flag in zip(column, old, moving, strict=True):
                    tensor.copy_(torch.where(flag != 0.0, tensor, value))

    return step_list


def _unpacked(keys: Tensor) -> list[tuple[Key, ...]]:
    """Return the keys of each parameter, by stream."""
    rows = [row.unbind() for row in keys.unbind()]
    return [(Key(*own[:2]), Key(*own[2:])) for own in zip(*rows, strict=True)]


def arguments_of(part: Part, moving: Sequence[bool] | None = None) -> tuple[Rule, tuple[Any, ...]]:
    """Return the constants and the arguments of a function for a part of one device and dtype.

    Nothing that is computed here waits for the device.

    Args:
        part: what to update.
        moving: whether each parameter is updated; None for all.
    """
    group, direction, format = part.group, part.direction, part.format
    param = part.params[0]
    device, dtype = param.device, number_dtype(param)
    is_capturable = bool(group["capturable"])
    counts: Sequence[Number] = (
        torch._foreach_add(part.steps, 1)
        if is_capturable
        else [step.item() + 1.0 for step in part.steps]
    )
    # Options may be tensors: those on the CPU are read, which waits for nothing.
    group = {
        name: value.item() if isinstance(value, Tensor) and value.is_cpu else value
        for name, value in group.items()
        if name != "params"
    }
    update = Update.of(group, param, moved_lr(group["lr"], device, dtype))
    changing = (
        (update.lr, update.decay, update.shrinkage),
        direction.numbers(group, counts, dtype, format.shares_variance),
        shared_weights(group) if format.shares_variance else None,
        None if moving is None else list(map(float, moving)),
    )
    structure = _structure(changing)
    rule = Rule(direction.name, format.name, structure, update.maximize, update.rounds)
    keys = None
    if rounds(group, param) or any(format.coding(b).is_random for b in direction.buffers):
        place = device if is_capturable else torch.device("cpu")
        indices = _vector(part.indices, place, torch.int64, is_capturable)
        keys = noise_keys(indices, _vector(counts, place, torch.int64, is_capturable))
        keys = _sent(keys, device)
    rows = [
        _as_vectors(*tensors)
        for tensors in zip(part.params, part.grads, *part.columns, strict=True)
    ]
    params, grads, *columns = map(list, zip(*rows, strict=True))
    vector = _vector([*_numbers_in(changing)], device, dtype, is_capturable)
    return rule, (params, grads, columns, vector, keys)


def _as_vectors(param: Tensor, *others: Tensor) -> list[Tensor]:
    """Return real tensors that share their memory, and have one dimension or more.

    A tensor without dimensions on the CPU would be a constant of the compiled function.
    """
    tensors = [tensor.detach() for tensor in as_real(param, *others)]
    return tensors if tensors[0].dim() else [tensor.reshape(1) for tensor in tensors]


def _structure(numbers: Any) -> Hashable:
    """Return a tree of numbers without them: None, "number", the length of a list, or a tuple.

    A tuple has its type, which may be a named one, and the structures of its members.
    """
    if isinstance(numbers, list):
        return len(numbers)
    if isinstance(numbers, tuple):
        return (type(numbers), *map(_structure, numbers))
    return None if numbers is None else "number"


def _numbers_in(numbers: Any) -> Iterator[Number]:
    """Yield the numbers in a tree."""
    if isinstance(numbers, (list, tuple)):
        for member in numbers:
            yield from _numbers_in(member)
    elif numbers is not None:
        yield numbers


def _filled(structure: Any, numbers: Iterator[Any]) -> Any:
    """Return the tree of this structure, with the next of these numbers."""
    if structure is None:
        return None
    if structure == "number":
        return next(numbers)
    if isinstance(structure, int):
        return [next(numbers) for _ in range(structure)]
    kind, *members = structure
    filled = [_filled(member, numbers) for member in members]
    return tuple(filled) if kind is tuple else kind(*filled)


def _vector(
    numbers: Sequence[Number], device: torch.device, dtype: torch.dtype, is_capturable: bool
) -> Tensor:
    """Return numbers, Python's or tensors on the device, as a vector there.

    A CUDA graph can record what fills memory, but no copy from the host.
    """
    if not is_capturable and not any(isinstance(number, Tensor) for number in numbers):
        return _sent(torch.tensor(numbers, dtype=dtype), device)
    pieces = []
    for _, run in groupby(numbers, lambda n: None if isinstance(n, Tensor) else n):
        same: list[Any] = list(run)
        if isinstance(same[0], Tensor):
            pieces.append(torch.stack(same).to(dtype))
        else:
            pieces.append(torch.full((len(same),), same[0], dtype=dtype, device=device))
    return torch.cat(pieces)


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a small tensor on the device, which CUDA does not wait for."""
    return tensor.to(device, non_blocking=device.type == "cuda")


# The compilation.


class _Compiled:
    """A compiled function, which knows whether it has begun to change anything."""

    def __init__(self, function: Any) -> None:
        self._has_begun = False
        # torch keeps what it has compiled by code object, with a limit for each.
        code = function.__code__.replace()
        copy = types.FunctionType(
            code, function.__globals__, function.__name__, None, function.__closure__
        )
        self._function = torch.compile(copy, backend=self._compile, fullgraph=True, dynamic=False)

    def _compile(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        from torch._dynamo import lookup_backend
        from torch._inductor import config

        known = {name: value for name, value in INDUCTOR_OPTIONS.items() if hasattr(config, name)}
        with config.patch(known):
            compiled = lookup_backend(BACKEND)(graph, inputs)

        def run(*arguments: Any) -> Any:
            self._has_begun = True
            return compiled(*arguments)

        return run

    def call(self, arguments: tuple[Any, ...]) -> str | None:
        """Call the function, or change nothing and return why it cannot be compiled."""
        self._has_begun = False
        try:
            self._function(*arguments)
        except Exception as error:  # anything that the compiler, or what it needs, may raise
            if self._has_begun:
                raise
            cause = getattr(error, "inner_exception", error)
            return f"{type(cause).__name__}: {cause}".splitlines()[0]
        return None


def _tell(count: int) -> None:
    """Say once that compiling takes a while: without it, the first step would seem to hang."""
    global _has_told
    if not _has_told:
        _has_told = True
        _log.warning(
            "compiling the step of %d tensors; this takes up to a minute, once for each list of "
            "parameters",
            count,
        )


class CompiledSteps:
    """The compiled steps of one optimizer.

    A group is known by its first parameter: loading a checkpoint makes new groups of the same ones.
    """

    def __init__(self) -> None:
        self._functions: dict[Hashable, _Compiled] = {}
        self._idle: dict[Hashable, tuple[list[int], int]] = {}
        self._has_failed = False

    def wants(self, part: Part) -> bool:
        """Return whether these parameters are to take the compiled step."""
        group, direction = part.group, part.direction
        asked = (bool(group["fused"]) and all(map(is_accelerated, part.params))) or (
            is_forced()
            and group["foreach"] is None
            and group["fused"] is not False
            and not group["capturable"]
            and not any(param.is_meta for param in part.params)
        )
        return (
            asked
            and not group["differentiable"]
            # Codes of 8 bits, and products of matrices, are no single pass anyway.
            and direction.elementwise
            and all(part.format.coding(b) in (FULL, BFLOAT16, SHARED) for b in direction.buffers)
            and are_plain(part.params)
            # Dispatch modes (fake tensors, copies of saved tensors) must see torch's own kernels.
            and not torch._C._len_torch_dispatch_stack()
        )

    def step(self, part: Part, idle: Callable[[], list[Tensor]], state: State) -> Part | None:
        """Update these parameters; return those that have to take another path, or None.

        Once a compilation has failed, all of them have to. Where gradients come and go, the idle
        parameters are compiled too, and keep their values.
        """
        if self._has_failed:
            return part
        flags = [True] * len(part.params)
        resting = idle()
        if resting and self._come_and_go(part, resting):
            part, flags = _with_idle(part, resting, state)
        remaining = []
        for bucket in buckets(part.params):
            moving = [flags[i] for i in bucket]
            if any(moving) and not self._step_list(part.of(bucket), moving):
                remaining += [i for i in bucket if flags[i]]
        return part.of(remaining) if remaining else None

    def _come_and_go(self, part: Part, idle: list[Tensor]) -> bool:
        """Return whether gradients are missing now and then: not the same ones all the time."""
        key = part.group["params"][0], part.direction.name, part.format.name
        now = list(map(id, idle))
        before, times = self._idle.get(key, ([], 0))
        times = times + 1 if now == before else 1
        self._idle[key] = now, times
        return times <= PATIENCE

    def _step_list(self, part: Part, moving: list[bool]) -> bool:
        """Update tensors of one device and dtype, or change nothing and return False."""
        if self._has_failed:
            return False
        rule, arguments = arguments_of(part, None if all(moving) else moving)
        param = part.params[0]
        key = part.group["params"][0], param.device, param.dtype, rule
        if key not in self._functions:
            _tell(len(part.params))
            self._functions[key] = _Compiled(list_function(rule))
        if fault := self._functions[key].call(arguments):
            self._has_failed = True
            self._functions.clear()
            warnings.warn(f"no compiled step ({fault}); using foreach", stacklevel=7)
            return False
        torch._foreach_add_([s for s, moves in zip(part.steps, moving, strict=True) if moves], 1)
        return True


def _with_idle(part: Part, idle: list[Tensor], state: State) -> tuple[Part, list[bool]]:
    """Return a part with the idle parameters, in the order of the group, and who has a gradient."""
    row_of = {id(param): row for row, param in enumerate(part.params)}
    known = {*row_of, *map(id, idle)}
    params = [param for param in part.group["params"] if id(param) in known]
    rows = [row_of.get(id(param)) for param in params]
    keys = part.format.keys(part.direction.buffers)
    return part._replace(
        params=params,
        grads=[
            torch.empty_like(param) if row is None else part.grads[row]
            for param, row in zip(params, rows, strict=True)
        ],
        steps=[state[param]["step"] for param in params],
        indices=[0 if row is None else part.indices[row] for row in rows] if part.indices else [],
        columns=[[state[param][key] for param in params] for key in keys],
    ), [row is not None for row in rows]
