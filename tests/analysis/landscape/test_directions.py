"""Directions have the norms of the network's filters, and the random numbers of all networks."""

import math

import pytest
import torch
from torch import nn

from sgdf.analysis.landscape.directions import (
    cosine,
    inner_product,
    random_direction,
    scale_filters,
)


def convolutional(seed):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5)
    )


def test_each_filter_has_the_norm_of_the_networks_filter_and_vectors_are_zero():
    model = convolutional(0)
    direction = random_direction(model, seed=0, number=0)
    assert list(direction) == [name for name, _ in model.named_parameters()]
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            assert not direction[name].any()
        else:
            norms = direction[name].flatten(1).norm(dim=1)
            torch.testing.assert_close(norms, weight.detach().flatten(1).norm(dim=1))


def test_vectors_can_be_scaled_as_a_whole():
    model = convolutional(0)
    direction = random_direction(model, seed=0, number=0, vectors="scaled")
    for name in ("0.bias", "1.weight", "4.bias"):
        weight = model.get_parameter(name).detach()
        torch.testing.assert_close(direction[name].norm(), weight.norm())
    assert not direction["1.bias"].any(), "a vector of zeros has no length to scale to"


def test_a_filter_of_zeros_gets_none_and_random_zeros_make_no_nan():
    scaled = scale_filters(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 0], [3, 4]]))
    assert not scaled.any()


def test_two_networks_share_their_random_numbers():
    first, second = convolutional(0), convolutional(1).double()
    one, other = (random_direction(model, seed=7, number=3) for model in (first, second))
    for name in ("0.weight", "4.weight"):
        assert not torch.equal(one[name], other[name].float())
        shares = [
            (part[name] / part[name].flatten(1).norm(dim=1).view(-1, *[1] * (part[name].ndim - 1)))
            for part in (one, other)
        ]
        torch.testing.assert_close(shares[0], shares[1].float())


def test_seed_and_number_choose_and_the_random_numbers_of_the_caller_stay():
    model = convolutional(0)
    before = torch.random.get_rng_state()
    drawn = [random_direction(model, *which) for which in ((0, 0), (0, 1), (1, 0), (0, 0))]
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(map(torch.equal, drawn[0].values(), drawn[3].values()))
    for other in drawn[1:3]:
        assert abs(cosine(drawn[0], other)) < 0.5


def test_frozen_parameters_are_left_out():
    model = convolutional(0)
    model[0].requires_grad_(False)
    assert "0.weight" not in random_direction(model, 0, 0)


def test_cosine():
    first = {"a": torch.tensor([3.0]), "b": torch.tensor([[4.0]])}
    second = {"a": torch.tensor([1.0]), "b": torch.tensor([[0.0]])}
    assert inner_product(first, first) == 25.0
    assert cosine(first, second) == pytest.approx(0.6)
    assert math.isnan(cosine(first, {name: 0 * part for name, part in first.items()}))
