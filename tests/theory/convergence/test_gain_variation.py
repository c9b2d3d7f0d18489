"""The total variation of the powered gain, and the conclusion of Lemma B.7."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies

from adversaries import MOVES, descents, filtered_moves
from sgdf.theory import Descent, gain_variation, gain_variation_bound

FADING = Descent(lr=1.0, gamma=0.5, gamma_decay=0.5)


def noise(steps, copies, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(steps, copies, generator=generator, dtype=torch.float64)


@settings(max_examples=100)
@given(
    strategies.sampled_from([1.0, -0.1, 1e-4]),
    MOVES,
    descents(powers=(0.01, 0.5, 1.0, 3.0), lowest=1e-3),
)
def test_no_sequence_varies_more_than_the_bound(first, moves, descent):
    gradients, outputs = filtered_moves([first, *moves], 1.0, descent)
    varied = torch.cat([out.gain for out in outputs]).diff().abs().cumsum(0).numpy()
    bound = gain_variation_bound(len(moves) + 1, 1.0, gradients[0].item(), descent)
    assert (varied <= bound[1:] * (1.0 + 1e-9) + 1e-12).all()


def test_a_step_changes_the_logarithm_by_no_more_than_its_parts():
    """|Δ ln K| ≤ |Δ ln(r² + ε)| + |Δ ln s| + |Δ ln c|, and ln s falls by at most ln 1/β₂."""
    beta1, beta2 = betas = (0.9, 0.99)
    descent = Descent(lr=1.0, gamma=1.0, betas=betas)
    mean = var = torch.zeros(50, dtype=torch.float64)
    before = None
    for step, gradient in enumerate(noise(100, 50), start=1):
        out = descent.filtered(gradient, mean, var, step)
        mean, var = out.mean, out.var
        residual = gradient - mean / (1.0 - beta1**step)
        weight = (1.0 - beta2**step) / (1.0 - beta1 ** (2 * step))
        parts = torch.stack(
            [(residual.square() + 1e-8).log(), var.log(), torch.full_like(var, math.log(weight))]
        )
        if before is not None:
            gains, old = before
            change = (out.gain.log() - gains.log()).abs()
            assert (change <= (parts - old).abs().sum(0) + 1e-9).all()
            assert (parts[1] - old[1] >= math.log(beta2) - 1e-12).all()
        before = out.gain, parts


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.5), (0.3, 0.09)])
def test_the_correction_is_monotone(betas):
    """Ln c_t moves to its limit in one direction, from the first step on."""
    steps = np.arange(1.0, 200.0)
    weights = np.log((1.0 - betas[1] ** steps) / (1.0 - betas[0] ** (2 * steps)))
    changes = np.diff(weights)
    assert (changes >= -1e-15).all() or (changes <= 1e-15).all()
    total = abs(math.log((1.0 - betas[0] ** 2) / (1.0 - betas[1])))
    assert abs(changes.sum()) <= total + 1e-12


def test_it_grows_linearly_with_a_constant_power():
    """0.294 a step on normal noise, ±0.004: five standard errors of this seed's 500 copies."""
    varied = gain_variation(noise(1500, 500), Descent(lr=1.0, gamma=0.5))
    rate = (varied[-1] - varied[499]) / 1000
    assert abs(rate.mean().item() - 0.294) < 0.004


def test_it_grows_like_a_root_with_a_fading_power():
    """Over each factor of 4 in T by about 2, and never by more than 2.6."""
    varied = gain_variation(noise(3200, 200), FADING).mean(1)
    growth = [(varied[4 * t - 1] / varied[t - 1]).item() for t in (50, 200, 800)]
    assert all(1.9 < factor < 2.6 for factor in growth)
    assert growth[-1] < growth[0]


def test_the_bound_grows_like_a_root_with_a_fading_power():
    bound = gain_variation_bound(1_000_000, 1.0, 1.0, FADING)
    assert bound[999_999] / bound[9_999] == pytest.approx(10.0, rel=0.01)


def test_the_first_step_has_no_variation():
    assert gain_variation(noise(1, 3), FADING).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ({"eps": 0.0}, 1.0),
        ({"betas": (0.9, 0.0)}, 1.0),
        ({"betas": (0.0, 0.9)}, 1.0),
        ({"gamma": 0.0}, 1.0),
        ({}, 0.0),
        ({}, 2.0),
    ],
)
def test_the_conditions_of_the_bound_are_checked(change, first):
    with pytest.raises(ValueError, match="Invalid"):
        gain_variation_bound(10, 1.0, first, Descent(lr=1.0, **change))


def test_gradients_without_a_step_are_refused():
    with pytest.raises(ValueError, match="without a step"):
        gain_variation(torch.zeros(0, 3), FADING)
