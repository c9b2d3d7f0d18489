"""The filter along given gradients, step by step, in NumPy and float64."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ..filter import check_filter_options, filter_gradient, filter_scalars, power

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


class FilteredStep(NamedTuple):
    """One step of the filter, in NumPy."""

    estimate: Array
    """The filtered gradient."""
    gain: Array
    """K, before its power is taken."""
    powered_gain: Array
    """K to the power of this step, which is the weight of the gradient."""
    mean: Array
    """The bias-corrected running mean."""


def filter_steps(
    gradients: Iterable[ArrayLike],
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    gamma: float = 0.5,
    gamma_decay: float = 0.0,
    eps: float = 0.0,
) -> Iterator[FilteredStep]:
    """Filter gradients one after the other, from the first step on.

    Args:
        gradients: arrays of one shape.
        betas: of the filter.
        gamma: of the filter.
        gamma_decay: of the filter.
        eps: of the filter. It is 0 here, so that nothing depends on the gradients' unit.

    Yields:
        What the filter makes of each gradient.

    Example:
        >>> from sgdf.theory import filter_steps
        >>> [step.estimate.round(3).tolist() for step in filter_steps([[1.0], [-1.0], [1.0]])]
        [[1.0], [-0.179], [0.479]]
    """
    check_filter_options(betas, eps, gamma, gamma_decay, "paper")
    mean = var = torch.zeros(())
    for step, gradient in enumerate(gradients, start=1):
        grad = torch.tensor(np.asarray(gradient, dtype=np.float64))
        if step == 1:
            mean = var = torch.zeros_like(grad)
        out = filter_gradient(
            grad, mean, var, step, betas=betas, eps=eps, gamma=gamma, gamma_decay=gamma_decay
        )
        mean, var = out.mean, out.var
        exponent = filter_scalars(
            step, betas=betas, gamma=gamma, gamma_decay=gamma_decay, correction="paper"
        ).exponent
        yield FilteredStep(
            estimate=out.estimate.numpy(),
            gain=out.gain.numpy(),
            powered_gain=power(out.gain, exponent).numpy(),
            mean=(mean / (1.0 - betas[0] ** step)).numpy(),
        )
