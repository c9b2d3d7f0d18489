"""What the filter responds to, and what it does not see; each simulation has a fixed seed.

Elements are independent, so that a mean over them has a known standard error. Bounds of 4 of them
fail for one seed in 16,000.
"""

import functools
import math

import numpy as np
import pytest
import torch

import sgdf
from sgdf.theory import (
    NOISE_LAWS,
    drift_response,
    filter_steps,
    gain_law,
    jump_response,
    mmse_gain,
    noise_change_response,
    noise_response,
    steady_kalman,
)
from sgdf.theory.noise_laws import rare

DRIFTS = (0.0, 1e-4, 0.01, 0.05, 1.0, 10.0)


@pytest.mark.parametrize("gamma_decay", [0.0, 0.5])
def test_the_steps_are_the_librarys(gamma_decay):
    """The optimizer itself, at a learning rate of 1, moves by the estimates."""
    gradients = np.random.default_rng(0).normal(size=(20, 3))
    param = torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))
    options = {"eps": 1e-3, "betas": (0.8, 0.95), "gamma": 0.7, "gamma_decay": gamma_decay}
    optimizer = sgdf.SGDF([param], lr=1.0, foreach=False, **options)
    steps = filter_steps(gradients, **options)
    for gradient, step in zip(gradients, steps, strict=True):
        before = param.detach().clone()
        param.grad = torch.tensor(gradient)
        optimizer.step()
        moved = (before - param.detach()).numpy()
        np.testing.assert_allclose(moved, step.estimate, rtol=1e-9, atol=1e-12)
        assert ((step.gain >= 0) & (step.gain <= 1)).all()
        weighted = step.mean + step.powered_gain * (gradient - step.mean)
        np.testing.assert_allclose(weighted, step.estimate, rtol=1e-9, atol=1e-12)


@functools.cache
def on_random_walks():
    return drift_response(DRIFTS)


@functools.cache
def on_noise(name, gamma=0.5):
    return noise_response(name, gamma=gamma)


def test_the_gain_does_not_see_drift():
    """Within 4 standard errors and 0.002 of the law, from no drift to ten times the noise.

    The 0.002 is for s, which has fewer independent squares where the gradient drifts.
    """
    found = on_random_walks()
    assert (np.abs(found.gain - gain_law(0.9).mean) < 4 * found.gain_error + 0.002).all()
    assert (found.gain_error < 0.001).all()
    root = gain_law(0.9).mean_root
    np.testing.assert_allclose(found.powered_gain, root, atol=0.005)


def test_errors_on_random_walks():
    """The running mean's is the closed form; the Kalman filter has less, and less.

    An error averages 500 walks of some 1,000/19 independent pieces: 1 % is a standard error.
    """
    found = on_random_walks()
    drift = np.array(DRIFTS)
    np.testing.assert_allclose(found.mean_error, (0.81 * drift + 0.01) / 0.19, rtol=0.05)
    best = steady_kalman(process_noise=drift, observation_noise=1.0)
    assert (best.signal_variance < found.estimate_error).all()
    assert best.gain[-1] > 0.9  # where the filter's is 0.24 as ever
    # Where the running mean lags, as at q = 1, the estimate is better than it, and worse than the
    # gradient, whose error is 1.
    lagging = DRIFTS.index(1.0)
    assert 1.0 < found.estimate_error[lagging] < found.mean_error[lagging]
    np.testing.assert_allclose(found.estimate_error[[0, 3, 4]], [0.103, 0.250, 3.1], rtol=0.05)


def test_the_gain_answers_to_a_change_of_noise_and_forgets_it():
    """Beside the closed form in windows of 100 steps: 2 % is more than 4 standard errors.

    The noise falls to a tenth, or rises to ten times; then the gain is far from what it was.
    """
    for factor, low, high in ((0.1, 0.90, 0.95), (10.0, 0.07, 0.12)):
        found = noise_change_response(factor, steps=3000, settled=1000)
        assert np.isnan(found.predicted[:30]).all()
        windows = [slice(start, start + 100) for start in (30, 300, 1000, 2900)]
        means = [found.powered_gain[window].mean() for window in windows]
        np.testing.assert_allclose(
            means, [found.predicted[window].mean() for window in windows], rtol=0.02
        )
        extreme = slice(30, 100) if factor < 1 else slice(1, 10)
        assert low < found.powered_gain[extreme].mean() < high
        assert len(found.steps) == len(found.powered_gain) == 3001


