"""Live statistics of a running optimizer: what the filter does to the gradients.

Nothing of the training changes by a bit: the numbers are worked out after a step, from
the gradients and the state that it leaves, on a fixed selection of elements.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from .optim.base import BaseOptimizer, Group
from .optim.filtered import Filtered

_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0  # its multiples fall evenly into [0, 1)
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

Statistics = dict[str, float]
"""By name, see ``attach``."""


class Writer(Protocol):
    """What is needed of TensorBoard's ``SummaryWriter``, or of something like it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Take one number."""

    def add_histogram(self, tag: str, values: Tensor, global_step: int) -> Any:
        """Take many."""


def attach(
    optimizer: Optimizer,
    every: int = 50,
    *,
    writer: Writer | None = None,
    max_elements: int | None = 2048,
) -> Monitor:
    """Watch an optimizer from its next step on.

    Each ``every``-th step is looked at. What was found then is in ``monitor.latest``: empty before
    the first of them, then a dict with the number of the ``step`` since ``attach``, statistics
    of all parameters together as ``total``, and those of each as ``params``, by name where the
    optimizer was given named parameters and as ``group0.param0`` where not:

    - ``gain_mean``, ``gain_q05``, ``gain_q25``, ``gain_q50``, ``gain_q75``, ``gain_q95``: the
      gain K before its power is taken, from 0 (the running mean counts) to 1 (the gradient
      counts);
    - ``residual_rms``: root mean square of what the gradient is away from its running mean,
      and ``residual_ratio``: the same in relation to the gradient's;
    - ``cosine``: between the estimate and the gradient;
    - ``update_ratio``: norm of the parameter's change in relation to its own.

    The gradient is that which the filter saw, with coupled decay. ``UnifiedMomentum`` has no
    gain; there the momentum is the estimate, and what it averages the running mean.

    Args:
        optimizer: one of this package's, or of a class from ``sgdf.filtered``.
        every: how many steps from one look to the next.
        writer: a TensorBoard ``SummaryWriter``; gets ``sgdf/total/...`` and, for each
            parameter, ``sgdf/<statistic>/<name>`` as scalars and ``sgdf/gain/<name>`` as a
            histogram.
        max_elements: how many elements of a parameter to look at, from all over it; None for
            all.

    Example:
        >>> import torch, sgdf
        >>> weight = torch.nn.Parameter(torch.ones(3))
        >>> optimizer = sgdf.SGDF([("weight", weight)], lr=0.1)
        >>> monitor = sgdf.monitor.attach(optimizer, every=1)
        >>> weight.grad = torch.ones(3)
        >>> optimizer.step()
        >>> round(monitor.latest["params"]["weight"]["update_ratio"], 4)
        0.1
        >>> monitor.detach()
    """
    return Monitor(optimizer, every, writer=writer, max_elements=max_elements)


class _Look(NamedTuple):
    """What one parameter shows."""

    sums: Tensor
    """Over all its elements, as ``_SUMS`` names them."""
    gains: Tensor | None
    """Of the elements looked at, in order."""
    weight: float
    """How many elements each of them stands for."""


_SUMS = ("count", "gain", "grad²", "estimate²", "grad·estimate", "residual²", "update²", "param²")


