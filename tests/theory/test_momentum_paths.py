"""Simulated momentum beside the closed forms, and beside the library's own optimizer.

Simulations are held to 5 standard errors. The seeds are fixed; with others, one comparison in two
million would fail by chance.
"""

import math

import numpy as np
import pytest
import torch

import sgdf
from sgdf.theory import momentum_error, momentum_loss, momentum_moments, simulate_momentum

PATHS = 20_000


def within(values, expected, slack=0.0):
    """Assert that the mean over independent paths is expected, but for a slack of the method."""
    values = np.asarray(values)
    error = values.std(axis=-1, ddof=1) / math.sqrt(values.shape[-1])
    gap = np.abs(values.mean(axis=-1) - expected)
    assert np.all(gap <= 5.0 * error + slack + 1e-12)


def check(rule, model, share=0.0, **options):
    """Hold all moments of a simulation against the closed forms, at every step.

    Args:
        rule: λ, σ, α, β and u.
        model: of the simulation and of the closed form.
        share: of its largest size that a moment may be off by.
        options: of the simulation.
    """
    begin = {"steps": 25, "theta0": 2.0, "m0": 0.3}
    lam = rule[0]
    paths = simulate_momentum(*rule, **begin, model=model, paths=PATHS, **options)
    m, theta = paths
    seen = np.vstack([theta[:1], theta[:-1]]) if model == "recursion" else theta
    law = momentum_moments(*rule, **begin, model=model)
    loss = momentum_loss(*rule, **begin, model=model)
    error = momentum_error(*rule, **begin, model=model)
    mean_seen = seen.mean(axis=1, keepdims=True)
    pairs = [
        (m, law.mean_m),
        (theta, law.mean_theta),
        ((m - law.mean_m[:, None]) ** 2, law.var_m),
        ((theta - law.mean_theta[:, None]) ** 2, law.var_theta),
        ((m - law.mean_m[:, None]) * (seen - mean_seen), law.cov),
        (m - lam * seen, error.bias),
        ((m - lam * seen - error.bias[:, None]) ** 2, error.variance),
        ((m - lam * seen) ** 2, error.mean_square),
        (0.5 * lam * theta**2, loss.mean),
        ((0.5 * lam * theta**2 - loss.mean[:, None]) ** 2, loss.variance),
    ]
    for values, expected in pairs:
        within(values, expected, share * np.abs(expected).max())


@pytest.mark.parametrize(
    "rule", [(1.0, 1.0, 0.1, 0.9, 0.1), (2.0, 0.5, 0.3, 0.5, 1.0), (0.7, 2.0, 0.2, 0.0, 1.0)]
)
def test_the_recursion(rule):
    check(rule, "recursion", seed=1)


@pytest.mark.parametrize("model", ["sde", "matched"])
def test_the_equations(model):
    """Euler and Maruyama's method is off by about half a substep's decay: 2 % are allowed.

    Var m of the two equations differs by a third.
    """
    check((1.0, 1.0, 0.2, 0.5, 0.5), model, share=0.02, seed=2, substeps=50)


def test_the_stationary_law():
    """The mean over the last 400 steps of each of 2,000 independent paths."""
    rule = (1.0, 1.0, 0.1, 0.9, 0.1)
    paths = simulate_momentum(*rule, steps=600, paths=2000, theta0=0.0, seed=3)
    law = momentum_moments(*rule)
    late = slice(201, None)
    within((paths.m[late] ** 2).mean(axis=0), law.var_m)
    within((paths.theta[late] ** 2).mean(axis=0), law.var_theta)
    within((paths.m[late] * paths.theta[200:-1]).mean(axis=0), law.cov)


def test_one_step_of_euler_and_maruyama():
    """Without noise, both from the values before the step."""
    found = simulate_momentum(
        2.0, 0.0, 0.1, 0.5, 0.8, steps=1, paths=1, model="sde", theta0=3.0, m0=1.0, substeps=1
    )
    assert found.m[1, 0] == pytest.approx(1.0 - 0.5 * 1.0 + 0.8 * 2.0 * 3.0)
    assert found.theta[1, 0] == pytest.approx(3.0 - 0.1 * 1.0)


