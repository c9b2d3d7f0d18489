"""The bounds on bias and variance of momentum as inequalities, and where the printed ones end."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdf.theory import momentum_bounds, momentum_error, momentum_moments, simulate_momentum

NAMES = ("sigma", "alpha", "beta", "u")


@st.composite
def rules(draw):
    """Draw λ of either sign and σ, α, β, u, where paths of 40 steps stay within numbers."""
    beta = draw(st.floats(0.0, 0.98))
    u = (1.0 - beta) * draw(st.floats(1.0, 1.0 / (1.0 - beta)))
    lam = draw(st.floats(-0.5, 3.0))
    pull = 2.0 * (1.0 + beta) * draw(st.floats(0.001, 0.99))
    alpha = pull / (u * max(abs(lam), 0.1))
    return lam, draw(st.floats(0.0, 3.0)), alpha, beta, u


def bounds_along(rule, norms, deviations, steps):
    """Return the bounds at the last step, from the largest gradients before it."""
    return momentum_bounds(
        **dict(zip(NAMES, rule[1:], strict=True)),
        smoothness=abs(rule[0]),
        gradient_norm=float(norms.max()),
        gradient_deviation=float(deviations.max()),
        steps=steps,
    )


@given(rules(), st.integers(1, 40), st.floats(-3.0, 3.0))
def test_every_step_of_a_quadratic_is_within_the_bounds(rule, steps, theta0):
    """G bounds E|∇f|, by √E(∇f)². A negative λ makes noise and gradient vary together."""
    lam = rule[0]
    law = momentum_moments(*rule, steps=steps, theta0=theta0)
    norms = np.abs(lam) * np.sqrt(law.mean_theta**2 + law.var_theta)[:-1]
    found = bounds_along(rule, norms, np.abs(lam) * np.sqrt(law.var_theta)[:-1], steps)
    bias = momentum_error(*rule, steps=steps, theta0=theta0).bias
    slack = 1e-9 * (1.0 + norms.max())
    assert abs(bias[-1]) <= found.bias[-1] + slack
    assert law.var_m[-1] <= found.variance * (1.0 + 1e-9) + slack**2


@given(rules(), st.integers(1, 40), st.floats(-3.0, 3.0))
def test_on_a_quadratic_noise_can_be_left_out_of_the_bias(rule, steps, theta0):
    """There G has to bound the gradient of the mean path alone."""
    lam, _, *rest = rule
    law = momentum_moments(lam, 0.0, *rest, steps=steps, theta0=theta0)
    found = bounds_along((lam, 0.0, *rest), np.abs(lam * law.mean_theta[:-1]), np.zeros(1), steps)
    bias = momentum_error(*rule, steps=steps, theta0=theta0).bias
    assert abs(bias[-1]) <= found.bias[-1] * (1.0 + 1e-9) + 1e-9


def test_the_bound_on_the_lag_is_attained():
    """By a running mean at a small rate, where the gradient grows along the path."""
    path = {"steps": 200, "theta0": 1.0}
    bias = momentum_error(-1.0, 0.0, 1e-4, 0.9, **path).bias[-1]
    largest = momentum_moments(-1.0, 0.0, 1e-4, 0.9, **path).mean_theta[-2]
    found = momentum_bounds(0.0, 1e-4, 0.9, smoothness=1.0, gradient_norm=largest, steps=200)
    assert 0.99 * found.bias[-1] < abs(bias) < found.bias[-1]


@given(rules(), st.floats(0.0, 5.0), st.floats(0.0, 5.0))
def test_the_bounds_of_the_recursion_are_the_tighter_ones(rule, norm, deviation):
    found = momentum_bounds(
        *rule[1:], smoothness=abs(rule[0]), gradient_norm=norm, gradient_deviation=deviation
    )
    assert found.variance <= found.printed_variance * (1.0 + 1e-12)
    assert found.bias <= found.printed_bias * (1.0 + 1e-9) + 1e-9


@given(st.floats(0.0, 0.98), st.floats(0.01, 0.99), st.floats(1.0, 10.0))
def test_the_printed_variance_bound_holds_for_the_stationary_recursion(beta, share, more):
    u = more * (1.0 - beta)
    alpha = 2.0 * (1.0 + beta) * share / u
    law = momentum_moments(1.0, 1.0, alpha, beta, u)
    deviation = math.sqrt(law.var_theta)
    found = momentum_bounds(1.0, alpha, beta, u, smoothness=1.0, gradient_norm=deviation)
    assert law.var_m <= found.variance * (1.0 + 1e-9) <= found.printed_variance * (1.0 + 2e-9)


@pytest.mark.parametrize("slope", [np.tanh, lambda x: -np.tanh(3.0 * x) / 3.0, np.sin])
@pytest.mark.parametrize(("beta", "u"), [(0.0, 1.0), (0.5, 0.5), (0.9, 1.0)])
def test_other_losses_are_within_the_bounds(slope, beta, u):
    """All have L = 1; the simulated moments are at most 5 standard errors above a bound."""
    paths = 4000
    m, theta = simulate_momentum(slope, 0.5, 0.1, beta, u, steps=30, paths=paths, seed=1)
    gradients = slope(theta[:-1])
    norm = np.abs(gradients).mean(axis=1).max()
    deviation = gradients.std(axis=1).max()
    found = momentum_bounds(
        0.5, 0.1, beta, u, smoothness=1.0, gradient_norm=norm, gradient_deviation=deviation
    )
    gap = m[-1] - gradients[-1]
    first = abs(u * (1.0 - beta**30) / (1.0 - beta) - 1.0) - abs(u / (1.0 - beta) - 1.0)
    assert abs(gap.mean()) <= found.bias + first * norm + 5.0 * gap.std() / math.sqrt(paths)
    assert m[-1].var() <= found.variance * (1.0 + 5.0 * math.sqrt(2.0 / paths))


@pytest.mark.parametrize(
    ("beta", "u", "bias", "variance"),
    [
        (0.9, 0.1, (0.1 * 2 * 3 / 0.1 + 0.1 * 0.5 * 2 / math.sqrt(0.2)), 0.1 * 0.25 + 2 * 9),
        (
            0.9,
            1.0,
            0.1 * 2 * 3 / 1e-3 + 0.1 * 2 * 0.5 / (math.sqrt(2) * 0.1**2.5) + 0.9 * 3 / 0.1,
            0.25 / 0.1 + 2 * 9 / 0.01,
        ),
        (0.0, 1.0, 0.1 * 2 * 3 + 0.1 * 2 * 0.5 / math.sqrt(2), 0.25 + 2 * 9),
    ],
    ids=["EMA", "CM", "SGD"],
)
def test_the_rows_of_the_table(beta, u, bias, variance):
    """With α = 0.1, L = 2, G = V = 3, σ = 0.5; SGD's bias as the theorem has it at β = 0."""
    found = momentum_bounds(0.5, 0.1, beta, u, smoothness=2.0, gradient_norm=3.0)
    assert found.printed_bias == pytest.approx(bias)
    assert found.printed_variance == pytest.approx(variance)


