"""The gradient's norm on smooth functions: measured, and a bound that holds for every β₁."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from .descent import Descent, check_copies, check_horizons, spread_horizons, visits
from .distance import distance_bound
from .problems import SmoothFunction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Steps = NDArray[np.int64]


class StationarityCurve(NamedTuple):
    """What ``stationarity`` measures; each array has a value for each horizon."""

    steps: Steps
    """The horizons T."""
    smallest: Array
    """The smallest measured E‖∇f(θ_t)‖² among t ≤ T, for the paper's E(T).

    Every one of them is a mean over copies and has an error, so that the smallest of many is biased
    low. ``last`` is not, and has its ``error``.
    """
    mean: Array
    """The mean of E‖∇f(θ_t)‖² over t ≤ T, weighted by the learning rates: what is bounded."""
    last: Array
    """E‖∇f(θ_T)‖²."""
    error: Array
    """The standard error of ``last``; NaN for one copy."""
    point: Array
    """The parameter at step T, the mean over copies and parameters."""
    bound: Array
    """``stationarity_bound``."""


def stationarity(
    function: SmoothFunction,
    descent: Descent,
    *,
    steps: int | Sequence[int] = 10_000,
    copies: int = 256,
    seed: int = 0,
) -> StationarityCurve:
    r"""Measure how small the gradient gets where descent follows the filter's estimate.

    :math:`\mathrm E\lVert\nabla f(\theta_t)\rVert^2` is estimated by the mean over copies.

    Args:
        function: the function.
        descent: how the parameters move.
        steps: the largest horizon, or a list of horizons.
        copies: how many independent runs are averaged; they are elements of one tensor.
        seed: where the draws begin.

    Raises:
        ValueError: if there are no steps or no copies.

    Example:
        >>> from sgdf.theory import Descent, noisy_quadratic, stationarity
        >>> for gamma in (0.0, 0.5):  # SGD, and SGDF with a constant power
        ...     found = stationarity(noisy_quadratic(), Descent(lr=0.5, gamma=gamma), steps=2000)
        ...     print(f"{found.mean[-1]:.2f} {found.last[-1]:.2f} {found.point[-1]:.2f}")
        0.35 0.05 -0.01
        0.42 0.13 0.31
    """
    horizons = spread_horizons(steps)
    check_copies(copies)
    own_copies = descent.schedule == "horizon"
    places = {int(t): place for place, t in enumerate(horizons)}
    squares = torch.empty(horizons[-1], len(horizons) if own_copies else 1, dtype=torch.float64)
    errors, points = [], []
    for visit in visits(function, descent, horizons, copies, seed):
        norms = function.gradient(visit.point).square().sum(-1)
        squares[visit.step - 1] = norms.mean(-1)
        place = places.get(visit.step)
        if place is not None:
            row = place if own_copies else 0
            errors.append(norms[row].std().item() / copies**0.5 if copies > 1 else np.nan)
            points.append(visit.point[row].mean().item())
    smallest, mean, last = [], [], []
    for place, horizon in enumerate(horizons.tolist()):
        path = squares[:horizon, place if own_copies else 0].numpy()
        smallest.append(path.min())
        mean.append(np.average(path, weights=descent.rates(horizon)))
        last.append(path[-1])
    return StationarityCurve(
        steps=horizons,
        smallest=np.asarray(smallest),
        mean=np.asarray(mean),
        last=np.asarray(last),
        error=np.asarray(errors),
        point=np.asarray(points),
        bound=stationarity_bound(function, descent, horizons),
    )


def stationarity_bound(
    function: SmoothFunction, descent: Descent, horizons: int | Sequence[int] | Steps
) -> Array:
    r"""Return bounds on the mean of the squared gradients, and so on the smallest.

    Let the noise have mean 0 given the past, every element of a noisy gradient be at most G, and f
    be L-smooth and bounded below. For all :math:`\beta_1, \beta_2 \in [0, 1)`:

    .. math::
        \min_{t \le T} \mathrm E\lVert\nabla f(\theta_t)\rVert^2
        \le \frac{\sum_t \alpha_t \mathrm E\lVert\nabla f(\theta_t)\rVert^2}{\sum_t \alpha_t}
        \le \frac{2(f(\theta_1) - \inf f) + L d G^2 \sum_t \alpha_t^2
        + d \sum_t \alpha_t b_t^2}{\sum_t \alpha_t}

    with the :math:`b_t` of ``distance_bound``, which is what a filter can add to SGD. Proof: with
    :math:`\hat g = g - e`, smoothness and :math:`|\hat g_i| \le G` give
    :math:`\mathrm E f(\theta_{t+1}) \le \mathrm E f(\theta_t) - \alpha_t\mathrm E\lVert\nabla
    f\rVert^2 + \alpha_t\mathrm E\langle\nabla f, e_t\rangle + \tfrac12 L\alpha_t^2 d G^2`, and
    :math:`\langle\nabla f, e\rangle \le \tfrac12\lVert\nabla f\rVert^2 + \tfrac12\lVert
    e\rVert^2`. Sum over t.

    With :math:`\gamma_t = \gamma_0/\sqrt t` it is :math:`O(\log T/\sqrt T) + d\varepsilon` for
    rates :math:`\alpha/\sqrt t`, and :math:`O(1/\sqrt T) + d\varepsilon` for
    :math:`\alpha/\sqrt T`. With a constant power it does not fall below a constant.

    Args:
        function: has L, G, d, inf f and the start.
        descent: has the rates and the filter's options.
        horizons: the horizons T, in order.

    Example:
        >>> from sgdf.theory import Descent, noisy_logarithm, stationarity_bound
        >>> fading = Descent(lr=0.5, gamma=0.5, gamma_decay=0.5)
        >>> stationarity_bound(noisy_logarithm(), fading, [100, 10_000, 1_000_000]).round(1)
        array([213.5,  31.9,   3.5])
    """
    horizons = check_horizons(horizons)
    start = torch.full((function.dimension,), function.start, dtype=torch.float64)
    drop = 2.0 * (function.value(start).item() - function.infimum)
    size = function.gradient_bound
    squares = distance_bound(int(horizons[-1]), size, descent) ** 2
    bounds = []
    for horizon in horizons.tolist():
        rates = descent.rates(horizon)
        noise = function.smoothness * size**2 * (rates**2).sum()
        added = (rates * squares[:horizon]).sum()
        bounds.append((drop + function.dimension * (noise + added)) / rates.sum())
    return np.asarray(bounds)
