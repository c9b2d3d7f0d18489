"""The law of momentum on a quadratic, against other ways to the same numbers."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdf.theory import momentum_error, momentum_loss, momentum_moments

BETAS = st.floats(0.0, 0.98)
CURVATURES = st.floats(0.05, 3.0)


@st.composite
def settled(draw, largest=0.98):
    """Draw parameters whose recursion settles: λ, σ, α, β, u with a = αuλ inside of the limit."""
    beta, lam = draw(BETAS), draw(CURVATURES)
    pull = 2.0 * (1.0 + beta) * draw(st.floats(0.01, largest))
    u = (1.0 - beta) * draw(st.floats(1.0, 10.0))
    return lam, draw(st.floats(0.1, 3.0)), pull / (u * lam), beta, u


def state_space(lam, sigma, alpha, beta, u):
    """Return the recursion as matrices, written down from m_t and θ_t = θ_{t-1} - α m_t."""
    m = np.array([beta, u * lam])
    forward = np.array([m, [0.0, 1.0] - alpha * m])
    noise = u * sigma * np.array([1.0, -alpha])
    return forward, np.outer(noise, noise)


def lyapunov(forward, noise):
    """Return P = A P Aᵀ + Q, solved as one linear system."""
    size = len(forward)
    system = np.eye(size**2) - np.kron(forward, forward)
    return np.linalg.solve(system, noise.ravel()).reshape(size, size)


@given(settled())
def test_the_stationary_recursion_solves_lyapunovs_equation(rule):
    """The covariance of m_t with θ_{t-1} is that with θ_t, and α Var m more."""
    (var_m, cov), (_, var_theta) = lyapunov(*state_space(*rule))
    found = momentum_moments(*rule)
    np.testing.assert_allclose(
        [found.var_m, found.var_theta, found.cov],
        [var_m, var_theta, cov + rule[2] * var_m],
        rtol=1e-6,
    )
    assert (found.mean_m, found.mean_theta) == (0.0, 0.0)


@given(settled())
def test_the_stationary_equations_solve_lyapunovs(rule):
    """M P + P Mᵀ + Q = 0 of continuous time, for the paper's equation and the matched one."""
    lam, sigma, alpha, beta, u = rule
    kappa = -math.log(beta) if beta else math.nan
    equations = {"sde": (1.0 - beta, u, u * sigma)}
    if beta > 0.0:
        noise = u * sigma * math.sqrt(2.0 * kappa / (1.0 - beta**2))
        equations["matched"] = (kappa, u * kappa / (1.0 - beta), noise)
    for model, (rate, gain, noise) in equations.items():
        drift = np.array([[-rate, gain * lam], [-alpha, 0.0]])
        found = momentum_moments(*rule, model=model)
        law = np.array([[found.var_m, found.cov], [found.cov, found.var_theta]])
        rest = drift @ law + law @ drift.T + np.diag([noise**2, 0.0])
        np.testing.assert_allclose(rest, 0.0, atol=1e-9 * noise**2)


@pytest.mark.parametrize("model", ["recursion", "sde", "matched"])
@pytest.mark.parametrize("beta", [0.2, 0.9])
def test_the_path_ends_in_the_stationary_law(model, beta):
    rule = (1.5, 0.7, 0.2, beta, 1.0 - beta)
    path = momentum_moments(*rule, steps=600, model=model, theta0=3.0)
    stationary = momentum_moments(*rule, model=model)
    for along, end in zip(path, stationary, strict=True):
        assert along.shape == (601,)
        assert along[-1] == pytest.approx(end, rel=1e-9, abs=1e-11)


@given(settled(), st.floats(-2.0, 2.0), st.floats(-2.0, 2.0))
def test_means_are_powers_of_the_matrix(rule, theta0, m0):
    forward, _ = state_space(*rule)
    found = momentum_moments(*rule, steps=20, theta0=theta0, m0=m0)
    for t in (0, 1, 7, 20):
        mean = np.linalg.matrix_power(forward, t) @ [m0, theta0]
        np.testing.assert_allclose([found.mean_m[t], found.mean_theta[t]], mean, atol=1e-9)