class Monitor:
    """What ``attach`` returns; also a context that detaches at its end."""

    def __init__(
        self,
        optimizer: Optimizer,
        every: int = 50,
        *,
        writer: Writer | None = None,
        max_elements: int | None = 2048,
    ) -> None:
        if not isinstance(optimizer, (BaseOptimizer, Filtered)):
            raise TypeError(
                f"monitor takes an optimizer of sgdf or of a class from sgdf.filtered, got "
                f"{type(optimizer).__name__}"
            )
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"Invalid every, expected a whole number from 1: {every}")
        if max_elements is not None and (not isinstance(max_elements, int) or max_elements < 1):
            raise ValueError(
                f"Invalid max_elements, expected a whole number from 1: {max_elements}"
            )
        if writer is not None and not all(
            hasattr(writer, name) for name in ("add_scalar", "add_histogram")
        ):
            raise TypeError(f"writer is no SummaryWriter: {writer!r}")
        self.latest: dict[str, Any] = {}
        """The latest statistics; empty before the first."""
        self._every, self._writer, self._max_elements = every, writer, max_elements
        self._steps = 0
        self._before: dict[Tensor, Tensor] = {}
        self._hooks = [
            optimizer.register_step_pre_hook(self._remember),
            optimizer.register_step_post_hook(self._look),
        ]

    def detach(self) -> None:
        """Stop watching; ``latest`` stays."""
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _elements(self, tensor: Tensor) -> Tensor:
        """Return some elements of a tensor, the same of each that has its shape, as reals."""
        tensor = tensor.detach()
        if self._max_elements is None or tensor.numel() <= self._max_elements:
            chosen = tensor.reshape(-1)
        else:
            chosen = tensor.take(_places(tensor.numel(), self._max_elements).to(tensor.device))
        if chosen.is_complex():
            chosen = torch.view_as_real(chosen.resolve_conj()).reshape(-1)
        return chosen.to("cpu", torch.promote_types(chosen.dtype, torch.float32))

    @torch.no_grad()
    def _remember(self, optimizer: Any, *_: object) -> None:
        """Before a step that is to be looked at: note where the parameters are."""
        if (self._steps + 1) % self._every == 0:
            for group in optimizer.param_groups:
                for param in group["params"]:
                    self._before[param] = self._elements(param).clone()

    @torch.no_grad()
    def _look(self, optimizer: Any, *_: object) -> None:
        """After the step: work out the statistics."""
        before, self._before = self._before, {}
        self._steps += 1
        found_inf = getattr(optimizer, "found_inf", None)
        if not before or (found_inf is not None and bool(found_inf)):
            return
        # Parameters of one group, dtype and step are looked at together: there may be hundreds.
        count, *_buffers = optimizer._recalled_keys
        parts: dict[Any, dict[str, Tensor]] = {}
        groups: dict[Any, Group] = {}
        for name, (group, param) in _named(optimizer).items():
            if param.grad is not None and param.numel() and param in before:
                key = id(group), float(optimizer.state[param][count]), before[param].dtype
                groups[key] = group
                parts.setdefault(key, {})[name] = param
        looks: dict[str, _Look] = {}
        for key, params in parts.items():
            looks |= self._look_at(optimizer, groups[key], key[1], params, before)
        if looks:
            self.latest = {
                "step": self._steps,
                "total": _statistics(list(looks.values())),
                "params": {name: _statistics([look]) for name, look in looks.items()},
            }
            if self._writer is not None:
                self._write(self._writer, looks)

    def _look_at(
        self,
        optimizer: Any,
        group: Group,
        step: float,
        params: dict[str, Tensor],
        before: dict[Tensor, Tensor],
    ) -> dict[str, _Look]:
        """Return what these parameters of one group show after the step of this number."""

        def column(tensors: Iterable[Tensor]) -> Tensor:
            return torch.cat([self._elements(tensor) for tensor in tensors])

        starts = torch.cat([before[param] for param in params.values()])
        ends = column(params.values())
        grads = column(param.grad for param in params.values() if param.grad is not None)
        grads = optimizer._seen(group, grads, starts)
        buffers = (
            column(optimizer.state[param][key] for param in params.values())
            for key in optimizer._recalled_keys[1:]
        )
        estimates, gains, residuals = optimizer._recalled(group, grads, step, *buffers)
        updates = ends - starts
        pairs = (
            (torch.ones_like(grads), torch.ones_like(grads)),
            (torch.zeros_like(grads) if gains is None else gains, torch.ones_like(grads)),
            *((grads, grads), (estimates, estimates), (grads, estimates)),
            *((residuals, residuals), (updates, updates), (starts, starts)),
        )
        products = torch.stack([x.double() * y for x, y in pairs])
        sizes = [len(before[param]) for param in params.values()]
        looks = {}
        for (name, param), product, gain in zip(
            params.items(),
            torch.split(products, sizes, dim=1),
            [None] * len(sizes) if gains is None else torch.split(gains, sizes),
            strict=True,
        ):
            weight = param.numel() * (2 if param.is_complex() else 1) / product.shape[1]
            ordered = None if gain is None else gain.sort().values
            looks[name] = _Look(weight * product.sum(1), ordered, weight)
        return looks

    def _write(self, writer: Writer, looks: dict[str, _Look]) -> None:
        for statistic, value in self.latest["total"].items():
            writer.add_scalar(f"sgdf/total/{statistic}", value, self._steps)
        for name, look in looks.items():
            for statistic, value in self.latest["params"][name].items():
                writer.add_scalar(f"sgdf/{statistic}/{name}", value, self._steps)
            if look.gains is not None and len(finite := look.gains[look.gains.isfinite()]):
                writer.add_histogram(f"sgdf/gain/{name}", finite, self._steps)