def test_tails_raise_the_gain():
    """A mean of √K has a standard error of 0.001 at most: one seed in 16,000 is beyond 0.004."""
    expected = {
        "two-point": 0.241,
        "uniform": 0.365,
        "normal": 0.412,
        "laplace": 0.473,
        "student-3": 0.491,
    }
    found = {name: on_noise(name).root_gain for name in expected}
    assert list(found.values()) == sorted(found.values())
    assert found == pytest.approx(expected, abs=0.004)


@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_skewed_noise_biases_the_estimate(gamma):
    """By more than 10 standard errors where the noise is skewed, and by none where it is not."""
    expected = {"rare": {0.5: -0.110, 1.0: -0.071}, "exponential": {0.5: -0.046, 1.0: -0.022}}
    for name in ("normal", "laplace"):
        found = on_noise(name, gamma)
        assert abs(found.bias) < 4 * found.bias_error, name
    for name, biases in expected.items():
        found = on_noise(name, gamma)
        assert found.bias < -10 * found.bias_error
        assert found.bias == pytest.approx(biases[gamma], abs=5 * found.bias_error)


def test_a_bias_can_be_worth_its_variance():
    """Of 99 with probability 0.01, else −1, the estimate has a smaller error than the mean.

    They are drawn in units of their standard deviation: 9.95 and −0.10.
    """

    def very_rare(random, shape):
        return rare(random, shape, probability=0.01)

    found = noise_response(very_rare)
    assert found.bias < -10 * found.bias_error
    assert found.estimate_error < 0.9 * found.mean_error


def test_a_jump_lowers_the_gain_that_should_rise():
    """All limits are 4 standard errors away or more, which one seed in 16,000 exceeds.

    For a jump of 1 m̂/J has a standard error of 0.006, and for one of 10 it has 0.0006, as ĝ/J has.
    The gains of two jumps differ by 20 of theirs or more.
    """
    jumps = np.array([1.0, 3.0, 10.0, 100.0])
    for gamma, share in ((0.5, 0.122), (1.0, 0.1)):
        found = jump_response(jumps, gamma=gamma)
        assert (np.diff(found.gain[0]) < 0).all()
        np.testing.assert_allclose(found.mean_share[0], 0.1, atol=0.024)
        assert found.estimate_share[0, 2] == pytest.approx(share, abs=0.005)
    lag = 0.9 * jumps  # the running mean's bias in the first step
    assert (np.diff(mmse_gain(1 / 19, 1.0, bias=lag)) > 0).all()
    # Later both follow, the estimate ahead of the mean.
    assert (found.estimate_share[:, 2] >= found.mean_share[:, 2]).all()
    assert found.mean_share[21, 2] == pytest.approx(1 - 0.9**22, abs=0.01)


@pytest.mark.parametrize("name", NOISE_LAWS)
def test_noise_laws_have_mean_0_and_variance_1(name):
    """Within 5 standard errors of 200,000 draws; Student's variance has no standard error."""
    draws = NOISE_LAWS[name](np.random.default_rng(0), (200_000,))
    assert abs(draws.mean()) < 5 / math.sqrt(200_000)
    if name != "student-3":
        spread = np.square(draws).std() / math.sqrt(200_000)
        assert abs(draws.var() - 1) < 5 * spread + 1e-4
    else:
        assert draws.var() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drift_response([-1.0]), "Invalid drift, not a list of variances: [-1.0]"),
        (lambda: drift_response([1.0], steps=1), "Invalid steps, fewer than 2: 1"),
        (lambda: noise_response("cauchy"), "Invalid noise: 'cauchy', expected one of two-point"),
        (lambda: noise_change_response(0.0), "Invalid factor, not positive and finite: 0.0"),
        (lambda: jump_response([0.0]), "Invalid jump, not a list of sizes other than 0: [0.0]"),
        (lambda: jump_response(1.0, betas=(0.9, 1.0)), "Invalid beta parameter at index 1: 1.0"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match="Invalid") as caught:
        call()
    assert str(caught.value).startswith(message)