def test_means_of_the_recursion_in_closed_form():
    """Real and complex roots z of z² - (1+β-a)z + β; the mean of m is the step of θ."""
    for alpha, beta, u in [(0.05, 0.3, 0.7), (0.1, 0.9, 0.1), (0.3, 0.5, 1.0)]:
        lam, theta0 = 1.2, 2.0
        a = alpha * u * lam
        plus, minus = np.roots([1.0, -(1.0 + beta - a), beta]).astype(complex)
        t = np.arange(41)
        theta = theta0 * ((1 - a - minus) * plus**t - (1 - a - plus) * minus**t) / (plus - minus)
        found = momentum_moments(lam, 1.0, alpha, beta, u, steps=40, theta0=theta0)
        np.testing.assert_allclose(found.mean_theta, theta.real, atol=1e-12)
        np.testing.assert_allclose(found.mean_m[1:], -np.diff(theta.real) / alpha, atol=1e-11)


def test_means_of_the_equation_in_closed_form():
    """Real and complex rates r of r² - (1-β)r + a."""
    for alpha, beta, u in [(0.05, 0.3, 0.7), (0.1, 0.9, 0.1), (0.3, 0.5, 1.0)]:
        lam, theta0 = 1.2, 2.0
        fast, slow = np.roots([1.0, -(1.0 - beta), alpha * u * lam]).astype(complex)
        t = np.arange(41)
        theta = theta0 * (fast * np.exp(-slow * t) - slow * np.exp(-fast * t)) / (fast - slow)
        m = u * lam * theta0 * (np.exp(-slow * t) - np.exp(-fast * t)) / (fast - slow)
        found = momentum_moments(lam, 1.0, alpha, beta, u, steps=40, model="sde", theta0=theta0)
        np.testing.assert_allclose(found.mean_theta, theta.real, atol=1e-12)
        np.testing.assert_allclose(found.mean_m, m.real, atol=1e-12)


@given(settled())
def test_covariances_are_sums_over_all_noise_so_far(rule):
    forward, noise = state_space(*rule)
    powers = [np.linalg.matrix_power(forward, k) for k in range(15)]
    (var_m, cov), (_, var_theta) = sum(power @ noise @ power.T for power in powers)
    found = momentum_moments(*rule, steps=15)
    np.testing.assert_allclose(found.var_m[-1], var_m, rtol=1e-9)
    np.testing.assert_allclose(found.var_theta[-1], var_theta, rtol=1e-9)
    np.testing.assert_allclose(found.cov[-1], cov + rule[2] * var_m, atol=1e-9 * var_m)


@pytest.mark.parametrize("model", ["sde", "matched"])
def test_covariances_of_the_equation_approach_their_limit_by_its_own_flow(model):
    """P(t) = P - exp(Mt) P exp(Mt)ᵀ; the exponential is read off the means."""
    rule = (1.5, 0.7, 0.2, 0.4, 0.8)
    stationary = momentum_moments(*rule, model=model)
    end = np.diag([stationary.var_m, stationary.var_theta])
    columns = [
        momentum_moments(*rule, steps=12, model=model, m0=m0, theta0=theta0)
        for m0, theta0 in ((1.0, 0.0), (0.0, 1.0))
    ]
    for t in range(13):
        flow = np.array([[c.mean_m[t] for c in columns], [c.mean_theta[t] for c in columns]])
        (var_m, cov), (_, var_theta) = end - flow @ end @ flow.T
        found = [columns[0].var_m[t], columns[0].cov[t], columns[0].var_theta[t]]
        np.testing.assert_allclose(found, [var_m, cov, var_theta], atol=1e-12)


def test_a_stiff_equation_keeps_its_digits():
    """Momentum settles within 1/46 of a step; what remains is white noise of variance n²/2r."""
    found = momentum_moments(0.0, 1.0, 0.1, 1e-20, 1.0, steps=3, model="matched")
    np.testing.assert_allclose(found.var_m[1:], 1.0, rtol=1e-12)