def test_more_substeps_come_closer_to_the_equation():
    """The mean path's error falls in proportion to the substep."""
    rule = {"sigma": 0.0, "alpha": 0.3, "beta": 0.5, "u": 1.0, "steps": 10, "model": "sde"}
    right = momentum_moments(1.0, **rule).mean_theta
    gaps = [
        np.abs(simulate_momentum(1.0, **rule, paths=1, substeps=n).theta[:, 0] - right).max()
        for n in (20, 200)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(10.0, rel=0.1)


@pytest.mark.parametrize("u", [None, 1.0])
def test_the_recursion_is_the_librarys_optimizer(u):
    """The same noise in both: the theory is about what the optimizer does."""
    lam, sigma, alpha, beta, steps, size = 1.5, 0.7, 0.1, 0.8, 60, 5
    draw = np.random.default_rng(7)
    weight = torch.nn.Parameter(torch.full((size,), 2.0, dtype=torch.float64))
    optimizer = sgdf.UnifiedMomentum([weight], lr=alpha, beta=beta, u=u)
    path = [weight.detach().numpy().copy()]
    for _ in range(steps):
        noise = sigma * torch.from_numpy(draw.standard_normal(size))
        weight.grad = lam * weight.detach() + noise
        optimizer.step()
        path.append(weight.detach().numpy().copy())
    found = simulate_momentum(
        lam, sigma, alpha, beta, u, steps=steps, paths=size, seed=7, theta0=2.0
    )
    np.testing.assert_allclose(found.theta, path, rtol=1e-10, atol=1e-12)


def test_the_path_depends_on_the_rate_times_the_weight():
    """Classical momentum at α is the running mean at α/(1-β), for any loss."""
    alpha, beta = 0.02, 0.9
    path = {"steps": 500, "paths": 3, "seed": 5}
    for gradient in (1.0, np.sinh, np.sin):
        classical = simulate_momentum(gradient, 0.5, alpha, beta, 1.0, **path)
        average = simulate_momentum(gradient, 0.5, alpha / (1.0 - beta), beta, **path)
        np.testing.assert_allclose(classical.theta, average.theta, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(classical.m, average.m / (1.0 - beta), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize(
    "slope",
    [lambda x: x + 0.3 * x**2 / (1.0 + x**2), lambda x: np.where(x > 0.0, 2.0 * x, 0.5 * x)],
    ids=["skewed", "two slopes"],
)
def test_the_stationary_bias_is_zero_for_any_loss(slope):
    """E θ_t = E θ_{t-1} makes E m = 0, and that E∇f = 0, though θ itself has a mean."""
    paths = simulate_momentum(slope, 1.0, 0.2, 0.9, steps=1200, paths=2000, theta0=0.0, seed=6)
    late = slice(200, None)
    within(paths.m[late].mean(axis=0), 0.0)
    within(slope(paths.theta[late]).mean(axis=0), 0.0)
    means = paths.theta[late].mean(axis=0)
    assert abs(means.mean()) > 20.0 * means.std() / math.sqrt(2000)


def test_seeds_repeat_and_differ():
    options = {"steps": 5, "paths": 4}
    one, same, other = (
        simulate_momentum(1.0, 1.0, 0.1, 0.9, **options, seed=s).m for s in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert one.shape == (6, 4)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paths": 0}, "Invalid paths, expected a number at least 1: 0"),
        ({"substeps": 0}, "Invalid substeps, expected a number at least 1: 0"),
        ({"steps": -1}, "Invalid steps, expected a number at least 0: -1"),
        ({"beta": 1.5}, "Invalid beta"),
        ({"model": "euler"}, "Invalid model"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    right = {"gradient": 1.0, "sigma": 1.0, "alpha": 0.1, "beta": 0.9, "steps": 3}
    with pytest.raises(ValueError, match="Invalid") as caught:
        simulate_momentum(**(right | changes))
    assert str(caught.value).startswith(message)
