"""Random directions in the space of a network's parameters, scaled filter by filter.

A network with BatchNorm or ReLU computes the same if the weights of a layer are scaled
and those of the next one scaled back. So a step of a given length says nothing unless it is
measured against the weights themselves: each filter of a direction gets the norm that this filter
has in the network (Li et al., 2018).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from ...bench.training.randomness import derived_seed

Direction = Mapping[str, Tensor]
"""A tensor for each parameter that is trained, by its name."""
Vectors = Literal["zero", "scaled"]
"""What a direction has for biases, BatchNorm and other vectors: zeros, or random numbers
of the norm that the vector has in the network."""


def random_direction(
    model: nn.Module, seed: int, number: int, vectors: Vectors = "zero"
) -> Direction:
    """Return a random direction whose filters have the norms of the network's filters.

    The normal random numbers depend on the seed, the number and the shapes of the parameters: two
    networks of the same shapes get the same ones, each scaled to its own weights.

    Args:
        model: the network.
        seed: of all directions of an analysis.
        number: which one of them.
        vectors: what is done with tensors of fewer than two dimensions.
    """
    generator = torch.Generator().manual_seed(derived_seed(seed, number))
    direction = {}
    for name, weight in trained_parameters(model).items():
        # On the CPU and in single precision, so that they are the same for every network.
        drawn = torch.randn(weight.shape, generator=generator).to(weight)
        direction[name] = scale_filters(drawn, weight.detach(), vectors)
    return direction


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, by name; weights that are shared come once."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def scale_filters(drawn: Tensor, weight: Tensor, vectors: Vectors = "zero") -> Tensor:
    """Return random numbers with each filter scaled to the norm of the weight's filter.

    A filter is what belongs to one index of the first dimension. A vector has none: it is set to
    zero, or scaled as a whole.

    >>> weight = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> scale_filters(torch.tensor([[0.0, 2.0], [1.0, 1.0]]), weight)
    tensor([[0., 5.],
            [0., 0.]])
    """
    if weight.ndim < 2 and vectors == "zero":
        return torch.zeros_like(weight)
    rows = (len(weight), -1) if weight.ndim >= 2 else (1, -1)
    drawn_rows, weight_rows = drawn.reshape(rows), weight.reshape(rows)
    norms = drawn_rows.norm(dim=1, keepdim=True)
    factors = weight_rows.norm(dim=1, keepdim=True) / torch.where(norms > 0.0, norms, 1.0)
    return torch.mul(factors, drawn_rows).view_as(weight)


def inner_product(first: Direction, second: Direction) -> float:
    """Return the inner product of two directions, summed in double precision."""
    return math.fsum(
        torch.dot(part.flatten().double(), second[name].flatten().double()).item()
        for name, part in first.items()
    )


def cosine(first: Direction, second: Direction) -> float:
    """Return the cosine of the angle between two directions; NaN if one of them is zero."""
    length = math.sqrt(inner_product(first, first) * inner_product(second, second))
    return inner_product(first, second) / length if length else math.nan
