"""How the filter responds: to drift, to noise of other laws or sizes, to a jump of the mean.

All of it is simulated with :func:`sgdf.filter_gradient` in float64, on many independent elements of
one tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .filter_steps import filter_steps
from .gain import gain_law
from .noise_laws import NOISE_LAWS, Draw

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


class DriftResponse(NamedTuple):
    """The filter on a random walk; an entry for each drift. See :func:`drift_response`."""

    gain: Array
    """The mean gain."""
    gain_error: Array
    """Its standard error."""
    powered_gain: Array
    """The mean of the gain's power, which is the weight of the gradient."""
    mean_error: Array
    """The mean squared error of the running mean, in units of the noise's variance."""
    estimate_error: Array
    """The mean squared error of the estimate."""


def drift_response(
    drift: ArrayLike,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    gamma: float = 0.5,
    elements: int = 500,
    steps: int = 2000,
    seed: int = 0,
) -> DriftResponse:
    r"""Measure gain and errors where the gradient's mean is a random walk.

    The mean x follows :math:`x_t = x_{t-1} + w_t` with :math:`\operatorname{Var} w = q`, and the
    gradient is :math:`g_t = x_t + v_t` with :math:`\operatorname{Var} v = 1`, all normal. The best
    gain depends on q (:func:`kalman`); the filter's does not, by :func:`gain_law`. The running
    mean's error is :math:`(\beta_1^2 q + (1-\beta_1)^2)/(1-\beta_1^2)`.

    Args:
        drift: the variances q, at least 0.
        betas: of the filter.
        gamma: of the filter.
        elements: how many independent walks there are for each drift.
        steps: how many steps they have; the second half counts.
        seed: of the random numbers.

    Raises:
        ValueError: if a drift is negative, or there is nothing to simulate.

    Example:
        >>> from sgdf.theory import drift_response
        >>> found = drift_response([0.0, 1.0], elements=200)
        >>> found.gain.round(2), found.estimate_error.round(1)
        (array([0.24, 0.24]), array([0.1, 3.1]))
    """
    variances = np.atleast_1d(np.asarray(drift, dtype=np.float64))
    if variances.ndim != 1 or not ((variances >= 0.0) & np.isfinite(variances)).all():
        raise ValueError(f"Invalid drift, not a list of variances: {drift!r}")
    _check_counts(elements=elements, steps=steps)
    random = np.random.default_rng(seed)
    walk = np.zeros((len(variances), elements))
    deviations = np.sqrt(variances)[:, None]

    def gradients() -> Iterator[Array]:
        nonlocal walk
        for _ in range(steps):
            walk = walk + deviations * random.standard_normal(walk.shape)
            yield walk + random.standard_normal(walk.shape)

    sums = np.zeros((4, *walk.shape))
    settled = steps // 2
    for number, step in enumerate(filter_steps(gradients(), betas=betas, gamma=gamma)):
        if number >= settled:
            errors = np.square(step.mean - walk), np.square(step.estimate - walk)
            sums += np.stack([step.gain, step.powered_gain, *errors])
    gain, powered, mean_error, estimate_error = sums / (steps - settled)
    return DriftResponse(
        gain=gain.mean(1),
        gain_error=_standard_error(gain),
        powered_gain=powered.mean(1),
        mean_error=mean_error.mean(1),
        estimate_error=estimate_error.mean(1),
    )


class NoiseResponse(NamedTuple):
    """The filter on steady noise of any law; see :func:`noise_response`."""

    gain: float
    """The mean gain."""
    root_gain: float
    """The mean of √K."""
    bias: float
    """The mean of the estimate; that of the noise is 0."""
    bias_error: float
    """Its standard error."""
    mean_error: float
    """The mean squared error of the running mean, in units of the noise's variance."""
    estimate_error: float
    """The mean squared error of the estimate."""


