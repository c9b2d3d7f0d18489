"""What the filter adds to the running mean: exact form and bounds, in the filter itself."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgdf import filter_gradient
from sgdf.filter import filter_scalars
from sgdf.theory import influence, influence_bound

SIZE = st.floats(-6.0, 6.0).map(lambda exponent: 10.0**exponent)
SIGNED = st.tuples(SIZE, st.sampled_from([-1.0, 1.0])).map(lambda pair: pair[0] * pair[1])
GAMMA = st.floats(0.5, 3.0)
EPS = st.one_of(st.just(0.0), st.floats(1e-8, 10.0))
BETAS = st.tuples(st.floats(0.0, 0.99), st.floats(0.0, 0.999))


def filtered(gradients, betas, gamma, eps):
    """Yield residual, variance of the mean by the filter, and what it adds to the mean."""
    mean = var = torch.zeros(1, dtype=torch.float64)
    for step, gradient in enumerate(gradients, start=1):
        grad = torch.tensor([gradient], dtype=torch.float64)
        out = filter_gradient(grad, mean, var, step, betas=betas, eps=eps, gamma=gamma)
        mean, var = out.mean, out.var
        scalars = filter_scalars(
            step, betas=betas, gamma=gamma, gamma_decay=0.0, correction="paper"
        )
        corrected = mean / scalars.mean_correction
        variance = var / scalars.residual_weight
        yield (grad - corrected).item(), variance.item(), (out.estimate - corrected).item()


@given(st.lists(st.floats(-5.0, 5.0), min_size=2, max_size=10), BETAS, st.floats(0.0, 3.0), EPS)
def test_the_filter_adds_its_influence(gradients, betas, gamma, eps):
    for residual, variance, added in filtered(gradients, betas, gamma, eps):
        expected = influence(residual, variance, gamma=gamma, eps=eps)
        assert added == pytest.approx(float(expected), rel=1e-6, abs=1e-12)


@given(st.lists(SIGNED, min_size=2, max_size=10), BETAS, EPS)
def test_the_filter_stays_within_one_standard_error(gradients, betas, eps):
    """|ĝ − m̂| ≤ √ŝ for γ = ½, and half of it for γ = 1, whatever the gradients are."""
    rounding = 1e-12 * max(map(abs, gradients))
    for gamma, share in ((0.5, 1.0), (1.0, 0.5)):
        for _, variance, added in filtered(gradients, betas, gamma, eps):
            assert abs(added) <= share * math.sqrt(variance) * (1 + 1e-9) + rounding


@given(SIGNED, SIZE)
def test_the_default_is_a_soft_clamp(residual, variance):
    expected = residual / math.sqrt(1 + residual**2 / variance)
    assert influence(residual, variance) == pytest.approx(expected, rel=1e-12)
    assert influence(-residual, variance) == -influence(residual, variance)


@given(SIGNED, SIZE, GAMMA, EPS)
def test_the_bound_holds(residual, variance, gamma, eps):
    bound = influence_bound(variance, gamma=gamma, eps=eps)
    assert abs(influence(residual, variance, gamma=gamma, eps=eps)) <= bound * (1 + 1e-12)
    assert bound <= influence_bound(variance, gamma=gamma) * (1 + 1e-12)


@given(SIZE, st.floats(0.51, 3.0), EPS)
def test_the_bound_is_reached(variance, gamma, eps):
    peak = math.sqrt((variance + eps) / (2 * gamma - 1))
    reached = influence(peak, variance, gamma=gamma, eps=eps)
    assert reached == pytest.approx(float(influence_bound(variance, gamma=gamma, eps=eps)))


@given(SIZE, EPS)
def test_a_root_comes_as_close_as_one_likes_and_a_smaller_power_has_no_bound(variance, eps):
    huge = 1e9 * math.sqrt(variance + eps)
    assert influence(huge, variance, eps=eps) == pytest.approx(math.sqrt(variance))
    assert influence_bound(variance, gamma=0.4, eps=eps) == math.inf
    growth = influence([huge, 100 * huge], variance, gamma=0.4, eps=eps)
    assert growth[1] / growth[0] == pytest.approx(100**0.2)


def test_nothing_is_added_without_variance():
    assert influence([0.0, 1.0], 0.0).tolist() == [0.0, 0.0]
    assert influence_bound(0.0, gamma=0.3) == 0.0
    assert influence_bound(0.0) == influence_bound(0.0, gamma=1.0) == 0.0
    assert influence(np.ones((2, 1)), np.ones(3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variance": -1.0}, "Invalid variance, negative: -1.0"),
        ({"gamma": -0.5}, "Invalid gamma, negative: -0.5"),
        ({"eps": math.nan}, "Invalid eps, negative: nan"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    options = {"variance": 1.0} | changes
    for function in (lambda **named: influence(1.0, **named), influence_bound):
        with pytest.raises(ValueError, match="Invalid") as caught:
            function(**options)
        assert str(caught.value) == message
