"""The law of momentum and parameters on a quadratic, stationary and on the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .rule import Model, Rule, check_model, check_number, weight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Values = float | Array


class MomentumMoments(NamedTuple):
    """Means, variances and covariance of m and θ: numbers, or arrays over t = 0 … ``steps``."""

    mean_m: Values
    """E m_t."""
    mean_theta: Values
    """E θ_t."""
    var_m: Values
    """Var m_t."""
    var_theta: Values
    """Var θ_t."""
    cov: Values
    """The covariance of m_t with the θ whose gradient it took last: θ_{t-1} in the recursion,
    θ(t) in continuous time. That with θ_t in the recursion is smaller by α Var m_t."""


class MomentumError(NamedTuple):
    """How far m is from the gradient that it estimates: numbers, or arrays over t."""

    bias: Values
    """E(m_t - ∇f)."""
    variance: Values
    """Var(m_t - ∇f)."""
    mean_square: Values
    """E(m_t - ∇f)², which is bias² + variance."""


class MomentumLoss(NamedTuple):
    """The law of the loss ½λθ² along the path: numbers, or arrays over t = 0 … ``steps``."""

    mean: Values
    """E f(θ_t)."""
    variance: Values
    """Var f(θ_t)."""


def momentum_moments(
    lam: float,
    sigma: float,
    alpha: float,
    beta: float,
    u: float | None = None,
    *,
    steps: int | None = None,
    model: Model = "recursion",
    theta0: float = 1.0,
    m0: float = 0.0,
) -> MomentumMoments:
    r"""Return means, variances and covariance of momentum and parameter on a quadratic.

    The recursion is the paper's Definition 2.1 on :math:`f(\theta) = \tfrac12\lambda\theta^2`,
    with independent noise :math:`\varepsilon_t` of mean 0 and variance :math:`\sigma^2`:

    .. math::
        m_t = \beta m_{t-1} + u(\lambda\theta_{t-1} + \varepsilon_t), \qquad
        \theta_t = \theta_{t-1} - \alpha m_t

    In continuous time, with one unit for a step, :math:`d\theta = -\alpha m\,dt` and

    .. math:: dm = (-r m + k\lambda\theta)\,dt + n\,dW

    where the paper's equation (``"sde"``) has :math:`r = 1-\beta,\ k = u,\ n = u\sigma`. The
    ``"matched"`` one has :math:`r = -\ln\beta`, :math:`k = ur/(1-\beta)` and
    :math:`n = u\sigma\sqrt{2r/(1-\beta^2)}`: if the gradient is constant, its m has the
    recursion's mean and autocovariance at every whole step.

    All of them are linear, :math:`x_t = A x_{t-1} + w_t` for :math:`x = (m, \theta)` at whole
    steps, so that :math:`E x_t = A^t x_0` and :math:`P_t = A P_{t-1} A^\top + Q`. With
    :math:`a = \alpha u\lambda` the means settle at 0, and the rest at

    ===================================== ====================================================
    recursion, :math:`0 < a < 2(1+\beta)`
    ===================================== ====================================================
    Var m                                 :math:`2u^2\sigma^2 / ((1-\beta)(2(1+\beta)-a))`
    Var θ                                 :math:`(1+\beta)\,\mathrm{Var}\,m\;\alpha/(2u\lambda)`
    Cov(m_t, θ_{t-1})                     :math:`\tfrac12\alpha\,\mathrm{Var}\,m`
    continuous time, :math:`0 < a`
    Var m                                 :math:`n^2/(2r)`
    Var θ                                 :math:`\mathrm{Var}\,m\;\alpha/(k\lambda)`
    Cov(m, θ)                             0
    ===================================== ====================================================

    Args:
        lam: the curvature λ.
        sigma: the standard deviation of the noise of a gradient.
        alpha: the learning rate; 0 keeps θ where it is.
        beta: the decay of the momentum, 0 for SGD.
        u: the weight of the gradient; None for 1 - β, a running mean; 1 is classical momentum.
        steps: how many steps are followed from (m0, theta0), stable or not; None for the
            stationary law.
        model: ``"recursion"``, ``"sde"`` or ``"matched"``.
        theta0: where the path begins.
        m0: the momentum that it begins with.

    Raises:
        ValueError: if a parameter is outside of its range, or ``steps`` is None and there is no
            stationary law.

    Example:
        >>> from sgdf.theory import momentum_moments
        >>> found = momentum_moments(1.0, 1.0, 0.1, 0.9)
        >>> round(found.var_m, 4), round(found.var_theta, 4)
        (0.0528, 0.0501)
        >>> momentum_moments(1.0, 1.0, 0.1, 0.9, steps=2).mean_theta.round(4)
        array([1.    , 0.99  , 0.9711])
    """
    check_model(model)
    rule = Rule(lam, sigma, alpha, beta, weight(u, beta))
    check_number("theta0", theta0, -np.inf)
    check_number("m0", m0, -np.inf)
    if steps is None:
        rule.check_stationary(model)
        return _stationary(rule, model)
    if steps < 0:
        raise ValueError(f"Invalid steps, expected at least 0: {steps}")
    forward, noise = rule.one_step(model)
    mean, variance = np.array([m0, theta0]), np.zeros((2, 2))
    means, variances = [mean], [variance]
    for _ in range(steps):
        mean = forward @ mean
        variance = forward @ variance @ forward.T + noise
        means.append(mean)
        variances.append(variance)
    (mean_m, mean_theta), spread = np.transpose(means), np.array(variances)
    var_m, cov = spread[:, 0, 0], spread[:, 0, 1]
    # The last step moved θ by -αm: this much less does m vary together with where θ was before.
    before = alpha * var_m if model == "recursion" else 0.0
    return MomentumMoments(mean_m, mean_theta, var_m, spread[:, 1, 1], cov + before)


def momentum_error(
    lam: float,
    sigma: float,
    alpha: float,
    beta: float,
    u: float | None = None,
    *,
    steps: int | None = None,
    model: Model = "recursion",
    theta0: float = 1.0,
    m0: float = 0.0,
) -> MomentumError:
    r"""Return the error of momentum as an estimate of the gradient that it took last.

    That gradient, :math:`\nabla f(\theta_{t-1})` in the recursion and :math:`\nabla f(\theta(t))`
    in continuous time, is random, and depends on the same noise as m:

    .. math::
        E(m - \nabla f)^2 = (E m - E\nabla f)^2
            + \mathrm{Var}\,m + \mathrm{Var}\,\nabla f - 2\,\mathrm{Cov}(m, \nabla f)

    In the stationary law the bias is 0, and the recursion's mean squared error is

    .. math:: \frac{2u^2 + (1+\beta)a - 2ua}{(1-\beta)(2(1+\beta)-a)}\,\sigma^2

    For the running mean, :math:`u = 1-\beta`, it falls in β from :math:`\sigma^2` to
    :math:`\tfrac12\alpha\lambda\sigma^2` if :math:`\alpha\lambda < 2`.

    The arguments are those of :func:`momentum_moments`. At t = 0 of a path, m0 is held against the
    gradient at theta0.

    Example:
        >>> from sgdf.theory import momentum_error
        >>> round(momentum_error(1.0, 1.0, 0.1, 0.9).mean_square, 4)
        0.0976
    """
    law = momentum_moments(
        lam, sigma, alpha, beta, u, steps=steps, model=model, theta0=theta0, m0=m0
    )
    mean_theta, var_theta = law.mean_theta, law.var_theta
    if steps is not None and model == "recursion":
        mean_theta, var_theta = _before(mean_theta), _before(var_theta)
    bias = law.mean_m - lam * mean_theta
    variance = law.var_m + lam**2 * var_theta - 2.0 * lam * law.cov
    return MomentumError(bias, variance, bias**2 + variance)


def momentum_loss(
    lam: float,
    sigma: float,
    alpha: float,
    beta: float,
    u: float | None = None,
    *,
    steps: int | None = None,
    model: Model = "recursion",
    theta0: float = 1.0,
    m0: float = 0.0,
) -> MomentumLoss:
    r"""Return mean and variance of the loss ½λθ² along the path.

    If the noise is normal, θ is, with mean μ and variance v, and its fourth moment gives

    .. math::
        E f = \tfrac12\lambda(v + \mu^2), \qquad \mathrm{Var} f = \lambda^2(\tfrac12 v^2 + \mu^2 v)

    In the stationary law μ = 0, and the standard deviation of the loss is √2 times its mean. The
    mean of the loss does not need normal noise.

    The arguments are those of :func:`momentum_moments`.

    Example:
        >>> from sgdf.theory import momentum_loss
        >>> found = momentum_loss(1.0, 1.0, 0.1, 0.9)
        >>> round(found.mean, 4), round(found.variance / found.mean**2, 4)
        (0.0251, 2.0)
    """
    law = momentum_moments(
        lam, sigma, alpha, beta, u, steps=steps, model=model, theta0=theta0, m0=m0
    )
    mean, variance = law.mean_theta, law.var_theta
    return MomentumLoss(
        0.5 * lam * (variance + mean**2), lam**2 * (0.5 * variance**2 + mean**2 * variance)
    )


def _stationary(rule: Rule, model: Model) -> MomentumMoments:
    if model == "recursion":
        room = (1.0 - rule.beta) * (2.0 * (1.0 + rule.beta) - rule.pull)
        var_m = 2.0 * (rule.u * rule.sigma) ** 2 / room
        var_theta = (1.0 + rule.beta) * var_m * rule.alpha / (2.0 * rule.u * rule.lam)
        return MomentumMoments(0.0, 0.0, var_m, var_theta, 0.5 * rule.alpha * var_m)
    flow = rule.flow(model)
    var_m = flow.noise**2 / (2.0 * flow.rate)
    return MomentumMoments(0.0, 0.0, var_m, var_m * rule.alpha / (flow.gain * rule.lam), 0.0)


def _before(values: Values) -> Array:
    """Return what each value was one step earlier; the first was not preceded by any."""
    path = np.asarray(values)
    return np.concatenate([path[:1], path[:-1]])
