"""The gradient penalty of a Wasserstein critic (Gulrajani et al., 2017)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Critic = Callable[[Tensor], Tensor]
"""Returns a score for each image of a batch."""


def gradient_penalty(critic: Critic, real: Tensor, fake: Tensor, mix: Tensor) -> Tensor:
    """Return the mean of (‖∇D(x)‖₂ - 1)² over points x between real and fake images.

    The result can be differentiated by the critic's parameters. Where the critic normalises by the
    batch, ∇D(x) is the gradient of the sum of all scores: a point then also has the part that it
    has in the scores of others.

    Args:
        critic: D. It is computed without autocast: what a second backward pass through BatchNorm
            computes with is beyond the range of float16.
        real: images.
        fake: as many, without a graph.
        mix: the share of the real image in each point, of a shape like (n, 1, 1, 1).
    """
    points = (mix * real + (1 - mix) * fake).requires_grad_()
    with torch.autocast(points.device.type, enabled=False):
        (slopes,) = torch.autograd.grad(critic(points).sum(), points, create_graph=True)
    norms: Tensor = torch.linalg.vector_norm(slopes.flatten(1), dim=1)
    return (norms - 1).square().mean()
