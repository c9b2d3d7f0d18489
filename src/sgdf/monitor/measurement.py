"""What is measured after a step: statistics of a selection of elements.

The names of the statistics are explained by ``attach``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..filter import filter_scalars
from ..optim.direction_table import Group
from ..theory import steady_gain

_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0  # its multiples fall evenly into [0, 1)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

Statistics = dict[str, float]
"""Values by name."""


@dataclass(frozen=True)
class Measurement:
    """The statistics of one step."""

    step: int
    """Its number since ``attach``."""
    total: Statistics
    """Of all parameters together."""
    params: dict[str, Statistics]
    """Of each parameter, by its name."""
    sizes: dict[str, int]
    """Number of elements of each parameter."""
    steady_noise: Statistics
    """What the total would be on steady noise, as far as it is known; empty without a gain."""
    memory: float
    """About how many steps ``betas[1]`` remembers; 0 if the first ones are forgotten."""
    gains: dict[str, Tensor]
    """The gains of the chosen elements of each parameter, sorted; empty without a gain."""


class Start(NamedTuple):
    """A parameter before a step."""

    group: Group
    param: Tensor
    chosen: Tensor
    """A copy of the chosen elements."""


class _Sample(NamedTuple):
    """The chosen elements of one parameter, before and after a step."""

    size: int
    """Number of all its elements."""
    start: Tensor
    end: Tensor
    grad: Tensor
    buffers: tuple[Tensor, ...]


class _Part(NamedTuple):
    """Parameters of one group, step and dtype: measured together, for there may be hundreds."""

    group: Group
    step: float
    samples: dict[str, _Sample]


class _Look(NamedTuple):
    """The measurement of one parameter."""

    size: int
    """Number of all its elements."""
    sums: Tensor
    """Sums over all of them, in the order of ``_SUMS``."""
    gains: Tensor | None
    """The gains of the chosen elements, sorted."""


_SUMS = (
    *("gain", "powered gain", "grad²", "estimate²", "grad·estimate"),
    *("residual²", "update²", "param²"),
)


def choose_elements(tensor: Tensor, most: int | None) -> Tensor:
    """Return some elements as reals on the CPU: the same ones for all tensors of a shape.

    Args:
        tensor: any; of one that is spread over processes, the part of this one, since asking
            the others would wait for them.
        most: the number of elements, None for all.
    """
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if most is None or tensor.numel() <= most:
        chosen = tensor.reshape(-1)
    else:
        chosen = tensor.take(_places(tensor.numel(), most).to(tensor.device))
    if chosen.is_complex():
        chosen = torch.view_as_real(chosen.resolve_conj()).reshape(-1)
    return chosen.to("cpu", torch.promote_types(chosen.dtype, torch.float32))


@functools.cache
def _places(size: int, count: int) -> Tensor:
    """Return the indices to measure: spread evenly over a tensor of any shape."""
    shares = torch.arange(1, count + 1, dtype=torch.float64) * _GOLDEN_RATIO % 1.0
    return (shares * size).long()


def measure(
    optimizer: Any,
    step: int,
    before: dict[str, Start],
    most: int | None,
    leave_out: Callable[[str, Exception], object],
) -> Measurement | None:
    """Return the statistics of the step that was just taken, or None if nothing had a gradient.

    Args:
        optimizer: has taken the step.
        step: its number.
        before: the parameters before it, by name.
        most: the number of elements to choose of a parameter.
        leave_out: called with the name of each parameter that cannot be measured, and the reason.
    """
    parts = _parts(optimizer, before, most, leave_out)
    looks: dict[str, _Look] = {}
    gain_sum = powered_sum = memory = 0.0
    for part in parts:
        options = optimizer._filter_in(part.group)
        exponent = 1.0
        if options is not None:
            eps = options.pop("eps")
            exponent = float(filter_scalars(part.step, **options).exponent)
            betas, correction = tuple(options["betas"]), options["correction"]
            gain, powered = steady_gain(
                betas=betas, gamma=exponent, eps=float(eps), correction=correction
            )
            size = sum(sample.size for sample in part.samples.values())
            gain_sum, powered_sum = gain_sum + size * gain, powered_sum + size * powered
            if (remembered := 1.0 / (1.0 - betas[1])) > part.step:
                memory = max(memory, remembered)
        looks |= _look_at(optimizer, part, exponent)
    if not looks:
        return None
    size = sum(look.size for look in looks.values())
    gains = {name: look.gains for name, look in looks.items() if look.gains is not None}
    steady = {"gain_mean": gain_sum / size, "powered_gain_mean": powered_sum / size}
    return Measurement(
        step=step,
        total=_statistics(list(looks.values())),
        params={name: _statistics([look]) for name, look in looks.items()},
        sizes={name: look.size for name, look in looks.items()},
        steady_noise=steady if gains else {},
        memory=memory,
        gains=gains,
    )


def _parts(
    optimizer: Any,
    before: dict[str, Start],
    most: int | None,
    leave_out: Callable[[str, Exception], object],
) -> list[_Part]:
    """Return samples of all parameters with a gradient, in parts that are measured together."""
    parts: dict[Any, _Part] = {}
    for name, (group, param, start) in before.items():
        if param.grad is None or not len(start):
            continue
        try:
            step, buffers = optimizer._recalled_state(group, param)
            tensors = (param, param.grad, *buffers)
            end, grad, *rest = chosen = [choose_elements(tensor, most) for tensor in tensors]
            if any(len(column) != len(start) for column in chosen):
                raise ValueError("gradient or state have another shape than the parameter")
        except Exception as fault:
            leave_out(name, fault)
            continue
        size = param.numel() * (2 if param.is_complex() else 1)
        part = parts.setdefault((id(group), step, start.dtype), _Part(group, step, {}))
        part.samples[name] = _Sample(size, start, end, grad, tuple(rest))
    return list(parts.values())


def _look_at(optimizer: Any, part: _Part, exponent: float) -> dict[str, _Look]:
    """Return the measurements of the parameters of one part."""
    rows = part.samples.values()
    starts = torch.cat([row.start for row in rows])
    updates = torch.cat([row.end for row in rows]) - starts
    grads = optimizer._seen(part.group, torch.cat([row.grad for row in rows]), starts)
    buffers = (torch.cat(column) for column in zip(*(row.buffers for row in rows), strict=True))
    estimates, gains, residuals = optimizer._recalled(part.group, grads, part.step, *buffers)
    pairs = (
        *((grads, grads), (estimates, estimates), (grads, estimates)),
        *((residuals, residuals), (updates, updates), (starts, starts)),
    )
    shown = torch.zeros_like(grads) if gains is None else gains
    products = torch.stack(
        [shown.double(), shown.pow(exponent).double(), *(x.double() * y for x, y in pairs)]
    )
    sizes = [len(row.start) for row in rows]
    looks = {}
    for (name, row), product, gain in zip(
        part.samples.items(),
        torch.split(products, sizes, dim=1),
        [None] * len(sizes) if gains is None else torch.split(gains, sizes),
        strict=True,
    ):
        ordered = None if gain is None else gain.sort().values
        looks[name] = _Look(row.size, row.size / product.shape[1] * product.sum(1), ordered)
    return looks


def _statistics(looks: list[_Look]) -> Statistics:
    """Return the statistics of one or several parameters."""
    sums = torch.stack([look.sums for look in looks]).sum(0).tolist()
    of = dict(zip(_SUMS, sums, strict=True))
    count = sum(look.size for look in looks)
    statistics: Statistics = {}
    if all(look.gains is not None for look in looks):
        statistics["gain_mean"] = of["gain"] / count
        statistics["powered_gain_mean"] = of["powered gain"] / count
        for quantile, value in zip(QUANTILES, _gain_quantiles(looks), strict=True):
            statistics[f"gain_q{round(100 * quantile):02}"] = value
    statistics["residual_rms"] = math.sqrt(of["residual²"] / count)
    statistics["residual_ratio"] = _root_ratio(of["residual²"], of["grad²"])
    statistics["cosine"] = _ratio(
        of["grad·estimate"], math.sqrt(of["grad²"]) * math.sqrt(of["estimate²"])
    )
    statistics["update_ratio"] = _root_ratio(of["update²"], of["param²"])
    return statistics


def _gain_quantiles(looks: list[_Look]) -> list[float]:
    """Return the quantiles of the gains: for each, the smallest gain that enough stay within."""
    shown = [_thinned(look) for look in looks]
    gains, order = torch.cat([gains for gains, _ in shown]).sort()
    weights = torch.cat([torch.full_like(gains, weight) for gains, weight in shown])
    shares = weights[order].double().cumsum(0)
    ends = torch.tensor(QUANTILES, dtype=torch.float64) * shares[-1]
    places = torch.searchsorted(shares, ends).clamp_max(len(gains) - 1)
    return gains[places].tolist()


def _thinned(look: _Look) -> tuple[Tensor, float]:
    """Return some of a parameter's gains and the number of elements that each stands for.

    Sorting all gains of hundreds of parameters would take longer than everything else.
    """
    assert look.gains is not None
    stride = max(1, len(look.gains) // 512)
    some = look.gains[stride // 2 :: stride]
    return some, look.size / len(some)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


def _root_ratio(numerator: float, denominator: float) -> float:
    return math.sqrt(_ratio(numerator, denominator))