def noise_response(
    noise: str | Draw,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    gamma: float = 0.5,
    elements: int = 1000,
    steps: int = 1000,
    seed: int = 0,
) -> NoiseResponse:
    """Measure gain, bias and errors where the gradient is noise alone, of mean 0 and variance 1.

    The gain knows the law of the noise by its shape alone: heavy tails raise it, since most
    residuals are then small beside their variance. The estimate is unbiased if the law is
    symmetric. If it is skewed, the filter holds back the rare large residuals more than the many
    small ones (:func:`influence`), and the estimate has a mean where the gradient has none.

    Args:
        noise: a name in ``NOISE_LAWS``, or a function of a NumPy generator and a shape.
        betas: of the filter.
        gamma: of the filter.
        elements: how many independent series there are.
        steps: how many steps they have; the second half counts.
        seed: of the random numbers.

    Raises:
        ValueError: if the name is unknown, or there is nothing to simulate.

    Example:
        >>> from sgdf.theory import noise_response
        >>> found = noise_response("rare")  # 3 in one of ten steps, else −1/3
        >>> round(found.bias, 2)
        -0.11
    """
    if isinstance(noise, str) and noise not in NOISE_LAWS:
        raise ValueError(f"Invalid noise: {noise!r}, expected one of {', '.join(NOISE_LAWS)}")
    _check_counts(elements=elements, steps=steps)
    draw = NOISE_LAWS[noise] if isinstance(noise, str) else noise
    random = np.random.default_rng(seed)
    gradients = (draw(random, (elements,)) for _ in range(steps))
    sums = np.zeros((5, elements))
    settled = steps // 2
    for number, step in enumerate(filter_steps(gradients, betas=betas, gamma=gamma)):
        if number >= settled:
            errors = np.square(step.mean), np.square(step.estimate)
            sums += np.stack([step.gain, np.sqrt(step.gain), step.estimate, *errors])
    gain, root, estimate, mean_error, estimate_error = sums / (steps - settled)
    return NoiseResponse(
        gain=float(gain.mean()),
        root_gain=float(root.mean()),
        bias=float(estimate.mean()),
        bias_error=float(_standard_error(estimate)),
        mean_error=float(mean_error.mean()),
        estimate_error=float(estimate_error.mean()),
    )


class NoiseChangeResponse(NamedTuple):
    """The gain after the noise changed its size; see :func:`noise_change_response`."""

    steps: Array
    """How many steps ago the change was; 0 is the last step before it."""
    powered_gain: Array
    """The mean of the gain's power in each."""
    predicted: Array
    """The same by :func:`gain_law`, where it applies: from 3/(1 − beta1) steps on."""


def noise_change_response(
    factor: float,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    gamma: float = 0.5,
    elements: int = 300,
    steps: int = 5000,
    settled: int = 2000,
    seed: int = 0,
) -> NoiseChangeResponse:
    r"""Measure the gain after the noise's standard deviation has changed by a factor.

    s forgets the old noise within some :math:`1/(1-\beta_2)` steps. n steps after the change it is
    :math:`1 + (f^{-2} - 1)\,w_n` times the residual's variance, with the weight
    :math:`w_n = \beta_2^n (1-\beta_2^N)/(1-\beta_2^{N+n})` of the N old gradients, which is
    :math:`\beta_2^n` if they were many. The gain then has the law :func:`gain_law` with that
    ``variance_ratio``: larger after noise fell, smaller after it rose.

    Args:
        factor: f, what the standard deviation is multiplied by.
        betas: of the filter.
        gamma: of the filter.
        elements: how many independent series there are.
        steps: how many steps there are after the change.
        settled: how many there are before it.
        seed: of the random numbers.

    Raises:
        ValueError: if the factor is not positive, or there is nothing to simulate.

    Example:
        >>> from sgdf.theory import noise_change_response
        >>> found = noise_change_response(0.1, steps=1000)
        >>> found.powered_gain[[0, 100]].round(1), found.predicted[[100, 1000]].round(2)
        (array([0.4, 0.9]), array([0.92, 0.85]))
    """
    if not 0.0 < factor < math.inf:
        raise ValueError(f"Invalid factor, not positive and finite: {factor}")
    _check_counts(elements=elements, steps=steps, settled=settled)
    random = np.random.default_rng(seed)
    sizes = [1.0] * settled + [float(factor)] * steps
    gradients = (size * random.standard_normal(elements) for size in sizes)
    powered = np.array(
        [step.powered_gain.mean() for step in filter_steps(gradients, betas=betas, gamma=gamma)]
    )
    after = np.arange(steps + 1)
    old = betas[1] ** after * (1.0 - betas[1] ** settled) / (1.0 - betas[1] ** (settled + after))
    ratios = 1.0 + (factor**-2.0 - 1.0) * old
    # The prediction is smooth: a few hundred of its points are enough.
    some = np.unique(np.geomspace(1, steps + 1, 200).astype(int)) - 1
    known = [gain_law(betas[0], variance_ratio=ratios[n]).mean_power(gamma) for n in some]
    return NoiseChangeResponse(
        steps=after.astype(np.float64),
        powered_gain=powered[settled - 1 :],
        predicted=np.where(
            after >= round(3.0 / (1.0 - betas[0])), np.interp(after, some, known), math.nan
        ),
    )