@given(st.floats(0.0, 0.99))
def test_with_a_constant_gradient_the_equation_has_another_variance(beta):
    """The rate plays no part: m varies by 2/(1+β) less, which is half of it for plain SGD."""
    steps = 40 + math.ceil(12.0 / (1.0 - beta))
    still = {"sigma": 1.0, "alpha": 0.0, "beta": beta, "steps": steps}
    recursion, equation = (momentum_moments(1.0, **still, model=m) for m in ("recursion", "sde"))
    assert recursion.var_m[-1] == pytest.approx((1.0 - beta) / (1.0 + beta), rel=1e-9)
    assert recursion.var_m[-1] / equation.var_m[-1] == pytest.approx(2.0 / (1.0 + beta), rel=1e-9)


@pytest.mark.parametrize("beta", [0.3, 0.9])
def test_the_matched_equation_is_exact_for_a_constant_gradient(beta):
    still = {"sigma": 1.3, "alpha": 0.0, "beta": beta, "u": 0.8, "steps": 30, "theta0": 2.0}
    recursion = momentum_moments(1.5, **still)
    matched = momentum_moments(1.5, **still, model="matched")
    np.testing.assert_allclose(matched.mean_m, recursion.mean_m, rtol=1e-10)
    np.testing.assert_allclose(matched.var_m, recursion.var_m, rtol=1e-10)


@pytest.mark.parametrize("beta", [0.3, 0.9])
def test_the_papers_equation_spreads_the_parameter_as_the_recursion_does(beta):
    """On a plain without slope θ diffuses by α²u²σ²/(1-β)² a step: the matched one has less."""
    plain = {"sigma": 1.0, "alpha": 0.1, "beta": beta, "u": 1.0, "steps": 500}
    speeds = {
        model: np.diff(momentum_moments(0.0, **plain, model=model).var_theta)[-1]
        for model in ("recursion", "sde", "matched")
    }
    assert speeds["recursion"] == pytest.approx(0.01 / (1.0 - beta) ** 2, rel=1e-9)
    assert speeds["sde"] == pytest.approx(speeds["recursion"], rel=1e-9)
    share = 2.0 * (1.0 - beta) / (-math.log(beta) * (1.0 + beta))
    assert speeds["matched"] == pytest.approx(share * speeds["recursion"], rel=1e-9)


@given(settled())
def test_how_far_the_stationary_equation_is_from_the_recursion(rule):
    """In Var m by (2(1+β)-a)/4, in Var θ by 1 - a/(2(1+β)): the rate alone mends the second."""
    lam, _, alpha, beta, u = rule
    a = alpha * u * lam
    recursion, equation = (momentum_moments(*rule, model=m) for m in ("recursion", "sde"))
    assert equation.var_m / recursion.var_m == pytest.approx((2 * (1 + beta) - a) / 4)
    share = 1.0 - a / (2.0 * (1.0 + beta))
    assert equation.var_theta / recursion.var_theta == pytest.approx(share, rel=1e-6)
    correlation = recursion.cov / math.sqrt(recursion.var_m * recursion.var_theta)
    assert correlation == pytest.approx(math.sqrt(a / (2.0 * (1.0 + beta))))


def test_mean_paths_meet_as_momentum_grows():
    """With a = 1 - β: the largest gap within 5/(1-β) steps falls to 0 as β → 1."""
    gaps = []
    for beta in (0.9, 0.99, 0.999, 0.9999):
        recursion, equation = (
            momentum_moments(1.0, 0.0, 1.0, beta, steps=round(5.0 / (1.0 - beta)), model=m)
            for m in ("recursion", "sde")
        )
        gaps.append(np.abs(recursion.mean_theta - equation.mean_theta).max())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01


@given(settled())
def test_the_stationary_error_in_closed_form(rule):
    lam, sigma, alpha, beta, u = rule
    a = alpha * u * lam
    found = momentum_error(*rule)
    expected = (2 * u**2 + (1 + beta) * a - 2 * u * a) * sigma**2
    expected /= (1 - beta) * (2 * (1 + beta) - a)
    assert found.mean_square == pytest.approx(expected, rel=1e-6)
    assert found.bias == 0.0
    equation = (u**2 + a) * sigma**2 / (2 * (1 - beta))
    assert momentum_error(*rule, model="sde").mean_square == pytest.approx(equation, rel=1e-9)


