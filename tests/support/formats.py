"""State formats: who has which, tensors that are large enough for them, and steps on them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cases import CASES, Case, describe
from sgdf.optim.base import BaseOptimizer

FORMATS = ("full", "bfloat16", "int8", "block", "bfloat16-block", "int8-block")
WITH_CODES = ("int8", "int8-block")
WITH_NOISE = ("bfloat16", "int8", "bfloat16-block", "int8-block")
SHARING = ("block", "bfloat16-block", "int8-block")
PATHS: dict[str, dict[str, Any]] = {
    "native": {},
    "foreach": {"foreach": True},
    "loop": {"foreach": False},
    "foreach-capturable": {"foreach": True, "capturable": True},
    "loop-capturable": {"foreach": False, "capturable": True},
}
HALVES = (torch.bfloat16, torch.float16)

ROWS = [(case, name) for case in CASES for name in case.formats]
each_row = pytest.mark.parametrize(("case", "state_format"), ROWS, ids=describe)
each_format = pytest.mark.parametrize("state_format", FORMATS)
each_small = pytest.mark.parametrize("state_format", FORMATS[1:])
each_step_path = pytest.mark.parametrize("path", ["native", "foreach", "loop"])

SHAPES = ((64, 80), (4200,), (17, 300), (12, 40, 3, 3), (200, 30), (7, 5), (3,))
"""Rows of one block, of several, of a short one; one with short rows, and two small tensors."""


def draw_like(param: torch.Tensor, seed: int, *numbers: int) -> torch.Tensor:
    """Return a gradient that depends on the seed and the numbers, its sizes over some decades.

    The values do not depend on the dtype and the layout of ``param``.
    """
    generator = torch.Generator().manual_seed(hash((seed, *numbers)) & 0xFFFFFFFF)
    fixed = torch.Generator().manual_seed(hash((seed, *numbers[1:])) & 0xFFFFFFFF)
    size = torch.exp(torch.randn(param.shape, generator=fixed))
    mean = 0.3 * torch.randn(param.shape, generator=fixed)
    grad = size * (mean + torch.randn(param.shape, generator=generator))
    return torch.empty_like(param).copy_(grad)


def parameters(
    shapes: tuple[tuple[int, ...], ...] = SHAPES, dtype: torch.dtype = torch.float32
) -> list[torch.nn.Parameter]:
    """Return the same parameters at every call, in memory of their own."""
    generator = torch.Generator().manual_seed(7)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes
    ]


def take_steps(
    optimizer: torch.optim.Optimizer,
    steps: int,
    first: int = 0,
    seed: int = 0,
    rests: bool = False,
) -> None:
    """Take steps with gradients that only depend on their number and the parameter's.

    With ``rests`` a third of the parameters has none at each step.
    """
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for step in range(first, first + steps):
        for index, param in enumerate(params):
            is_missing = rests and (step + index) % 3 == 1
            param.grad = None if is_missing else draw_like(param, seed, step, index)
        optimizer.step()


def state_bytes(optimizer: torch.optim.Optimizer, param: torch.Tensor) -> int:
    """Return how many bytes the state of a parameter takes."""
    return sum(value.nbytes for value in optimizer.state[param].values())


def ordered_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return integers of which neighbouring codes and halves have neighbouring ones."""
    if tensor.dtype in HALVES:
        bits = tensor.contiguous().view(torch.int16).long()
        return torch.where(bits < 0, -(bits & 0x7FFF), bits)
    return tensor.long()


def is_rounded(tensor: torch.Tensor) -> bool:
    """Return whether these are codes or halves."""
    return tensor.dtype in (*HALVES, torch.int8, torch.uint8)


def build(case: Case, params: Any, path: str, **options: Any) -> torch.optim.Optimizer:
    """Construct the optimizer of ``case`` so that it takes a path of ``PATHS``."""
    if isinstance(options.get("lr"), torch.Tensor):
        options["lr"] = options["lr"].clone()
    optimizer = case.make(params, **PATHS[path], **options)
    if "capturable" in path:
        optimizer._check_step = lambda: None  # which refuses the CPU
    return optimizer


def assert_alike(ours: Any, theirs: Any, flips: float = 1e-3, rtol: float = 1e-4) -> None:
    """Compare parameters, or states, of two paths: all but a share of their elements agree.

    Paths differ in the last bits of float32, so that here and there another code is the nearest
    one, or the noise decides otherwise. Such a flip also changes the numbers that follow from it.
    """
    for a, b in zip(ours, theirs, strict=True):
        entries = (a, b) if isinstance(a, dict) else ({"": a.detach()}, {"": b.detach()})
        assert entries[0].keys() == entries[1].keys()
        for key, x in entries[0].items():
            y = entries[1][key]
            assert (x.dtype, x.shape) == (y.dtype, y.shape), key
            if is_rounded(x):
                apart = ordered_bits(x) != ordered_bits(y)
            else:
                size = x.abs().max().item() if x.numel() else 0.0
                apart = ~torch.isclose(x, y, rtol=rtol, atol=1e-2 * rtol * size, equal_nan=True)
            allowed = max(flips * apart.numel(), 2.0 if is_rounded(x) else 1.0)
            assert apart.sum().item() <= allowed, (key, x.dtype, tuple(x.shape))


def states(optimizer: torch.optim.Optimizer) -> list[dict[str, torch.Tensor]]:
    """Return the states of all parameters, in their order."""
    return [optimizer.state[p] for group in optimizer.param_groups for p in group["params"]]


def stored_numbers(optimizer, group, param):
    """Return the step count and the filter's buffers, decoded, in the parameter's shape."""
    if isinstance(optimizer, BaseOptimizer):
        return BaseOptimizer._recalled_state(optimizer, group, param)
    return optimizer._recalled_state(group, param)
