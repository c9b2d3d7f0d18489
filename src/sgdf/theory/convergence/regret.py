"""Regret on convex losses: measured, and what Theorem 3.2 of the paper allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from .descent import Descent, check_copies, check_horizons, spread_horizons, visits
from .distance import distance_bound
from .problems import OnlineLosses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Steps = NDArray[np.int64]


class RegretCurve(NamedTuple):
    """What ``regret`` measures; each array has a value for each horizon."""

    steps: Steps
    """The horizons T."""
    average: Array
    """R(T)/T, the mean over copies."""
    error: Array
    """Its standard error; NaN for one copy."""
    point: Array
    """The parameter at step T, the mean over copies and parameters."""
    variation: Array
    """The total variation of the powered gain up to T, summed over parameters, mean of copies."""
    bound: Array
    """``regret_bound`` with this variation, divided by T."""
    distance_bound: Array
    """``regret_bound`` without it, divided by T."""


def regret(
    problem: OnlineLosses,
    descent: Descent,
    *,
    steps: int | Sequence[int] = 10_000,
    copies: int = 256,
    seed: int = 0,
) -> RegretCurve:
    r"""Measure the average regret of descent on the filter's estimate, beside its bounds.

    .. math::
        R(T) = \sum_{t=1}^T f_t(\theta_t) - f_t(\theta^*)

    with :math:`\theta^*` the problem's ``best``.

    Args:
        problem: the losses.
        descent: how the parameters move.
        steps: the largest horizon, or a list of horizons.
        copies: how many independent runs are averaged; they are elements of one tensor.
        seed: where the draws begin.

    Raises:
        ValueError: if there are no steps or no copies.

    Example:
        >>> from sgdf.theory import Descent, linear_losses, regret
        >>> for gamma in (0.0, 0.5):  # SGD, and SGDF with a constant power
        ...     found = regret(linear_losses(), Descent(lr=0.2, gamma=gamma), steps=2000)
        ...     print(f"{found.average[-1]:.2f} {found.point[-1]:+.1f}")
        0.07 -0.8
        0.28 +0.9
    """
    horizons = spread_horizons(steps)
    check_copies(copies)
    own_copies = descent.schedule == "horizon"
    places = {int(t): place for place, t in enumerate(horizons)}
    totals, variations, points = [], [], []
    best = torch.tensor(problem.best, dtype=torch.float64)
    total = variation = torch.zeros(())
    gain = None
    for visit in visits(problem, descent, horizons, copies, seed):
        difference = problem.loss(visit.point, visit.drawn) - problem.loss(best, visit.drawn)
        total = total + difference
        if gain is not None:
            variation = variation + (visit.gain - gain).abs()
        gain = visit.gain
        place = places.get(visit.step)
        if place is not None:
            row = place if own_copies else 0
            totals.append(total[row].sum(-1))
            variations.append((variation + torch.zeros_like(total))[row].sum(-1))
            points.append(visit.point[row].mean().item())
    regrets = torch.stack(totals).numpy() / horizons[:, None]
    error = np.full(len(horizons), np.nan)
    if copies > 1:
        error = regrets.std(axis=1, ddof=1) / np.sqrt(copies)
    mean_variation = torch.stack(variations).mean(-1).numpy()
    return RegretCurve(
        steps=horizons,
        average=regrets.mean(axis=1),
        error=error,
        point=np.asarray(points),
        variation=mean_variation,
        bound=regret_bound(problem, descent, horizons, mean_variation) / horizons,
        distance_bound=regret_bound(problem, descent, horizons) / horizons,
    )


def regret_bound(
    problem: OnlineLosses,
    descent: Descent,
    horizons: int | Sequence[int] | Steps,
    variation: float | Array | None = None,
) -> Array:
    r"""Return bounds on the regret R(T), for every sequence of losses and every point of the box.

    With the variation of the powered gain :math:`\tilde K_t = K_t^{\gamma_t}` it is the paper's
    (Theorem 3.2), for any rates that do not grow:

    .. math::
        R(T) \le d\left(\frac{D^2}{2\alpha_T} + \frac{G^2}{2}\,\frac{1+\beta_1}{1-\beta_1}
        \sum_{t=1}^T \alpha_t\right) + \frac{\beta_1 G D}{1-\beta_1}\left(2d + \sum_{i=1}^d
        \sum_{t=1}^{T-1} |\tilde K_{t+1,i} - \tilde K_{t,i}|\right)

    The printed bound is that with :math:`\sum_t \alpha_t \le 2\alpha\sqrt T`. Without the
    variation it is, by the :math:`b_t` of ``distance_bound``,

    .. math::
        R(T) \le d\left(\frac{D^2}{2\alpha_T} + \frac{G^2}{2} \sum_{t=1}^T \alpha_t
        + D \sum_{t=1}^T b_t\right),

    because :math:`g_t (\theta_t - \theta^*) \le \hat g_t (\theta_t - \theta^*) + D\,b_t` in each
    element, and the first part telescopes as for SGD.

    Args:
        problem: has D, G and d.
        descent: has the rates and the filter's options.
        horizons: the horizons T, in order.
        variation: the double sum for each horizon.

    Example:
        >>> from sgdf.theory import Descent, linear_losses, regret_bound
        >>> fading = Descent(lr=0.2, gamma=0.5, gamma_decay=0.5)
        >>> regret_bound(linear_losses(), fading, [100, 10_000]).round()
        array([ 2783., 48206.])
    """
    horizons = check_horizons(horizons)
    size, width, beta1 = problem.gradient_bound, problem.width, descent.betas[0]
    rates = [descent.rates(int(t)) for t in horizons]
    telescope = np.array([width**2 / (2.0 * rate[-1]) for rate in rates])
    squares = np.array([0.5 * size**2 * rate.sum() for rate in rates])
    if variation is None:
        distances = distance_bound(int(horizons[-1]), size, descent).cumsum()[horizons - 1]
        return np.asarray(problem.dimension * (telescope + squares + width * distances))
    momentum = beta1 * size * width / (1.0 - beta1)
    smooth = telescope + squares * (1.0 + beta1) / (1.0 - beta1)
    fixed = problem.dimension * (smooth + 2.0 * momentum)
    return np.asarray(fixed + momentum * np.asarray(variation))
