"""Problems whose constants are known: convex losses on a box, and smooth noisy functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .noise import SKEWED, SYMMETRIC, DiscreteNoise, Draws

UNEVEN_SLOPES = DiscreteNoise((10.5, -1.0), (0.1, 0.9))
"""Mean 0.15: a rare steep slope up, a frequent gentle one down."""


@dataclass(frozen=True)
class OnlineLosses:
    r"""Convex losses :math:`f_t(\theta) = \sum_i \ell(\theta_i, z_{t,i})` on a box.

    Attributes:
        name: what people call it.
        loss: :math:`\ell` of points and draws, element by element.
        gradient: its derivative with respect to the point, element by element.
        draws: the z of each step.
        box: the smallest and the largest value of a parameter; D is their difference.
        best: the value of every parameter that regret is measured against.
        start: the value of every parameter at step 1.
        gradient_bound: G, no element of a gradient is larger.
        dimension: d, the number of parameters.

    Raises:
        ValueError: if ``start`` or ``best`` is outside the box, or a bound is not positive.
    """

    name: str
    loss: Callable[[Tensor, Tensor], Tensor]
    gradient: Callable[[Tensor, Tensor], Tensor]
    draws: Draws
    box: tuple[float, float]
    best: float
    start: float
    gradient_bound: float
    dimension: int = 1

    def __post_init__(self) -> None:
        _check_place(self.box, self.start, self.gradient_bound, self.dimension)
        if not self.box[0] <= self.best <= self.box[1] or not all(map(math.isfinite, self.box)):
            raise ValueError(f"Invalid best {self.best}, or a box without end: {self.box}")

    @property
    def width(self) -> float:
        """D, the largest distance of two values of a parameter."""
        return self.box[1] - self.box[0]


@dataclass(frozen=True)
class SmoothFunction:
    r"""A smooth function with noisy gradients :math:`g_t = \nabla f(\theta_t) + \zeta_t`.

    Attributes:
        name: what people call it.
        value: f of points; the last axis has the parameters.
        gradient: its gradient, in the shape of the points.
        noise: the :math:`\zeta` of each step, independent of the past; its mean must be 0.
        infimum: inf f.
        smoothness: L, the Lipschitz constant of the gradient.
        gradient_bound: G, no element of a noisy gradient is larger.
        start: the value of every parameter at step 1.
        box: the smallest and the largest value of a parameter; infinite if there is no box. If
            there is one, f must not grow when a point outside is moved to the nearest one inside.
        dimension: d, the number of parameters.

    Raises:
        ValueError: if ``start`` is outside the box, a bound is not positive, or the noise has a
            mean other than 0.
    """

    name: str
    value: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]
    noise: Draws
    infimum: float
    smoothness: float
    gradient_bound: float
    start: float
    box: tuple[float, float] = (-math.inf, math.inf)
    dimension: int = 1

    def __post_init__(self) -> None:
        _check_place(self.box, self.start, self.gradient_bound, self.dimension)
        if abs(self.noise.mean) > 1e-12 * self.noise.bound:
            raise ValueError(f"Invalid noise, its mean is not 0: {self.noise.mean}")
        if not self.smoothness > 0.0:
            raise ValueError(f"Invalid smoothness, not positive: {self.smoothness}")


def linear_losses(
    slopes: Draws = UNEVEN_SLOPES,
    *,
    box: tuple[float, float] = (-1.0, 1.0),
    start: float = 0.0,
    dimension: int = 1,
) -> OnlineLosses:
    r"""Return :math:`f_t(\theta) = \langle z_t, \theta \rangle`, best at one end of the box.

    The default has a mean slope of 0.15, and is best at −1.

    Example:
        >>> from sgdf.theory import linear_losses
        >>> problem = linear_losses()
        >>> problem.best, problem.width, problem.gradient_bound
        (-1.0, 2.0, 10.5)
    """
    return OnlineLosses(
        name="linear losses",
        loss=torch.mul,
        gradient=lambda point, drawn: drawn,
        draws=slopes,
        box=box,
        best=box[0] if slopes.mean > 0.0 else box[1],
        start=start,
        gradient_bound=slopes.bound,
        dimension=dimension,
    )


def squared_losses(
    centres: Draws = SYMMETRIC,
    *,
    box: tuple[float, float] = (-5.0, 5.0),
    start: float = 5.0,
    dimension: int = 1,
) -> OnlineLosses:
    r"""Return :math:`f_t(\theta) = \tfrac12 \lVert\theta - z_t\rVert^2`, best at the mean of z.

    Example:
        >>> from sgdf.theory import squared_losses
        >>> squared_losses().gradient_bound  # 5 from the box, and 3 from the noise
        8.0
    """
    return OnlineLosses(
        name="squared losses",
        loss=lambda point, drawn: 0.5 * (point - drawn).square(),
        gradient=torch.sub,
        draws=centres,
        box=box,
        best=min(max(centres.mean, box[0]), box[1]),
        start=start,
        gradient_bound=max(map(abs, box)) + centres.bound,
        dimension=dimension,
    )


def noisy_quadratic(
    noise: Draws = SKEWED,
    *,
    box: tuple[float, float] = (-5.0, 5.0),
    start: float = 3.0,
    dimension: int = 1,
) -> SmoothFunction:
    r"""Return :math:`f(\theta) = \tfrac12 \lVert\theta\rVert^2` on a box around 0: L is 1.

    Example:
        >>> from sgdf.theory import noisy_quadratic
        >>> noisy_quadratic().gradient_bound
        14.0
    """
    if not box[0] <= 0.0 <= box[1]:
        raise ValueError(f"Invalid box, the minimum at 0 is outside: {box}")
    return SmoothFunction(
        name="quadratic",
        value=lambda point: 0.5 * point.square().sum(-1),
        gradient=lambda point: point,
        noise=noise,
        infimum=0.0,
        smoothness=1.0,
        gradient_bound=max(map(abs, box)) + noise.bound,
        start=start,
        box=box,
        dimension=dimension,
    )


def noisy_logarithm(
    noise: Draws = SKEWED, *, start: float = 3.0, dimension: int = 1
) -> SmoothFunction:
    r"""Return :math:`f(\theta) = \sum_i \ln(1 + \theta_i^2)`: not convex, without a box, L is 2.

    The derivative of an element, :math:`2\theta / (1 + \theta^2)`, is at most 1; the second one is
    between −¼ and 2.

    Example:
        >>> from sgdf.theory import noisy_logarithm
        >>> noisy_logarithm().gradient_bound
        10.0
    """
    return SmoothFunction(
        name="logarithm",
        value=lambda point: point.square().log1p().sum(-1),
        gradient=lambda point: 2.0 * point / (1.0 + point.square()),
        noise=noise,
        infimum=0.0,
        smoothness=2.0,
        gradient_bound=1.0 + noise.bound,
        start=start,
        dimension=dimension,
    )


def _check_place(box: tuple[float, float], start: float, bound: float, dimension: int) -> None:
    if not box[0] <= start <= box[1]:
        raise ValueError(f"Invalid start {start}, outside the box {box}")
    if not (bound > 0.0 and math.isfinite(bound)):
        raise ValueError(f"Invalid gradient_bound, not a positive number: {bound}")
    if dimension < 1:
        raise ValueError(f"Invalid dimension, less than 1: {dimension}")
