"""Autograd through the step."""

import pytest
import torch

from cases import describe, each_case, skip_without


@each_case
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}]
    + [{"gamma": gamma} for gamma in (0.0, 0.3, 1.0)]
    + [{"maximize": True}, {"correction": "none"}],
    ids=describe,
)
def test_gradcheck_through_the_step(case, options, steps):
    if not case.differentiable:
        pytest.skip(f"{case.name} is not differentiable")
    skip_without(case, set(options) <= case.arguments, "filter")
    if "weight_decay" in options:
        skip_without(case, len(options) > 1 or case.coupled_decay, "coupled decay")

    def unroll(lr, start, *grads):
        param = start.clone()
        # A large eps keeps the curvature at a zero gradient within the reach of
        # finite differences.
        optimizer = case.make(
            [param], lr=lr, differentiable=True, **case.known(eps=1e-2), **options
        )
        for grad in grads:
            param.grad = grad
            optimizer.step()
        return (param, *(optimizer.state[param][key] for key in case.buffers_of(param)))

    grads = torch.randn(steps, 5, dtype=torch.float64)
    if not case.jumps:
        grads[:, 0] = 0.0  # never any gradient: the gain is 0 and its root infinitely steep
        grads[0, 1] = 0.0
    inputs = [torch.tensor(0.1, dtype=torch.float64), torch.randn(5, dtype=torch.float64), *grads]
    for tensor in inputs:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(unroll, inputs)


@each_case
def test_differentiable_zero_gradients_have_finite_slopes(case):
    if not case.differentiable:
        pytest.skip(f"{case.name} is not differentiable")
    skip_without(case, case.plain is not None, "direction of the gradient's size")
    grad = torch.zeros(3, requires_grad=True)
    param = torch.ones(3).clone()
    options = {**case.known(eps=0.0), **case.plain}
    optimizer = case.make([param], lr=0.5, differentiable=True, **options)
    param.grad = grad
    optimizer.step()
    (slope,) = torch.autograd.grad(param.sum(), grad)
    torch.testing.assert_close(slope, torch.full((3,), -0.5))


@each_case
def test_learning_the_learning_rate(case):
    """One meta-step on lr lowers the loss after the inner steps."""
    if not case.differentiable:
        pytest.skip(f"{case.name} is not differentiable")

    def final_loss(lr):
        weight = torch.full((2,), 3.0, requires_grad=True).clone()
        optimizer = case.make([weight], lr=lr, differentiable=True)
        for _ in range(4):
            inner = weight.clone().square().sum()  # the step overwrites weight itself
            (weight.grad,) = torch.autograd.grad(inner, weight, create_graph=True)
            optimizer.step()
        return weight.square().sum()

    lr = torch.tensor(0.05, requires_grad=True)
    loss = final_loss(lr)
    (slope,) = torch.autograd.grad(loss, lr)
    assert final_loss((lr - 0.01 * slope.sign()).detach()) < loss