@pytest.mark.parametrize("model", ["recursion", "sde"])
def test_the_error_along_a_path_ends_in_the_stationary_one(model):
    rule = (1.0, 1.0, 0.1, 0.9)
    path = momentum_error(*rule, steps=600, model=model, theta0=5.0)
    assert path.bias[0] == -5.0
    assert path.mean_square[-1] == pytest.approx(momentum_error(*rule, model=model).mean_square)


def test_the_errors_target_is_the_gradient_before_the_step():
    """One step: m₁ = u(λθ₀ + ε₁) has the bias (u-1)λθ₀ and the variance u²σ² about λθ₀."""
    found = momentum_error(1.5, 2.0, 0.1, 0.9, 0.4, steps=1, theta0=3.0)
    assert found.bias[1] == pytest.approx((0.4 - 1.0) * 4.5)
    assert found.variance[1] == pytest.approx(0.4**2 * 2.0**2)


def test_bias_and_variance_alone_are_not_the_error():
    """The lemma treats the gradient as a constant; it varies, with the noise that m has seen."""
    moments, error = (f(1.0, 1.0, 0.1, 0.9) for f in (momentum_moments, momentum_error))
    assert error.bias**2 + moments.var_m == pytest.approx(0.0528, abs=5e-5)
    assert error.mean_square == pytest.approx(0.0976, abs=5e-5)


@given(st.floats(0.01, 5.0).filter(lambda c: abs(c - 2.0) > 0.05), st.floats(0.0, 1.0))
def test_a_running_means_error_falls_with_beta(c, share):
    """Wherever it settles, β > (c-2)/(c+2), for c = αλ ≠ 2: slope -2(2-c)²/(2(1+β) - c(1-β))²."""
    least = max(0.0, (c - 2.0) / (c + 2.0) + 0.02)
    beta = least + share * (0.99 - least)

    def error(at):
        return momentum_error(1.0, 1.0, c, at).mean_square

    slope = -2.0 * (2.0 - c) ** 2 / (2.0 * (1.0 + beta) - c * (1.0 - beta)) ** 2
    step = 1e-4 * (beta - (c - 2.0) / (c + 2.0) if c > 2.0 else 1.0)
    measured = (error(beta + step) - error(beta)) / step
    assert measured < 0.0
    assert measured == pytest.approx(slope, rel=1e-2)
    assert error(0.999999) == pytest.approx(c / 2.0, rel=1e-4)


def test_in_a_transient_a_running_mean_has_a_best_beta():
    """20 steps after θ = 10 the best decay is in between; after 1,000 it is the largest."""
    betas = np.linspace(0.0, 0.99, 100)
    errors = np.array(
        [
            momentum_error(1.0, 1.0, 0.01, b, steps=1000, theta0=10.0).mean_square[[20, 1000]]
            for b in betas
        ]
    )
    soon, late = betas[errors.argmin(axis=0)]
    assert 0.3 < soon < 0.9
    assert late > soon


def test_noise_is_no_part_of_the_bias():
    """On a quadratic the mean path is the path without noise, to the last digit."""
    still, noisy = (
        momentum_error(1.0, sigma, 0.1, 0.9, steps=50, theta0=2.0).bias for sigma in (0.0, 5.0)
    )
    np.testing.assert_array_equal(still, noisy)


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_the_slow_mode_lags_by_a_known_share(sigma):
    """E m_t / E∇f(θ_{t-1}) tends to y/(αλ); for a running mean about 1 + αλβ/(1-β)."""
    alpha, beta, lam = 0.001, 0.9, 1.0
    a = alpha * (1 - beta) * lam
    y = 0.5 * ((1 - beta + a) - math.sqrt((1 - beta + a) ** 2 - 4 * a))
    found = momentum_moments(lam, sigma, alpha, beta, steps=400)
    ratio = found.mean_m[-1] / (lam * found.mean_theta[-2])
    assert ratio == pytest.approx(y / (alpha * lam), rel=1e-9)
    assert ratio - 1.0 == pytest.approx(alpha * lam * beta / (1 - beta), rel=0.02)


