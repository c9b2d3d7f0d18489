"""Tensors for the tests of the native step: random ones in every layout, and simple ones."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import strategies as st

from cases import CASES, describe

ELEMENTWISE = [case for case in CASES if case.fused and not case.orthogonal]
each_elementwise = pytest.mark.parametrize("case", ELEMENTWISE, ids=describe)
each_filter = pytest.mark.parametrize(
    "case", [case for case in ELEMENTWISE if "gamma" in case.arguments], ids=describe
)


def takes_native_step(optimizer):
    """Return whether the last step was native."""
    return bool(optimizer._native.tables)


def random_parameter(shape=(4, 3, 2, 2)):
    """Return a parameter with memory of its own."""
    return torch.nn.Parameter(torch.randn(shape))


def filled(*shapes):
    """Return parameters of ones, with gradients of ones."""
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    for param in params:
        param.grad = torch.ones_like(param)
    return params


# Random tensors.

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.complex128,
]
LAYOUTS = [
    *("contiguous", "permuted", "channels_last", "reversed halves") * 4,
    "with gaps",  # rare: a single one sends its whole group to foreach
]
GRAD_LAYOUTS = ["as autograd", "contiguous", "permuted", "expanded", "with gaps", "lazy", "wide"]


@dataclass(frozen=True)
class Recipe:
    """How to make one parameter and its gradients."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: str
    grad_layout: str
    shares: bool
    """Lies in the memory of the parameter before it."""
    rests: bool
    """Has no gradient at the second step."""


small_shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
recipes = st.builds(
    Recipe,
    # One in four is large enough for several threads: more take more time and show no more.
    shape=st.one_of(*[small_shapes] * 3, st.integers(30_000, 70_000).map(lambda size: (size,))),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    grad_layout=st.sampled_from(GRAD_LAYOUTS),
    shares=st.sampled_from([False] * 19 + [True]),
    rests=st.booleans(),
)


def laid_out(values, layout):
    """Return a tensor of the same values whose elements lie otherwise in memory."""
    shape = values.shape
    if layout == "permuted":
        order = list(range(values.dim()))[::-1]
        return values.permute(order).contiguous().permute(order)
    if layout == "channels_last" and values.dim() == 4:
        return values.contiguous(memory_format=torch.channels_last)
    if layout == "with gaps" and values.dim():
        wide = torch.zeros(*shape[:-1], 2 * shape[-1], dtype=values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    if layout == "reversed halves" and values.dim():  # a view into a larger tensor
        return torch.cat([values, values])[len(values) :]
    return values.clone(memory_format=torch.contiguous_format)


def random_values(shape, dtype, generator):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    return torch.randn(shape, generator=generator, dtype=wide).to(dtype)


def make_gradient(recipe, param, generator):
    """Return a gradient for ``param`` that lies in memory as the recipe says."""
    values = random_values(param.shape, recipe.dtype, generator)
    if recipe.grad_layout == "as autograd":
        return torch.empty_like(param).copy_(values)
    if recipe.grad_layout == "expanded":
        return torch.ones((), dtype=recipe.dtype).expand(param.shape)
    if recipe.grad_layout == "lazy":
        if recipe.dtype.is_complex:
            return values.conj()
        if recipe.dtype in (torch.float32, torch.float64):
            return torch.complex(values, -values).conj().imag  # to be negated when read
    if recipe.grad_layout == "wide" and recipe.dtype in (torch.bfloat16, torch.float16):
        param.grad_dtype = torch.float32
        return values.float() + 1e-3
    return laid_out(values, recipe.grad_layout)


def make_parameters(recipes, seed):
    """Return parameters; equal seeds give equal ones in separate memory."""
    generator = torch.Generator().manual_seed(seed)
    params = []
    for recipe in recipes:
        data = laid_out(random_values(recipe.shape, recipe.dtype, generator), recipe.layout)
        before = params[-1] if params else None
        if recipe.shares and before is not None and before.dtype == recipe.dtype:
            data = before.detach()  # the same elements, in another parameter
        params.append(torch.nn.Parameter(data))
    return params


def tolerance(dtype):
    return {torch.float64: 1e-12, torch.complex128: 1e-12}.get(
        dtype, torch.finfo(dtype).eps * 4 if dtype.itemsize == 2 else 1e-6
    )
