"""Live statistics of a running optimizer: what the filter does to the gradients.

Monitoring does not change the training by a single bit: the statistics are computed after a
step, from the gradients and the state that it leaves, on a fixed selection of elements.
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
"""Values by name; ``attach`` lists the names."""


class Writer(Protocol):
    """The part of TensorBoard's ``SummaryWriter`` that the monitor needs."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any:
        """Record one number."""

    def add_histogram(self, tag: str, values: Tensor, global_step: int) -> Any:
        """Record the distribution of many numbers."""


def attach(
    optimizer: Optimizer,
    every: int = 50,
    *,
    writer: Writer | None = None,
    max_elements: int | None = 2048,
) -> Monitor:
    """Monitor an optimizer from its next step on.

    Every ``every``-th step is measured. ``monitor.latest`` has the statistics of the last one:
    it is empty before the first, then a dict with the number of the ``step`` since ``attach``,
    the statistics of all parameters together under ``total``, and those of each parameter under
    ``params``, by its name if the optimizer was given named parameters, else as
    ``group0.param0``:

    - ``gain_mean``, ``gain_q05``, ``gain_q25``, ``gain_q50``, ``gain_q75``, ``gain_q95``: the
      gain K before its power is taken, from 0 (the running mean counts) to 1 (the gradient
      counts);
    - ``residual_rms``: root mean square of the gradient's distance from its running mean, and
      ``residual_ratio``: this divided by the root mean square of the gradient;
    - ``cosine``: of the angle between the estimate and the gradient;
    - ``update_ratio``: norm of the parameter's change divided by the norm of the parameter.

    The gradient is the filter's input, including coupled decay. ``UnifiedMomentum`` has no
    gain; there the momentum is the estimate, and the running mean is the average that it holds.

    Args:
        optimizer: one of this package, or of a class from ``sgdf.filtered``.
        every: number of steps from one measurement to the next.
        writer: a TensorBoard ``SummaryWriter``; gets ``sgdf/total/...`` and, for each
            parameter, ``sgdf/<statistic>/<name>`` as scalars and ``sgdf/gain/<name>`` as a
            histogram.
        max_elements: number of elements of a parameter to measure, spread over all of it; None
            for all.

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
    """The measurement of one parameter."""

    sums: Tensor
    """Sums over all its elements, in the order of ``_SUMS``."""
    gains: Tensor | None
    """The gains of the measured elements, sorted."""
    weight: float
    """How many elements each measured one stands for."""


_SUMS = ("count", "gain", "grad²", "estimate²", "grad·estimate", "residual²", "update²", "param²")


class Monitor:
    """The handle that ``attach`` returns; as a context manager it detaches at the end."""

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
        """Stop monitoring; ``latest`` is kept."""
        for hook in self._hooks:
            hook.remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()

    def _elements(self, tensor: Tensor) -> Tensor:
        """Return some elements as reals: the same ones for all tensors of a shape."""
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
        """Before a step that will be measured: copy the values of the parameters."""
        if (self._steps + 1) % self._every == 0:
            for group in optimizer.param_groups:
                for param in group["params"]:
                    self._before[param] = self._elements(param).clone()

    @torch.no_grad()
    def _look(self, optimizer: Any, *_: object) -> None:
        """After the step: compute the statistics."""
        before, self._before = self._before, {}
        self._steps += 1
        found_inf = getattr(optimizer, "found_inf", None)
        if not before or (found_inf is not None and bool(found_inf)):
            return
        # Parameters of one group, dtype and step are measured together: there may be hundreds.
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
        """Return the measurements of these parameters of one group after step number ``step``."""

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
    """Return the indices to measure: spread evenly over a tensor of any shape."""
    shares = torch.arange(1, count + 1, dtype=torch.float64) * _GOLDEN_RATIO % 1.0
    return (shares * size).long()


def _named(optimizer: Optimizer) -> dict[str, tuple[Group, Tensor]]:
    """Return groups and parameters by name; a name that occurs twice gets its group as a prefix."""
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
    return some, look.weight * len(look.gains) / len(some)


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


def _root_ratio(numerator: float, denominator: float) -> float:
    return math.sqrt(_ratio(numerator, denominator))