class JumpResponse(NamedTuple):
    """The filter after its gradients' mean jumped; see :func:`jump_response`.

    The first axis counts the steps, from the first with the new mean; the second the jumps.
    """

    gain: Array
    """The mean gain."""
    powered_gain: Array
    """The mean of the gain's power, which is the weight of the gradient."""
    mean_share: Array
    """The running mean, as a share of the jump."""
    estimate_share: Array
    """The estimate, as a share of the jump; the gradient itself has 1 in every step."""


def jump_response(
    jump: ArrayLike,
    *,
    betas: tuple[float, float] = (0.9, 0.999),
    gamma: float = 0.5,
    elements: int = 2000,
    steps: int = 50,
    settled: int = 1000,
    seed: int = 0,
) -> JumpResponse:
    r"""Measure how the estimate follows a sudden change of the gradient's mean.

    In the first step after a jump J the running mean has moved by :math:`(1-\beta_1)J`. The
    residual is about :math:`\beta_1 J`, and the estimate is at most :math:`\sqrt{\hat s}` from the
    running mean (:func:`influence_bound`, :math:`\gamma = \frac12`): a gain that sank as the
    residual grew. The gain of the smallest error would be nearly 1 (:func:`mmse_gain`).

    Args:
        jump: sizes of jumps, in units of the noise's standard deviation; not 0.
        betas: of the filter.
        gamma: of the filter.
        elements: how many independent series there are for each jump.
        steps: how many steps there are with the new mean.
        settled: how many there are with mean 0 before.
        seed: of the random numbers.

    Raises:
        ValueError: if a jump is 0, or there is nothing to simulate.

    Example:
        >>> from sgdf.theory import jump_response
        >>> found = jump_response([10.0])
        >>> found.mean_share[0].round(3), found.estimate_share[0].round(3)
        (array([0.1]), array([0.122]))
    """
    jumps = np.atleast_1d(np.asarray(jump, dtype=np.float64))
    if jumps.ndim != 1 or not (np.isfinite(jumps) & (jumps != 0.0)).all():
        raise ValueError(f"Invalid jump, not a list of sizes other than 0: {jump!r}")
    _check_counts(elements=elements, steps=steps, settled=settled)
    random = np.random.default_rng(seed)
    means = np.concatenate([np.zeros((settled, len(jumps))), np.tile(jumps, (steps, 1))])
    # All jumps meet the same noise: their differences are not of chance.
    gradients = (mean[:, None] + random.standard_normal(elements) for mean in means)
    found = [
        [
            step.gain.mean(1),
            step.powered_gain.mean(1),
            step.mean.mean(1) / jumps,
            step.estimate.mean(1) / jumps,
        ]
        for step in filter_steps(gradients, betas=betas, gamma=gamma)
    ]
    return JumpResponse(*np.array(found[settled:]).transpose(1, 0, 2))


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 2:
            raise ValueError(f"Invalid {name}, fewer than 2: {count}")


def _standard_error(values: Array) -> Array:
    """Return the standard error of the mean over the last axis, whose entries are independent."""
    return np.asarray(values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1]))
