"""The estimate's distance from the gradient, for every sequence of bounded gradients."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies

from adversaries import MOVES, descents, filtered_moves
from sgdf import filter_gradient
from sgdf.theory import Descent, distance_bound
from sgdf.theory.convergence.distance import log_gain_floor

SIZES = strategies.sampled_from([1e-3, 1.0, 50.0])


@settings(max_examples=100)
@given(MOVES, SIZES, descents())
def test_no_estimate_is_further_from_its_gradient_than_the_bound(moves, size, descent):
    gradients, outputs = filtered_moves(moves, size, descent)
    distances = (torch.cat([out.estimate for out in outputs]) - gradients).abs().numpy()
    bound = distance_bound(len(moves), size, descent)
    assert (distances <= bound * (1.0 + 1e-9) + 1e-12 * size).all()


@settings(max_examples=100)
@given(MOVES, SIZES, descents())
def test_the_gain_has_a_floor_where_a_residual_counts(moves, size, descent):
    """K ≥ exp(−Λ) if |r| ≥ max(√ε, 2β₁ᵗG): what the bound on the distance rests on."""
    gradients, outputs = filtered_moves(moves, size, descent)
    beta1 = descent.betas[0]
    for step, (gradient, out) in enumerate(zip(gradients, outputs, strict=True), start=1):
        residual = abs(gradient - out.mean / (1.0 - beta1**step)).item()
        if residual >= max(math.sqrt(descent.eps), 2.0 * beta1**step * size, 1e-12 * size):
            floor = math.exp(-descent.exponent(step) * log_gain_floor(descent.betas))
            assert out.gain.item() >= floor * (1.0 - 1e-9)


def test_the_bound_is_reached_within_its_order_by_a_jump():
    """After long calm a jump meets a small variance: the estimate stays at the mean."""
    gradients = torch.zeros(400, dtype=torch.float64)
    gradients[:2] = torch.tensor([1e-3, -1e-3])
    gradients[-1] = 1.0
    mean = var = torch.zeros((), dtype=torch.float64)
    for step, gradient in enumerate(gradients, start=1):
        out = filter_gradient(gradient, mean, var, step, betas=(0.9, 0.999), eps=1e-8, gamma=0.5)
        mean, var = out.mean, out.var
    distance = (gradients[-1] - out.estimate).item()
    bound = distance_bound(400, 1.0, Descent(lr=1.0))[-1]
    assert 0.4 * bound < distance < bound


def test_the_first_steps_need_a_term_of_their_own():
    """A gradient at m, not m̂, has s = 0 and so K = 0 however small the power, if β₂ = 0."""
    descent = Descent(lr=1.0, gamma=0.001, betas=(0.99, 0.0), eps=0.0)
    gradients, outputs = filtered_moves([1.0, ("mean", 0.0)], 1.0, descent)
    distance = abs(outputs[1].estimate - gradients[1]).item()
    assert distance == pytest.approx(0.99**2 / (1.0 + 0.99), rel=1e-6)
    without_it = 1.98 * (1.0 - math.exp(-0.001 * log_gain_floor(descent.betas)))
    assert without_it < distance <= distance_bound(2, 1.0, descent)[1]


def test_the_bound_fades_with_the_power():
    """It falls like 1/√t down to √ε with γ_t = γ₀/√t, and does not fall with a constant power."""
    fading = distance_bound(1_000_000, 1.0, Descent(lr=1.0, gamma_decay=0.5, eps=1e-4))
    assert fading[999_999] == pytest.approx(0.1 * fading[9_999], rel=0.04)
    floor = distance_bound(1_000_000, 1.0, Descent(lr=1.0, gamma_decay=1.0, eps=1e-4))
    assert floor[-1] == 0.01
    constant = distance_bound(1_000, 1.0, Descent(lr=1.0))
    assert constant[-1] == pytest.approx(1.8 * (1.0 - math.exp(-0.5 * 13.5924)), rel=1e-4)


def test_sgd_has_no_distance():
    assert not distance_bound(10, 1.0, Descent(lr=1.0, gamma=0.0)).any()
    assert not distance_bound(10, 1.0, Descent(lr=1.0, betas=(0.0, 0.999))).any()


@pytest.mark.parametrize(("steps", "size"), [(0, 1.0), (5, 0.0), (5, math.nan)])
def test_wrong_arguments_are_refused(steps, size):
    with pytest.raises(ValueError, match="Invalid"):
        distance_bound(steps, size, Descent(lr=1.0))


def test_the_floor_follows_its_formula():
    assert np.exp(-log_gain_floor((0.5, 0.5))) == pytest.approx(1.0 / (1.0 + 8.0 / 0.125))
