"""The exact Kalman filter: the best estimate of a signal whose laws are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Array = NDArray[np.float64]


class KalmanOutput(NamedTuple):
    """What a Kalman filter knows after each observation.

    The first axis of every array counts the steps. The variances and gains depend on the model
    alone, and are the same for all series.
    """

    signal: Array
    """The estimate of the signal, in the shape of the observations."""
    signal_variance: Array
    """The variance of its error, one for each step; a matrix if the observations are vectors."""
    state: Array
    """The estimate of the state; its last axis has the components."""
    state_variance: Array
    """The covariance of its error, a matrix for each step."""
    gain: Array
    """How much of the innovation (what was observed, less what was predicted) the state takes."""


def kalman(
    observations: ArrayLike,
    *,
    transition: ArrayLike,
    observation: ArrayLike = 1.0,
    process_noise: ArrayLike,
    observation_noise: ArrayLike,
    initial_state: ArrayLike = 0.0,
    initial_variance: ArrayLike,
) -> KalmanOutput:
    r"""Estimate a signal from noisy observations, with the smallest possible error.

    The state, the signal and the observations follow

    .. math::
        x_t = F x_{t-1} + w_t, \qquad z_t = H x_t, \qquad y_t = z_t + v_t

    with independent noises of covariances :math:`Q` and :math:`R`. From the mean :math:`\hat x`
    and the covariance :math:`P` of the state, each step predicts and corrects:

    .. math::
        x^- &= F \hat x_{t-1}, & P^- &= F P_{t-1} F^\top + Q \\
        K_t &= P^- H^\top (H P^- H^\top + R)^{-1} \\
        \hat x_t &= x^- + K_t (y_t - H x^-), & P_t &= (I - K_t H) P^-

    If noise and initial state are normal, the estimate is the conditional mean: no other has a
    smaller mean squared error. If they are not, it has the smallest among all estimates that are
    linear in the observations.

    Args:
        observations: the first axis counts the steps. If ``observation`` is a matrix, the last
            axis has the components of an observation. All other axes are independent series,
            which are estimated with the same model.
        transition: F, a number or a square matrix.
        observation: H, a number, a vector (the signal is a number) or a matrix.
        process_noise: Q, a number or a matrix; a number stands for that times the identity.
        observation_noise: R, in the same way.
        initial_state: the mean of the state before the first step.
        initial_variance: its covariance, a number or a matrix.

    Raises:
        ValueError: if shapes do not fit each other, or a covariance is none.

    Example:
        >>> from sgdf.theory import kalman
        >>> found = kalman([1.0, 1.0, 1.0], transition=1.0, process_noise=0.0,
        ...                observation_noise=1.0, initial_variance=1e9)
        >>> found.gain.ravel().round(3)  # of a constant: the running mean's
        array([1.   , 0.5  , 0.333])
    """
    steps = np.asarray(observations, dtype=np.float64)
    rows = np.atleast_2d(np.asarray(observation, dtype=np.float64))
    vectors = np.ndim(observation) == 2
    count, size = rows.shape
    forward = np.atleast_2d(np.asarray(transition, dtype=np.float64))
    if steps.ndim < 1 + vectors or (vectors and steps.shape[-1] != count):
        raise ValueError(f"Invalid observations of shape {steps.shape} for {count} components")
    if forward.shape != (size, size):
        raise ValueError(f"Invalid transition of shape {forward.shape} for {size} components")
    drift = _covariance(process_noise, size, "process_noise")
    noise = _covariance(observation_noise, count, "observation_noise")
    variance = _covariance(initial_variance, size, "initial_variance")

    series = steps if vectors else steps[..., None]
    start = np.asarray(initial_state, dtype=np.float64)
    try:
        mean = np.broadcast_to(start, (*series.shape[1:-1], size))
    except ValueError:
        raise ValueError(
            f"Invalid initial_state of shape {start.shape} for {size} components"
        ) from None
    means, variances, gains = [], [], []
    for step in series:
        mean = mean @ forward.T
        variance = forward @ variance @ forward.T + drift
        # The pseudo-inverse: without any noise an observation that is certain corrects nothing.
        gain = variance @ rows.T @ np.linalg.pinv(rows @ variance @ rows.T + noise, hermitian=True)
        mean = mean + (step - mean @ rows.T) @ gain.T
        # Joseph's form of (I - K H) P: it stays a covariance when rounding accumulates.
        kept = np.eye(size) - gain @ rows
        variance = kept @ variance @ kept.T + gain @ noise @ gain.T
        means.append(mean)
        variances.append(variance)
        gains.append(gain)
    state = np.reshape(means, (len(series), *series.shape[1:-1], size))
    state_variance = np.reshape(variances, (len(series), size, size))
    signal, signal_variance = state @ rows.T, rows @ state_variance @ rows.T
    return KalmanOutput(
        signal=signal if vectors else signal[..., 0],
        signal_variance=signal_variance if vectors else signal_variance[:, 0, 0],
        state=state,
        state_variance=state_variance,
        gain=np.reshape(gains, (len(series), size, count)),
    )


class SteadyKalman(NamedTuple):
    """What a Kalman filter of a number settles at."""

    gain: Array
    """How much of the innovation the estimate takes."""
    signal_variance: Array
    """The variance of its error."""


def steady_kalman(
    *, transition: ArrayLike = 1.0, process_noise: ArrayLike, observation_noise: ArrayLike
) -> SteadyKalman:
    r"""Return gain and error that :func:`kalman` settles at, for a random walk or AR(1).

    The signal is :math:`x_t = \varphi x_{t-1} + w_t`, a random walk if :math:`\varphi = 1`, and
    :math:`x_t + v_t` is observed. The variance of the prediction, :math:`P^-`, is the positive
    root of

    .. math::
        {P^-}^2 - \left( Q - (1-\varphi^2) R \right) P^- - QR = 0, \qquad
        K = \frac{P^-}{P^- + R}, \qquad P = K R.

    Args:
        transition: :math:`\varphi`. Arguments may be arrays; they broadcast.
        process_noise: Q, the variance of w.
        observation_noise: R, the variance of v, positive.

    Raises:
        ValueError: if a variance is negative, or R is 0.

    Example:
        >>> from sgdf.theory import steady_kalman
        >>> walk = steady_kalman(process_noise=[0.05, 1.0], observation_noise=1.0)
        >>> walk.gain.round(3)  # also the error: the noise's variance is 1
        array([0.2  , 0.618])
        >>> found = steady_kalman(transition=0.9, process_noise=0.19, observation_noise=1.0)
        >>> float(found.gain.round(3))  # of a signal that is as large as the noise
        0.304
    """
    phi, drift, noise = (
        np.asarray(value, dtype=np.float64)
        for value in (transition, process_noise, observation_noise)
    )
    if not ((drift >= 0.0) & np.isfinite(drift)).all():
        raise ValueError(f"Invalid process_noise, not a variance: {process_noise!r}")
    if not ((noise > 0.0) & np.isfinite(noise)).all():
        raise ValueError(
            f"Invalid observation_noise, not a positive variance: {observation_noise!r}"
        )
    half = 0.5 * (drift - (1.0 - phi**2) * noise)
    root = np.sqrt(half**2 + drift * noise)
    # Of the two forms of the root, the one whose terms have the same sign.
    below = drift * noise / np.where(half < 0.0, root - half, 1.0)
    predicted = np.where(half < 0.0, below, half + root)
    gain = predicted / (predicted + noise)
    return SteadyKalman(gain, gain * noise)


def _covariance(value: Any, size: int, name: str) -> Array:
    """Return a covariance as a matrix; a number stands for that times the identity."""
    given = np.asarray(value, dtype=np.float64)
    matrix = given * np.eye(size) if given.ndim == 0 else np.atleast_2d(given)
    if matrix.shape != (size, size):
        raise ValueError(f"Invalid {name} of shape {given.shape} for {size} components")
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise ValueError(f"Invalid {name}, not a finite symmetric matrix: {value}")
    if np.linalg.eigvalsh(matrix)[0] < -1e-12 * np.abs(matrix).max():
        raise ValueError(f"Invalid {name}, a negative variance: {value}")
    return matrix
