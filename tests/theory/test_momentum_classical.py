"""Classical momentum on quadratics: its floor under noise and its speed without."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sgdf.theory import best_contraction, contraction, excess_loss, momentum_moments

BETAS = st.floats(0.0, 0.98)


@given(BETAS, st.floats(0.001, 0.99), st.floats(0.1, 5.0), st.floats(0.1, 3.0))
def test_the_floor_in_closed_form(beta, share, lam, sigma):
    rate = share * 2.0 * (1.0 + beta) / (1.0 - beta) / lam
    expected = rate * sigma**2 / (2.0 * (2.0 - rate * lam * (1.0 - beta) / (1.0 + beta)))
    assert excess_loss(rate, beta, lam=lam, sigma=sigma) == pytest.approx(expected, rel=1e-9)
    # Classical momentum, whose learning rate is the effective one times 1 - β.
    law = momentum_moments(lam, sigma, rate * (1.0 - beta), beta, 1.0)
    assert 0.5 * lam * law.var_theta == pytest.approx(expected, rel=1e-6)


def test_where_noise_decides_momentum_changes_nothing():
    """At small effective rates every β has the floor of SGD, a quarter of the rate."""
    floors = [excess_loss(1e-3, beta) for beta in (0.0, 0.5, 0.9, 0.99)]
    np.testing.assert_allclose(floors, 0.25e-3, rtol=6e-4)
    higher = [excess_loss(1.5, beta) for beta in (0.0, 0.5, 0.9, 0.99)]
    assert higher == sorted(higher, reverse=True)


@given(st.floats(0.0, 4.5), BETAS)
def test_the_contraction_is_the_spectral_radius(pull, beta):
    forward = np.array([[beta, 1.0], [-pull * beta, 1.0 - pull]])
    radius = np.abs(np.linalg.eigvals(forward)).max()
    assert contraction(pull, beta) == pytest.approx(radius, abs=1e-6)


@given(st.floats(0.01, 4.5), BETAS)
def test_momentum_contracts_just_where_it_is_stable(pull, beta):
    if abs(pull - 2.0 * (1.0 + beta)) > 1e-9:
        assert (contraction(pull, beta) < 1.0) == (pull < 2.0 * (1.0 + beta))


@given(st.floats(1.0, 1e4), st.floats(0.0, 0.999), st.floats(0.01, 0.999))
def test_no_other_rate_contracts_better(condition, beta, share):
    """Over both ends of the interval of curvatures, which are its slowest."""
    found = best_contraction(condition, beta)
    assert found.beta == beta
    for rate in (found.rate, share * 2.0 * (1.0 + beta)):
        slowest = max(contraction(rate * at, beta) for at in (1.0, 1.0 / condition))
        assert slowest >= found.contraction - 1e-6
    inside = [contraction(found.rate * (s + (1 - s) / condition), beta) for s in (0.2, 0.5, 0.8)]
    assert max(inside) <= found.contraction + 1e-6
    assert max(
        contraction(found.rate * at, beta) for at in (1.0, 1.0 / condition)
    ) == pytest.approx(found.contraction, abs=1e-6)


@given(st.floats(1.0, 1e4), BETAS)
def test_no_other_momentum_contracts_better(condition, beta):
    root = math.sqrt(condition)
    best = best_contraction(condition)
    assert best.contraction == pytest.approx((root - 1.0) / (root + 1.0), abs=1e-12)
    assert best.contraction <= best_contraction(condition, beta).contraction + 1e-12
    plain = best_contraction(condition, 0.0).contraction
    assert plain == pytest.approx((condition - 1.0) / (condition + 1.0), abs=1e-12)
    assert best.contraction <= plain + 1e-12


def test_the_contraction_is_what_a_path_does():
    path = momentum_moments(1.0, 0.0, 0.01, 0.5, 1.0, steps=400).mean_theta
    assert path[-1] / path[-2] == pytest.approx(contraction(0.01, 0.5), rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contraction(-1.0, 0.5), "Invalid pull"),
        (lambda: contraction(1.0, 1.0), "Invalid beta"),
        (lambda: best_contraction(0.5), "Invalid condition, expected a number at least 1: 0.5"),
        (lambda: best_contraction(2.0, -0.1), "Invalid beta"),
        (lambda: excess_loss(2.0, 0.0), "No stationary law"),
    ],
)
def test_wrong_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
