"""The number of arithmetic operations of an optimizer per parameter element.

Counted, not derived: a step is run, and every elementwise kernel that torch dispatches is
counted in the units of the paper (Table "Arithmetic cost and operation breakdown").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from ... import SGDF
from ...bench.paper.published import column

SYMBOLS = ("×", "+", "−", "÷", "√", "other")
"""The paper's units; ``other`` are operations it does not count: comparisons, general powers."""


@dataclass(frozen=True)
class Row:
    """One optimizer: our counts, and the paper's."""

    optimizer: str
    decay: str
    counted: Mapping[str, int]
    published: tuple[int, ...]
    """The paper's total as written, and the one after simplification if it has one."""

    @property
    def total(self) -> int:
        """The number to compare with the paper's."""
        return sum(count for symbol, count in self.counted.items() if symbol != "other")


def count_operations(build: Callable[[list[Tensor]], Optimizer]) -> dict[str, int]:
    """Return the operations per element of the second step, by symbol.

    Args:
        build: makes the optimizer from a list of one parameter, in its loop over tensors.
    """
    param = torch.nn.Parameter(torch.ones(7))
    optimizer = build([param])
    for mode in (_Count(param.numel()), _Count(param.numel())):
        param.grad = torch.full_like(param, 0.5)  # the first step creates the state
        with mode:
            optimizer.step()
    return {symbol: mode.counts[symbol] for symbol in SYMBOLS if mode.counts[symbol]}


class _Count(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's hook for subclasses
    def __init__(self, size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.size = size
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.numel() == self.size:
            name = func.overloadpacket.__name__.removesuffix("_")
            self.counts.update(units_of(name, args, kwargs or {}))
        return result


_MOVES = {"copy", "clone", "detach", "_to_copy", "zeros_like", "empty_like", "alias", "view"}
_UNITS = {
    "mul": "×",
    "add": "+",
    "sub": "−",
    "rsub": "−",
    "neg": "−",
    "div": "÷",
    "reciprocal": "÷",
    "sqrt": "√",
    "square": "×",
    "lerp": "−×+",
    "addcmul": "×+",
    "addcdiv": "÷+",
}
_OTHER = {"clamp_min", "maximum", "abs", "sign"}
_FACTORS = {"add": "alpha", "sub": "alpha", "addcmul": "value", "addcdiv": "value"}


def units_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Return the operations of one kernel."""
    if name in _MOVES:
        return []
    if name in _OTHER:
        return ["other"]
    if name == "pow":
        return list({0.5: "√", 2: "×", 1: ""}.get(args[1], ["other"]))
    if name not in _UNITS:
        raise NotImplementedError(f"no unit is known for the operation {name}")
    factor = kwargs.get(_FACTORS.get(name, ""), 1)
    # A minus sign alone is free: a + (-1) b is a subtraction.
    return [*_UNITS[name], *(["×"] if abs(factor) != 1 else [])]


def published_operations(optimizer: str, decay: str) -> tuple[int, ...]:
    """Return the paper's count as written, and the simplified one if it has one."""
    printed = {
        name: column("tab:optimizer_flops", name).values
        for name in ("As written", "Simplified", "Coupled decay adds", "Decoupled decay adds")
    }
    added = printed.get(f"{decay.capitalize()} decay adds", {}).get(optimizer, (0,))[0]
    counts = (printed[form].get(optimizer) for form in ("As written", "Simplified"))
    return tuple(int(count[0] + added) for count in counts if count)


def operation_table() -> list[Row]:
    """Return the counts of the optimizers in the paper's table."""
    optimizers: dict[str, Callable[..., Optimizer]] = {
        "SGD": partial(torch.optim.SGD, lr=0.1),
        "SGDM": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "Adam": torch.optim.Adam,
        "SGDF": SGDF,
    }
    decays = {
        "none": {},
        "coupled": {"weight_decay": 0.1},
        "decoupled": {"weight_decay": 0.1, "decoupled_weight_decay": True},
    }
    return [
        Row(
            optimizer=name,
            decay=decay,
            counted=count_operations(partial(build, foreach=False, **options)),
            published=published_operations(name, decay),
        )
        for name, build in optimizers.items()
        for decay, options in decays.items()
        if decay != "decoupled" or name in ("Adam", "SGDF")  # torch's SGD has no such option
    ]