@functools.cache
def _places(size: int, count: int) -> Tensor:
    """Return where to look in a tensor of a size: everywhere, whatever the width of a matrix."""
    shares = torch.arange(1, count + 1, dtype=torch.float64) * _GOLDEN_RATIO % 1.0
    return (shares * size).long()


def _named(optimizer: Optimizer) -> dict[str, tuple[Group, Tensor]]:
    """Return groups and parameters by name; two of one name get that of their group, too."""
    rows: list[tuple[str, str, Group, Tensor]] = []
    for index, group in enumerate(optimizer.param_groups):
        names = group.get("param_names") or [
            f"group{index}.param{position}" for position in range(len(group["params"]))
        ]
        rows += zip(names, repeat(f"group{index}."), repeat(group), group["params"])
    times = Counter(name for name, *_ in rows)
    return {
        name if times[name] == 1 else prefix + name: (group, param)
        for name, prefix, group, param in rows
    }


def _statistics(looks: list[_Look]) -> Statistics:
    """Return the statistics of one or several parameters."""
    sums = torch.stack([look.sums for look in looks]).sum(0).tolist()
    of = dict(zip(_SUMS, sums, strict=True))
    statistics: Statistics = {}
    if all(look.gains is not None for look in looks):
        statistics["gain_mean"] = of["gain"] / of["count"]
        for quantile, value in zip(QUANTILES, _gain_quantiles(looks), strict=True):
            statistics[f"gain_q{round(100 * quantile):02}"] = value
    statistics["residual_rms"] = math.sqrt(of["residual²"] / of["count"])
    statistics["residual_ratio"] = _root_ratio(of["residual²"], of["grad²"])
    statistics["cosine"] = _ratio(
        of["grad·estimate"], math.sqrt(of["grad²"]) * math.sqrt(of["estimate²"])
    )
    statistics["update_ratio"] = _root_ratio(of["update²"], of["param²"])
    return statistics


def _gain_quantiles(looks: list[_Look]) -> list[float]:
    """Return the least gains that at least such shares of the elements do not exceed."""
    shown = [_thinned(look) for look in looks]
    gains, order = torch.cat([gains for gains, _ in shown]).sort()
    weights = torch.cat([torch.full_like(gains, weight) for gains, weight in shown])
    shares = weights[order].double().cumsum(0)
    ends = torch.tensor(QUANTILES, dtype=torch.float64) * shares[-1]
    places = torch.searchsorted(shares, ends).clamp_max(len(gains) - 1)
    return gains[places].tolist()


def _thinned(look: _Look) -> tuple[Tensor, float]:
    """Return some of a parameter's gains and what each stands for.

    To sort them all, of hundreds of parameters, takes longer than everything else.
    """
    assert look.gains is not None
    stride = max(1, len(look.gains) // 512)
    some = look.gains[stride // 2 :: stride]
    return some, look.weight * len(look.gains) / len(some)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


def _root_ratio(numerator: float, denominator: float) -> float:
    return math.sqrt(_ratio(numerator, denominator))
