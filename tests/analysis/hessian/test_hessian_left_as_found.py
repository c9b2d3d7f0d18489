"""A product leaves the model and the random number generators as it found them."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from hessian_problems import convolution, cross_entropy, make_problem
from sgdf.analysis.hessian import Hessian


class Counting(nn.Module):
    """A layer that writes to its buffers in each mode, and puts a new tensor in place of one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(()))
        self.register_buffer("nothing", None)

    def forward(self, inputs):
        """Return the inputs with noise."""
        self.calls += 1
        self.last = inputs.detach().sum()
        return inputs + 0.1 * torch.rand_like(inputs) * random.random() * np.random.rand()


def problem():
    """Return a model in mixed modes, with gradients, a frozen parameter and a tied buffer."""
    model, batches = make_problem(convolution)
    model = nn.Sequential(model, Counting(), nn.Dropout(0.5), Counting()).double()
    model[3].calls = model[1].calls
    model[0][1].eval()
    model[0][4].bias.requires_grad_(False)
    for parameter in model.parameters():
        parameter.grad = torch.rand_like(parameter) if parameter.requires_grad else None
    return model, batches


def state_of(model):
    """Return what a product must not change."""
    return {
        "state": {name: value.clone() for name, value in model.state_dict().items()},
        "buffers": [id(buffer) for buffer in model.buffers()],
        "versions": [tensor._version for tensor in [*model.parameters(), *model.buffers()]],
        "modes": [module.training for module in model.modules()],
        "gradients": [
            (id(p.grad), p.grad if p.grad is None else p.grad.clone()) for p in model.parameters()
        ],
        "flags": [parameter.requires_grad for parameter in model.parameters()],
        "hooks": [len(module._forward_hooks) for module in model.modules()],
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state()[1:],
        "python": random.getstate(),
        "mode": (torch.is_grad_enabled(), torch.backends.cuda.flash_sdp_enabled()),
    }


def assert_same(before, after):
    """Compare two states bit by bit."""
    if isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            assert_same(before[key], after[key])
    elif isinstance(before, list | tuple):
        for one, other in zip(before, after, strict=True):
            assert_same(one, other)
    elif isinstance(before, torch.Tensor):
        assert torch.equal(before, after)
    else:
        assert np.array_equal(before, after)


@pytest.mark.parametrize("training", [False, True])
def test_a_product_leaves_everything_as_found(training):
    model, batches = problem()
    before = state_of(model)
    hessian = Hessian(model, cross_entropy, batches, training=training)
    vector = np.ones(hessian.shape[0])
    first = hessian @ vector
    assert_same(before, state_of(model))
    torch.rand(1), random.random(), np.random.rand()
    assert np.array_equal(hessian @ vector, first)  # the noise is the same too


@pytest.mark.parametrize("training", [False, True])
def test_an_error_leaves_everything_as_found(training):
    model, batches = problem()
    before = state_of(model)
    calls = []

    def failing(model, batch):
        calls.append(model.training)
        loss = cross_entropy(model, batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return loss

    hessian = Hessian(model, failing, batches, training=training)
    vector = np.ones(hessian.shape[0])
    with pytest.raises(KeyboardInterrupt):
        hessian @ vector
    assert calls == [training] * 2
    assert_same(before, state_of(model))


def test_a_loss_from_before_can_still_go_backward():
    """Through BatchNorm's statistics, which a product in training mode would renew."""
    model, batches = make_problem(convolution)
    loss = cross_entropy(model.eval(), batches[0])
    hessian = Hessian(model, cross_entropy, batches, training=True)
    hessian @ np.ones(hessian.shape[0])
    loss.backward()
    assert model[0].weight.grad is not None