@given(settled())
def test_the_stationary_loss(rule):
    """A squared normal variable: its standard deviation is √2 times its mean."""
    lam = rule[0]
    loss = momentum_loss(*rule)
    assert loss.mean == pytest.approx(0.5 * lam * momentum_moments(*rule).var_theta)
    assert loss.variance == pytest.approx(2.0 * loss.mean**2)


@given(settled(), st.floats(-3.0, 3.0))
def test_a_steps_gain_in_loss(rule, theta0):
    """E f(θ_t) - E f(θ_{t-1}) = -αλ E θ_{t-1} m_t + ½λα² E m_t².

    Continuous time has the first term alone: θ has no noise of its own there, and Itô's lemma adds
    nothing.
    """
    lam, _, alpha, _, _ = rule
    loss = momentum_loss(*rule, steps=20, theta0=theta0).mean
    law = momentum_moments(*rule, steps=20, theta0=theta0)
    together = law.cov[1:] + law.mean_m[1:] * law.mean_theta[:-1]
    square = law.var_m[1:] + law.mean_m[1:] ** 2
    expected = -alpha * lam * together + 0.5 * lam * alpha**2 * square
    np.testing.assert_allclose(np.diff(loss), expected, atol=1e-8 * (1.0 + loss.max()))


def test_the_loss_of_the_equation_falls_by_itos_lemma():
    """It says d E f = -αλ E θm dt: the integral over fine steps is the closed form's difference."""
    fine = 400
    # The same equation with time 400 times slower, so that whole steps are fine ones.
    lam, sigma, alpha, beta, u = 1.0, 1.0, 0.3, 0.6, 0.4
    slow = 1.0 - (1.0 - beta) / fine
    rule = (lam, sigma * math.sqrt(fine), alpha / fine, slow, u / fine)
    law = momentum_moments(*rule, steps=10 * fine, model="sde", theta0=2.0)
    slope = -alpha * lam * (law.cov + law.mean_m * law.mean_theta)
    integral = np.sum(0.5 * (slope[1:] + slope[:-1])) / fine
    loss = momentum_loss(lam, sigma, alpha, beta, u, steps=10, model="sde", theta0=2.0).mean
    assert loss[-1] - loss[0] == pytest.approx(integral, rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beta": 1.0}, "Invalid beta, expected a number at least 0 and below 1: 1.0"),
        ({"beta": math.nan}, "Invalid beta, expected a number at least 0 and below 1: nan"),
        ({"sigma": -1.0}, "Invalid sigma, expected a number at least 0: -1.0"),
        ({"alpha": math.inf}, "Invalid alpha, expected a number at least 0: inf"),
        ({"lam": math.nan}, "Invalid lam, expected a number finite: nan"),
        ({"u": 0.0}, "Invalid u, expected a positive number: 0.0"),
        ({"steps": -1}, "Invalid steps, expected at least 0: -1"),
        ({"theta0": math.inf}, "Invalid theta0"),
        ({"model": "ode"}, "Invalid model, expected one of recursion, sde, matched: 'ode'"),
        (
            {"alpha": 40.0, "u": 0.1},
            "No stationary law: alpha * u * lam = 4 is not between 0 and 3.8",
        ),
        ({"alpha": 0.0}, "No stationary law: alpha * u * lam = 0 is not between 0 and 3.8"),
        ({"lam": -1.0, "model": "sde"}, "No stationary law"),
        ({"beta": 0.0, "model": "matched"}, "Invalid beta, the matched equation needs one above"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    right = {"lam": 1.0, "sigma": 1.0, "alpha": 0.1, "beta": 0.9}
    with pytest.raises(ValueError, match=r"Invalid|No stationary law") as caught:
        momentum_moments(**(right | changes))
    assert str(caught.value).startswith(message)


def test_the_limit_of_stability():
    """Just inside, the law is finite and the path stays; just outside, it grows for ever."""
    inside, outside = (factor * 3.8 / 0.1 for factor in (0.99, 1.01))
    assert momentum_moments(1.0, 1.0, inside, 0.9).var_m > 0.0
    grown = momentum_moments(1.0, 1.0, outside, 0.9, steps=200).var_theta
    assert grown[-1] > 1e6 * grown[30]
