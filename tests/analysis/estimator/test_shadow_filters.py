"""Shadow filters: each estimates what its optimizer steps with, and changes nothing."""

import numpy as np
import pytest
import torch

import sgdf
from sgdf.analysis.estimator.filters import (
    FixedGain,
    Momentum,
    RawGradient,
    RunningMean,
    SGDFEstimate,
)
from sgdf.analysis.estimator.half_batch_kalman import HalfBatchKalman
from sgdf.analysis.estimator.shadow_filter import Observation
from small_network import network

FILTERS = [
    RawGradient(),
    RunningMean(),
    Momentum(),
    Momentum(scale=0.1),
    FixedGain(),
    SGDFEstimate(),
    HalfBatchKalman(),
]


def observations(steps, shape=(4, 3), seed=0):
    """Return a drifting gradient, seen in two half batches."""
    random = torch.Generator().manual_seed(seed)
    signal, seen = torch.zeros(shape, dtype=torch.float64), []
    for _ in range(steps):
        signal = signal + torch.randn(shape, generator=random, dtype=torch.float64) / 4
        first, second = signal + torch.randn(2, *shape, generator=random, dtype=torch.float64)
        seen.append(Observation((first + second) / 2, (first - second) / 2))
    return seen


def estimates(shadow, seen):
    """Return the estimates after each observation."""
    state, found = None, []
    for observation in seen:
        estimate, state = shadow.step(state, observation)
        found.append(estimate)
    return found


def test_the_gain_is_a_soft_clamp_to_one_standard_error():
    """For γ = ½ and ε = 0 the estimate is m̂ + r / √(1 + r²/v): never off by more than √v."""
    seen, shadow, state = observations(300), SGDFEstimate(eps=0.0), None
    for observation in seen:
        found = shadow.filter(state, observation.grad)
        residual, variance = found.residual, found.mean_variance
        if state is not None:  # at the first step there is no residual, and no variance
            clamped = found.corrected_mean + residual / (1 + residual.square() / variance).sqrt()
            torch.testing.assert_close(found.estimate, clamped, rtol=1e-12, atol=1e-12)
            assert ((found.estimate - found.corrected_mean).abs() <= variance.sqrt()).all()
        state = found.moments


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.95, 0.99)])
@pytest.mark.parametrize(("gamma", "correction"), [(0.5, "paper"), (1.0, "none")])
def test_sgdf_steps_with_the_estimate_of_its_shadow(betas, gamma, correction):
    """Over 200 steps of a real training, to rounding in float64."""
    model, inputs, targets = network()
    params = list(model.parameters())
    options = {"betas": betas, "gamma": gamma, "correction": correction}
    optimizer = sgdf.SGDF(params, lr=0.5, **options)
    shadow, states = SGDFEstimate(**options), [None] * len(params)
    for step in range(200):
        optimizer.zero_grad()
        chosen = torch.arange(4) + 4 * (step % 4)
        torch.nn.functional.mse_loss(model(inputs[chosen]), targets[chosen]).backward()
        before = [param.detach().clone() for param in params]
        found = [
            shadow.step(state, Observation(param.grad))
            for state, param in zip(states, params, strict=True)
        ]
        optimizer.step()
        for param, old, (estimate, _) in zip(params, before, found, strict=True):
            torch.testing.assert_close(old - param.detach(), 0.5 * estimate, rtol=0, atol=1e-13)
        states = [state for _, state in found]


@pytest.mark.parametrize(
    ("shadow", "optimizer"),
    [
        (RawGradient(), lambda params: torch.optim.SGD(params, lr=1.0)),
        (Momentum(0.8), lambda params: torch.optim.SGD(params, lr=1.0, momentum=0.8)),
        (
            Momentum(0.8, 1.0 - 0.8),
            lambda params: sgdf.UnifiedMomentum(params, lr=1.0, beta=0.8),
        ),
    ],
)
def test_forms_of_momentum_are_those_of_the_optimizers(shadow, optimizer):
    weight = torch.nn.Parameter(torch.zeros(4, 3, dtype=torch.float64))
    stepping, seen = optimizer([weight]), observations(50)
    for observation, estimate in zip(seen, estimates(shadow, seen), strict=True):
        before = weight.detach().clone()
        weight.grad = observation.grad
        stepping.step()
        torch.testing.assert_close(before - weight.detach(), estimate, rtol=1e-12, atol=1e-12)


def test_a_running_mean_is_free_of_its_start_and_a_fixed_gain_mixes():
    seen = observations(5)
    weights = 0.9 ** torch.arange(4.0, -1.0, -1.0, dtype=torch.float64)
    mean = sum(w * one.grad for w, one in zip(weights, seen, strict=True)) / weights.sum()
    torch.testing.assert_close(estimates(RunningMean(0.9), seen)[-1], mean)
    mixed = estimates(FixedGain(0.9, 0.25), seen)[-1]
    torch.testing.assert_close(mixed, 0.75 * mean + 0.25 * seen[-1].grad)


@pytest.mark.parametrize("shadow", FILTERS, ids=lambda shadow: shadow.name)
def test_a_state_can_be_shown_any_number_of_mini_batches(shadow):
    *past, last = observations(20)
    state = None
    for observation in past:
        _, state = shadow.step(state, observation)
    kept = [one.grad.clone() for one in past]
    first, _ = shadow.step(state, last)
    for other in observations(10, seed=1):
        shadow.step(state, other)
    again, _ = shadow.step(state, last)
    assert torch.equal(first, again)
    assert all(torch.equal(one.grad, copy) for one, copy in zip(past, kept, strict=True))


def half_batch_kalman(grads, noises):
    """Return the estimates of the half-batch Kalman filter, line by line, in NumPy."""
    estimate = level = np.zeros_like(grads[0])
    products, moments, innovation, noise = np.zeros((2, 2)), np.zeros(2), 0.0, 0.0
    found = []
    for t, (g, h) in enumerate(zip(grads, noises, strict=True)):
        w = level / (1 - 0.95**t) if t else level
        a, c = 1.0, 0.0
        if t >= 4:
            ridge = 1e-3 * np.trace(products) / 2 * np.eye(2)
            a, c = np.clip(np.linalg.solve(products + ridge, moments), -2, 2)
        p = a * estimate + c * w
        innovation = 0.9 * innovation + 0.1 * np.sum((g - p) ** 2)
        noise = 0.9 * noise + 0.1 * np.sum(h**2)
        past = np.array([[np.sum(x * y) for y in (estimate, w)] for x in (estimate, w)])
        products = 0.9 * products + 0.1 * past
        moments = 0.9 * moments + 0.1 * np.array([np.sum(estimate * g), np.sum(w * g)])
        estimate = p + np.clip(1 - noise / innovation, 0.02, 1) * (g - p)
        level = 0.95 * level + 0.05 * g
        found.append(estimate)
    return found


def test_half_batch_kalman_is_as_written_down():
    seen = observations(100)
    expected = half_batch_kalman([o.grad.numpy() for o in seen], [o.noise.numpy() for o in seen])
    for found, wanted in zip(estimates(HalfBatchKalman(), seen), expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-12)


def test_half_batch_kalman_needs_the_noise_and_stands_zeros():
    with pytest.raises(ValueError, match="needs the noise of half batches"):
        HalfBatchKalman().step(None, Observation(torch.ones(2)))
    zeros = Observation(torch.zeros(2), torch.zeros(2))
    assert all(not one.any() for one in estimates(HalfBatchKalman(), [zeros] * 8))
