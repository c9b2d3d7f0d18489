"""The exact Kalman filter against closed forms and against conditioning on all data at once."""

import math

import numpy as np
import pytest
import torch

import sgdf
from sgdf.theory import kalman, steady_kalman


@pytest.mark.parametrize("transition", [1.0, 0.9, -0.5, 0.0, 1.1])
@pytest.mark.parametrize("drift", [0.0, 1e-3, 0.19, 10.0])
def test_it_settles_at_the_closed_form(transition, drift):
    """Of a random walk, of AR(1), and of a signal that grows."""
    model = {"transition": transition, "process_noise": drift, "observation_noise": 2.0}
    found = kalman(np.zeros(500), **model, initial_variance=1.0)
    steady = steady_kalman(**model)
    # A constant is known better and better, like 1/t: there the limit is 0.
    slack = 1 / 500 if drift == 0.0 and transition == 1.0 else 1e-12
    assert found.gain[-1].item() == pytest.approx(float(steady.gain), rel=1e-9, abs=slack)
    assert found.signal_variance[-1] == pytest.approx(
        float(steady.signal_variance), rel=1e-9, abs=2 * slack
    )


def test_a_steady_state_needs_noise():
    with pytest.raises(ValueError, match="Invalid observation_noise, not a positive variance: 0"):
        steady_kalman(process_noise=1.0, observation_noise=0.0)
    with pytest.raises(ValueError, match="Invalid process_noise, not a variance: -1"):
        steady_kalman(process_noise=-1, observation_noise=1.0)


@pytest.mark.parametrize("drift", [0.01, 0.05, 1.0, 10.0])
def test_a_random_walk_has_the_steady_state_of_riccati(drift):
    """P = PR / (P + R) + Q has the positive root (Q + √(Q² + 4QR)) / 2 before a correction."""
    noise = 2.0
    found = kalman(
        np.zeros(2000),
        transition=1.0,
        process_noise=drift,
        observation_noise=noise,
        initial_variance=3.0,
    )
    predicted = (drift + math.sqrt(drift**2 + 4 * drift * noise)) / 2
    gain = predicted / (predicted + noise)
    assert found.gain[-1].item() == pytest.approx(gain, rel=1e-12)
    assert found.signal_variance[-1] == pytest.approx(gain * noise, rel=1e-12)


def test_the_published_errors_on_a_random_walk():
    """Of noise 1: 0.20 at a drift variance of 0.05, and 0.62 at 1."""
    errors = [
        kalman(
            np.zeros(500),
            transition=1.0,
            process_noise=drift,
            observation_noise=1.0,
            initial_variance=1.0,
        ).signal_variance[-1]
        for drift in (0.05, 1.0)
    ]
    assert [round(float(error), 2) for error in errors] == [0.2, 0.62]


def conditioned(observations, model, initial_state, initial_variance):
    """Return mean and covariance of the last state, given all observations at once.

    All states and observations are one long normal vector, whose covariance is written down.
    """
    forward, rows, drift, noise = model
    steps, size = len(observations), rows.shape[1]
    means, blocks = [], np.zeros((steps * size, steps * size))
    mean, variance = initial_state, initial_variance
    for t in range(steps):
        mean = forward @ mean
        variance = forward @ variance @ forward.T + drift
        means.append(mean)
        later = variance
        for u in range(t, steps):
            blocks[u * size : (u + 1) * size, t * size : (t + 1) * size] = later
            blocks[t * size : (t + 1) * size, u * size : (u + 1) * size] = later.T
            later = forward @ later
    seen = np.kron(np.eye(steps), rows)
    observed = seen @ blocks @ seen.T + np.kron(np.eye(steps), noise)
    cross = blocks[-size:] @ seen.T
    weights = cross @ np.linalg.inv(observed)
    innovation = observations.ravel() - seen @ np.concatenate(means)
    return means[-1] + weights @ innovation, blocks[-size:, -size:] - weights @ cross.T


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 1), (3, 2)])
def test_every_step_is_the_conditional_mean(size, count):
    draw = np.random.default_rng(size)
    forward, rows = draw.normal(size=(size, size)) / 2, draw.normal(size=(count, size))
    drift, noise, start = (
        (lambda root: root @ root.T)(draw.normal(size=(n, n))) for n in (size, count, size)
    )
    initial_state, observations = draw.normal(size=size), draw.normal(size=(12, count))
    found = kalman(
        observations,
        transition=forward,
        observation=rows,
        process_noise=drift,
        observation_noise=noise,
        initial_state=initial_state,
        initial_variance=start,
    )
    for t in range(1, 13):
        mean, variance = conditioned(
            observations[:t], (forward, rows, drift, noise), initial_state, start
        )
        np.testing.assert_allclose(found.state[t - 1], mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.state_variance[t - 1], variance, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.signal, found.state @ rows.T)


