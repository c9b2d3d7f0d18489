"""ImageNet's networks: sizes, widths and the law of their first weights."""

import math

import pytest
import torch
from torch import nn

from sgdf.bench.tasks.imagenet.networks import NETWORKS

PAPERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "vgg11_bn": 132_868_840,
    "vgg13_bn": 133_053_736,
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
}


def on_paper(name, *size):
    """Return a network that has shapes only."""
    with torch.device("meta"):
        return NETWORKS[name](*size)


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(("name", "count"), PAPERS.items())
def test_the_papers_networks_have_as_many_parameters_as_published_ones(name, count):
    assert parameters(on_paper(name)) == count
    assert parameters(on_paper(name, 1000, 1.0)) == count


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("width", [1e-9, 0.125, 0.3])
def test_narrow_networks_give_a_score_for_each_class(name, width):
    network = NETWORKS[name](7, width)
    scores = network(torch.randn(2, 3, 64, 64))
    assert scores.shape == (2, 7)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_quarter_of_the_width_is_a_quarter_of_all_channels(name):
    whole, narrow = (
        [m for m in on_paper(name, 1000, width).modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        for width in (1.0, 0.25)
    )
    for wide, small in zip(whole, narrow, strict=True):
        if wide is whole[-1]:  # the classes stay as many
            assert (wide.weight.shape[0], small.weight.shape[0]) == (1000, 1000)
        else:
            assert wide.weight.shape[0] == 4 * small.weight.shape[0]
        expected = 1 if wide is whole[0] else 4  # a picture has three colours
        assert wide.weight.shape[1] == expected * small.weight.shape[1]


@pytest.mark.parametrize("name", NETWORKS)
def test_first_weights_have_the_published_law(name):
    """Convolutions by fan-out, of DenseNets by fan-in; normalisation at 1 and 0."""
    network = NETWORKS[name](10, 0.25)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            outputs, inputs, *kernel = module.weight.shape
            fan = math.prod(kernel) * (inputs if name.startswith("densenet") else outputs)
            assert_normal(module.weight, math.sqrt(2 / fan))
            assert module.bias is None or not module.bias.any()
        elif isinstance(module, nn.BatchNorm2d):
            assert (module.weight == 1).all()
            assert not module.bias.any()
        elif isinstance(module, nn.Linear):
            if name.startswith("vgg"):
                assert_normal(module.weight, 0.01)
            else:
                bound = 1 / math.sqrt(module.in_features)
                assert 0.9 * bound < module.weight.abs().max() <= bound
            assert module.bias.any() == name.startswith("resnet")


def assert_normal(weight, deviation):
    """Five standard errors of mean and deviation."""
    count = weight.numel()
    assert abs(weight.mean()) < 5 * deviation / math.sqrt(count)
    assert abs(weight.std() / deviation - 1) < 5 / math.sqrt(2 * count)
    assert weight.abs().max() > 2 * deviation or count < 200