def test_plain_sgd_has_its_exact_values():
    """No bias, and σ² + V²; the printed bounds have a bias, and 2V²."""
    found = momentum_bounds(0.5, 0.1, 0.0, 1.0, smoothness=2.0, gradient_norm=3.0, steps=4)
    np.testing.assert_allclose(found.bias, [3.0, 0.0, 0.0, 0.0, 0.0], atol=1e-15)
    assert found.variance == pytest.approx(0.25 + 9.0)
    assert found.printed_bias > 0.6


def test_the_printed_bias_bound_is_for_the_limit_only():
    """A running mean that starts at 0 is off by the whole gradient: the proof drops |…| there."""
    found = momentum_bounds(0.0, 0.001, 0.9, smoothness=1.0, gradient_norm=1.0, steps=60)
    assert found.printed_bias == pytest.approx(0.01)
    for model in ("recursion", "sde"):
        bias = momentum_error(1.0, 0.0, 0.001, 0.9, steps=60, model=model).bias
        assert np.all(np.abs(bias[:35]) > found.printed_bias)
    bias = momentum_error(1.0, 0.0, 0.001, 0.9, steps=60).bias
    assert np.all(np.abs(bias) <= found.bias)


def test_noise_in_every_coordinate_counts():
    """Ten of them on a plain: the variance is 0.526, ten times σ² in the noise term's place."""
    size, sigma = 10, 1.0
    total = size * momentum_moments(0.0, sigma, 0.1, 0.9, steps=400).var_m[-1]
    options = {"alpha": 0.1, "beta": 0.9, "smoothness": 0.0, "gradient_norm": 0.0}
    one = momentum_bounds(sigma, **options)
    every = momentum_bounds(sigma * math.sqrt(size), **options)
    assert total == pytest.approx(0.526, abs=5e-4)
    assert one.printed_variance == pytest.approx(0.1)
    assert total > one.printed_variance
    assert total == pytest.approx(every.variance, rel=1e-9)
    assert total <= every.printed_variance


def test_a_running_means_bias_is_at_most_twice_the_gradient():
    """The printed bound has no limit as β → 1; m is an average of gradients, whatever β."""
    for beta in (0.9, 0.99, 0.999):
        bias = momentum_error(1.0, 1.0, 0.1, beta, steps=3000).bias
        found = momentum_bounds(1.0, 0.1, beta, smoothness=1.0, gradient_norm=1.0)
        assert found.printed_bias > 0.1 / (1.0 - beta)
        assert found.bias <= 2.0
        assert np.abs(bias).max() < 2.0
        assert momentum_error(1.0, 1.0, 0.1, beta).bias == 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"u": 0.05}, "Invalid u, expected a number at least 0.1"),
        ({"smoothness": -1.0}, "Invalid smoothness, expected a number at least 0: -1.0"),
        ({"gradient_norm": math.nan}, "Invalid gradient_norm"),
        ({"gradient_deviation": -1.0}, "Invalid gradient_deviation"),
        ({"steps": -1}, "Invalid steps"),
        ({"beta": 1.0}, "Invalid beta"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    right = {"sigma": 1.0, "alpha": 0.1, "beta": 0.9, "smoothness": 1.0, "gradient_norm": 1.0}
    with pytest.raises(ValueError, match="Invalid") as caught:
        momentum_bounds(**(right | changes))
    assert str(caught.value).startswith(message)
