"""The rule lr = sgd_lr / (1 - momentum): SGDF moves and decays as SGD does."""

import pytest
import torch
from torch.optim import SGD

import sgdf
from sgdf.optim.sgdf import sgd_reach

MOMENTA = [
    {"momentum": 0.0},
    {"momentum": 0.5},
    {"momentum": 0.9},
    {"momentum": 0.95},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "dampening": 0.5},
]


def pair(options, **both):
    """Return a weight with SGD and one with SGDF, by the rule."""
    weights = [torch.nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(2)]
    reach = sgd_reach(options["momentum"], options.get("dampening", 0.0))
    sgd = SGD([weights[0]], lr=0.01, **options, **both)
    return list(zip(weights, (sgd, sgdf.SGDF([weights[1]], lr=0.01 * reach, **both)), strict=True))


def move(weight, optimizer, gradient, steps):
    """Return where the weight is after some steps under a steady gradient."""
    for _ in range(steps):
        weight.grad = torch.full_like(weight, gradient)
        optimizer.step()
    return weight.item()


@pytest.mark.parametrize("options", MOMENTA)
def test_a_steady_gradient_moves_both_as_far(options):
    paths = []
    for weight, optimizer in pair(options):
        begin = move(weight, optimizer, 3.0, steps=400)  # by then momentum has settled
        paths.append(begin - move(weight, optimizer, 3.0, steps=10))
    assert paths[0] == pytest.approx(paths[1], rel=1e-6)
    assert paths[0] > 0.0


@pytest.mark.parametrize("options", MOMENTA)
def test_the_same_coupled_decay_shrinks_both_as_fast(options):
    shares = []
    for weight, optimizer in pair(options, weight_decay=0.002):
        begin = move(weight, optimizer, 0.0, steps=400)
        shares.append(1.0 - move(weight, optimizer, 0.0, steps=200) / begin)
    assert shares[0] == pytest.approx(shares[1], rel=0.01)
    assert shares[0] > 0.001
