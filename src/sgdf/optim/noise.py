"""Random numbers for rounding, computed from a counter: no generator is read or changed.

A number depends on seed, stream, parameter, step and element, and on nothing else. So a resumed
run draws the numbers that the run would have drawn, replicas of a parameter draw the same ones,
and a shard draws its part of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


class Key(NamedTuple):
    """What the numbers of one parameter in one step are computed from."""

    k0: int | Tensor
    k1: int | Tensor


def noise_key(seed: int, stream: int, parameter: int | Tensor, step: int | Tensor) -> Key:
    """Return the key of a parameter, by its number in the optimizer, for a step (1 is the first).

    A ``step`` on a device gives a key on that device, without waiting for it. Vectors of numbers
    and steps give vectors.
    """
    if isinstance(step, Tensor):
        step = step.to(torch.int64)
    k0: int | Tensor = 0
    for number in (seed, stream, parameter, step):
        k0 = _fold(k0, number)
    return Key(k0, _fold(k0, 1))


def random_bits(
    key: Key, start: int, shape: Sequence[int], device: torch.device | str | None = None
) -> Tensor:
    """Return 32 random bits for each element of ``shape``, as int64 tensor.

    Args:
        key: of the parameter and the step.
        start: index of the first element in the whole parameter, in row-major order; not 0 for
            a shard.
        shape: of the parameter or shard. Its elements are counted in row-major order.
        device: of the result.
    """
    end = start + prod(shape)
    bits = torch.arange(start, end, dtype=torch.int64, device=device).view(tuple(shape))
    if end > _MASK:  # indices of more than 32 bits are rare, and cost two temporaries
        bits += (bits >> 32) * 0x9E3779B1
        bits &= _MASK
    bits ^= key.k0
    scrambled: Tensor = _scramble(bits, key.k1)
    return scrambled


def low_half(bits: Tensor) -> Tensor:
    """Return the lower 16 of 32 random bits, as int32 tensor."""
    return (bits & 0xFFFF).to(torch.int32)


def high_half(bits: Tensor) -> Tensor:
    """Return the upper 16 of 32 random bits, as int32 tensor."""
    return (bits >> 16).to(torch.int32)


def _fold(key: Any, number: Any) -> Any:
    """Return a key that depends on ``key`` and on the lower 32 bits of ``number``."""
    return _scramble(((key ^ number) + 0x9E3779B9) & _MASK, 0)


def _scramble(x: Any, key: Any) -> Any:
    """Return numbers of 32 bits in which every bit depends on all bits of ``x``.

    Ints and int64 tensors have the same operators; a tensor ``x`` is changed in place. Both
    factors are below 2^31, so that no product of int64 tensors overflows.
    """
    x ^= x >> 15
    x *= 0x2C1B3C6D
    x += key
    x &= _MASK
    x ^= x >> 12
    x *= 0x297A2D39
    x &= _MASK
    x ^= x >> 15
    return x


SEED = 0
"""The same in every process, so that replicas of a parameter stay equal."""

_USES = {
    "mean": (0, low_half),
    "variance": (0, high_half),
    "param": (1, low_half),
    "square": (1, high_half),
}
"""Stream and half of its random bits, by what is rounded."""


STREAMS = 2


def noise_keys(parameters: Tensor, steps: Tensor) -> Tensor:
    """Return the keys of parameters in these steps: ``k0`` and ``k1`` of each stream, in rows.

    All are vectors of int64 on one device, which is not waited for.
    """
    keys = [noise_key(SEED, stream, parameters, steps) for stream in range(STREAMS)]
    return torch.stack([half for key in keys for half in key])  # type: ignore[misc]  # tensors


class Noise:
    """The random numbers of one parameter, or a part of it, in one step."""

    def __init__(
        self,
        parameter: int,
        step: float | Tensor,
        shape: Sequence[int],
        device: Any,
        start: int = 0,
        keys: Sequence[Key] = (),
    ) -> None:
        """Prepare the numbers.

        Args:
            parameter: its number in the optimizer.
            step: 1 for the first.
            shape: of the part.
            device: of the numbers.
            start: index of the part's first element in the parameter, in row-major order.
            keys: those of ``noise_keys``, if they are known; number and step are not read then.
        """
        self._parameter, self._start, self._shape, self._device = parameter, start, shape, device
        self._keys = keys
        self._step = step if isinstance(step, Tensor) else int(step)
        self._bits: dict[int, Tensor] = {}

    def of(self, use: str) -> Tensor:
        """Return integers from 0 to 65535, to round "mean", "variance", "square" or "param"."""
        stream, half = _USES[use]
        if stream not in self._bits:
            key = (
                self._keys[stream]
                if self._keys
                else noise_key(SEED, stream, self._parameter, self._step)
            )
            self._bits[stream] = random_bits(key, self._start, self._shape, self._device)
        return half(self._bits[stream])