def test_a_constant_is_estimated_by_least_squares():
    """Without drift and prior knowledge the estimate of a line is that of least squares."""
    draw = np.random.default_rng(0)
    times = np.arange(1.0, 31.0)
    observations = 3.0 - 0.2 * times + draw.normal(size=30)
    found = kalman(
        observations,
        transition=[[1.0, 1.0], [0.0, 1.0]],
        observation=[1.0, 0.0],
        process_noise=0.0,
        observation_noise=1.0,
        initial_variance=1e9,
    )
    slope, offset = np.polyfit(times, observations, 1)
    np.testing.assert_allclose(found.state[-1], [offset + 30 * slope, slope], rtol=1e-5)


def test_series_are_independent():
    draw = np.random.default_rng(0)
    observations = draw.normal(size=(20, 4, 3))
    model = {
        "transition": [[0.9, 0.1], [0.0, -0.9]],
        "observation": [1.0, 1.0],
        "process_noise": [[0.1, 0.0], [0.0, 0.2]],
        "observation_noise": 1.0,
        "initial_variance": 1.0,
    }
    together = kalman(observations, **model)
    assert together.state.shape == (20, 4, 3, 2)
    alone = kalman(observations[:, 2, 1], **model)
    np.testing.assert_allclose(together.signal[:, 2, 1], alone.signal, rtol=1e-12)
    np.testing.assert_array_equal(together.gain, alone.gain)


def test_the_stated_variance_is_the_error():
    """Within 5 % on 4,000 independent signals; the standard error is √(2 / 4,000) = 2.2 %."""
    draw = np.random.default_rng(1)
    state = np.zeros(4000)
    signal = np.empty((40, 4000))
    for t in range(40):
        state = -0.8 * state + 0.5 * draw.normal(size=4000)
        signal[t] = state
    found = kalman(
        signal + draw.normal(size=signal.shape),
        transition=-0.8,
        process_noise=0.25,
        observation_noise=1.0,
        initial_variance=0.0,
    )
    errors = np.square(found.signal - signal).mean(axis=1)
    assert errors[-1] == pytest.approx(found.signal_variance[-1], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition": [[1.0, 0.0]]}, "Invalid transition of shape (1, 2) for 1 components"),
        ({"process_noise": -1.0}, "Invalid process_noise, a negative variance: -1.0"),
        ({"observation_noise": math.nan}, "Invalid observation_noise, not a finite symmetric"),
        ({"initial_variance": [[1.0, 0.0], [0.0, 1.0]]}, "Invalid initial_variance of shape"),
        ({"observation": [[1.0], [1.0]]}, "Invalid observations of shape (3,) for 2 components"),
        ({"initial_state": [1.0, 2.0]}, "Invalid initial_state of shape (2,) for 1 components"),
    ],
)
def test_bad_models_are_refused(changes, message):
    model = {
        "transition": 1.0,
        "process_noise": 0.1,
        "observation_noise": 1.0,
        "initial_variance": 1.0,
    }
    with pytest.raises(ValueError, match="Invalid") as caught:
        kalman([1.0, 2.0, 3.0], **(model | changes))
    assert str(caught.value).startswith(message)


def test_tensors_are_observations_too_and_certainty_stays():
    observations = torch.tensor([1.0, 2.0, 4.0])
    found = sgdf.theory.kalman(
        observations,
        transition=1.0,
        process_noise=0.0,
        observation_noise=0.0,
        initial_state=5.0,
        initial_variance=0.0,
    )
    assert found.signal.tolist() == [5.0, 5.0, 5.0]
    assert found.signal_variance.tolist() == [0.0, 0.0, 0.0]
