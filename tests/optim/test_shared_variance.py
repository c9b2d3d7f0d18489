"""One variance for a tensor: what it is, when it is used, and what it cannot be spoilt by."""

import math

import pytest
import torch

import sgdf
from cases import CASES
from formats import SHARING, build, draw_like, each_step_path, parameters, take_steps
from sgdf.filter import filter_by_element, filter_by_tensor

SHAPES = [(4200,), (64, 80), (12, 40, 3, 3)]
OPTIONS = {"betas": (0.9, 0.99), "eps": 1e-8, "gamma": 0.5, "gamma_decay": 0.0}
each_sharing = pytest.mark.parametrize("state_format", SHARING)


def variance_of(optimizer, param):
    variance = optimizer.state[param]["exp_var"]
    assert (variance.shape, variance.dtype) == ((), torch.float32)
    return variance.item()


@each_step_path
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_is_the_mean_over_all_elements(path, shape):
    (param,) = parameters((shape,))
    optimizer = build(CASES[0], [param], path, state_format="block", betas=(0.9, 0.99))
    mean = torch.zeros(shape, dtype=torch.float64)
    expected = 0.0
    for step in range(10):
        param.grad = draw_like(param, 0, step, 0)
        mean.lerp_(param.grad.double(), 0.1)
        square = (param.grad.double() - mean).square().mean().item()
        expected = 0.99 * expected + (1 - 0.99) * square
        optimizer.step()
        assert variance_of(optimizer, param) == pytest.approx(expected, rel=1e-5)


@each_step_path
def test_it_is_exact_for_many_elements(path):
    """A sum of a million squares in float32, one after the other, would be off by percents."""
    param = torch.nn.Parameter(torch.zeros(1000, 1500))
    param.grad = 3.0 + torch.randn(1000, 1500)
    optimizer = build(CASES[0], [param], path, state_format="block")
    optimizer.step()
    square = (0.9 * param.grad.double()).square().mean().item()
    assert variance_of(optimizer, param) == pytest.approx(0.001 * square, rel=1e-5)


@each_sharing
@each_step_path
def test_the_first_step_is_along_the_gradient(state_format, path):
    (param,) = parameters(((64, 80),))
    start = param.detach().clone()
    optimizer = build(CASES[0], [param], path, state_format=state_format, lr=0.1)
    param.grad = draw_like(param, 0, 0)
    optimizer.step()
    torch.testing.assert_close(param.detach(), start - 0.1 * param.grad, rtol=1e-5, atol=1e-6)


@each_sharing
@each_step_path
@pytest.mark.parametrize("value", [50.0, 1e12, math.inf, math.nan])
def test_other_elements_count_one_step_later(state_format, path, value):
    """So that a step reads and writes every element just once."""
    moves = []
    for burst in (0.0, value):
        (param,) = parameters(((64, 80),))
        optimizer = build(CASES[0], [param], path, state_format=state_format, lr=0.1)
        take_steps(optimizer, 3)
        param.grad = draw_like(param, 0, 3, 0)
        param.grad[0] = burst
        own = []
        for step in (3, 4):
            before = param.detach()[1:].clone()
            optimizer.step()
            own.append(param.detach()[1:] - before)
            param.grad = draw_like(param, 0, step + 1, 0)
        moves.append(own)
    assert torch.equal(moves[1][0], moves[0][0])
    # What is not finite is left out of the variance; the quiet row is part of the other one's.
    assert not torch.equal(moves[1][1], moves[0][1])
    if math.isfinite(value):  # a larger variance is a larger gain
        assert moves[1][1].abs().mean() > moves[0][1].abs().mean()


def test_on_equal_elements_it_is_the_usual_filter_with_an_older_variance():
    mean, own = torch.zeros(50), torch.zeros(50)
    shared = torch.zeros(())
    options = {**OPTIONS, "correction": "paper"}
    for step in range(1, 30):
        grad = torch.full((50,), math.sin(step) + 1.0)
        usual = filter_by_element(grad, mean, own, step, **options)
        out = filter_by_tensor(grad, mean, shared, step, **options)
        torch.testing.assert_close(out.var.expand(50), usual.var)
        torch.testing.assert_close(out.mean, usual.mean)
        if step == 1:
            assert not out.gain.any()
            torch.testing.assert_close(out.estimate, grad)
        mean, own, shared = usual.mean, usual.var, out.var


@each_sharing
@each_step_path
def test_huge_gradients_give_no_nan(state_format, path):
    (param,) = parameters(((64, 80),))
    optimizer = build(CASES[0], [param], path, state_format=state_format, lr=1e-3)
    for sign in (1.0, -1.0, 1.0, -1.0):
        param.grad = sign * 1e15 * draw_like(param, 0, 0).clamp(-1.0, 1.0)
        optimizer.step()
        assert param.isfinite().all()
        assert math.isfinite(variance_of(optimizer, param))
    param.grad = torch.ones_like(param)
    optimizer.step()
    assert param.isfinite().all()


def test_complex_and_small_parameters_have_a_variance_for_each_element():
    params = [
        torch.nn.Parameter(torch.ones(5000, dtype=torch.complex64)),
        torch.nn.Parameter(torch.ones(100)),
    ]
    optimizer = sgdf.SGDF(params, state_format="block")
    take_complex = [torch.ones_like(param) for param in params]
    for param, grad in zip(params, take_complex, strict=True):
        param.grad = grad
    optimizer.step()
    for param in params:
        assert optimizer.state[param]["exp_var"].shape == param.shape


@pytest.mark.parametrize("state_format", ["block", "int8-block"])
def test_the_monitor_recalls_the_gain_of_the_step(state_format):
    """The step used the variance of the step before, which its state has no more."""
    param = torch.nn.Parameter(torch.zeros(64, 100))
    optimizer = sgdf.SGDF([param], lr=1.0, state_format=state_format, foreach=False)
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 40):
        before = param.detach().clone()
        param.grad = torch.randn(64, 100, generator=generator) * (10.0 if step > 30 else 1.0)
        optimizer.step()
        moved = before - param.detach()
        (group,) = optimizer.param_groups
        count, buffers = optimizer._recalled_state(group, param)
        estimate, gain, _ = optimizer._recalled(group, param.grad, count, *buffers)
        error = (estimate - moved).norm() / moved.norm()
        # The mean that is stored has been rounded.
        assert error < (1e-3 if state_format == "block" else 0.02)
        assert (gain == 0).all() == (step == 1)
