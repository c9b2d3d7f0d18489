"""CIFAR's networks: their sizes, shapes and weights."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from bench_tasks import equal
from made_data import PUBLISHED, real_data, unpacked
from sgdf.bench.tasks.assets import data_folder
from sgdf.bench.tasks.cifar.networks import NETWORKS, with_published_weights


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


def on_paper(name, classes=10, width=1.0):
    """Return a network that has shapes only."""
    with torch.device("meta"):
        return NETWORKS[name](classes, width)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vgg11", 9_750_922),
        ("vgg11_bn", 9_756_426),
        ("resnet18", 11_173_962),
        ("resnet34", 21_282_122),
        ("densenet121", 6_956_298),
        ("resnet20", 269_722),
    ],
)
def test_networks_have_as_many_parameters_as_published_ones(name, count):
    assert parameters(on_paper(name)) == count


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_give_a_score_for_each_class(name):
    network = NETWORKS[name](7, 0.125)
    scores = network(torch.randn(2, 3, 32, 32))
    assert scores.shape == (2, 7)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vgg11", (512, 1, 1)),
        ("vgg11_bn", (512, 1, 1)),
        ("resnet8", (64, 8, 8)),
        ("resnet18", (512, 4, 4)),
        ("resnet20", (64, 8, 8)),
        ("resnet34", (512, 4, 4)),
        ("resnet56", (64, 8, 8)),
        ("densenet121", (1024, 4, 4)),
    ],
)
def test_networks_make_the_image_smaller_stage_by_stage(name, shape):
    network = on_paper(name)
    (head,) = [i for i, layer in enumerate(network) if isinstance(layer, nn.Flatten)]
    pooled = isinstance(network[head - 1], nn.AdaptiveAvgPool2d)
    features = network[: head - pooled](torch.empty(2, 3, 32, 32, device="meta"))
    assert features.shape == (2, *shape)


def test_the_mlp_has_two_hidden_layers():
    for width, hidden in ((1.0, 512), (0.25, 128)):
        linear = [layer for layer in on_paper("mlp", width=width) if isinstance(layer, nn.Linear)]
        shapes = [tuple(layer.weight.shape) for layer in linear]
        assert shapes == [(hidden, 3 * 32 * 32), (hidden, hidden), (10, hidden)]


# Most of the MLP's parameters are in its first layer, whose inputs are the pixels.
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "mlp"])
def test_parameters_go_with_the_square_of_the_width(name):
    for width in (0.5, 0.25):
        share = parameters(on_paper(name, width=width)) / parameters(on_paper(name))
        assert share == pytest.approx(width**2, rel=0.1)


def test_classes_are_rows_of_the_last_layer_alone():
    for name in NETWORKS:
        *features, last = on_paper(name, classes=100).parameters()
        few = list(on_paper(name).parameters())
        assert last.shape == (100,)
        assert [own.shape for own in features[:-1]] == [other.shape for other in few[:-2]]


@pytest.mark.parametrize("name", ["vgg11", "vgg11_bn"])
def test_convolutions_of_vgg_begin_with_normal_weights_by_fan_out(name):
    """Each of 32 figures would be 4.5 deviations off for one seed in 147,000."""
    network = NETWORKS[name](10, 1.0)
    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
    assert len(layers) == 8
    for layer in layers:
        weights = layer.weight.detach().double() / math.sqrt(2 / (9 * layer.out_channels))
        count = weights.numel()
        assert abs(weights.sum().item()) < 4.5 * math.sqrt(count)
        assert abs(weights.square().sum().item() - count) < 4.5 * math.sqrt(2 * count)
        assert not layer.bias.any()


def test_vgg_drops_half_before_each_hidden_layer_of_its_classifier():
    names = [type(module).__name__ for module in on_paper("vgg11").children()]
    head = ["Flatten", *["Dropout", "Linear", "ReLU"] * 2, "Linear"]
    assert names[-len(head) :] == head
    assert Counter(names)["Dropout"] == 2
    assert {module.p for module in on_paper("vgg11") if isinstance(module, nn.Dropout)} == {0.5}
    network = NETWORKS["vgg11"](10, 0.125)
    images = torch.randn(1, 3, 32, 32)
    assert not torch.equal(network(images), network(images))
    network.eval()
    assert torch.equal(network(images), network(images))


# The published accuracy is that of all images, which take ten seconds.
@real_data
@pytest.mark.parametrize(
    ("images", "right"), [(2_000, 1833), pytest.param(10_000, 9173, marks=pytest.mark.slow)]
)
def test_published_weights_of_resnet20_score_what_was_published(
    images, right, monkeypatch, tmp_path_factory
):
    monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "cifar10")))
    network = with_published_weights("resnet20", PUBLISHED / "packed/cifar10_resnet20.npz").eval()
    content = (data_folder() / "cifar-10-batches-bin/test_batch.bin").read_bytes()
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(10_000, 3073)[:images]
    with torch.no_grad():
        scores = [network(part[:, 1:].reshape(-1, 3, 32, 32)) for part in records.split(500)]
    assert (torch.cat(scores).argmax(1) == records[:, 0]).sum() == right


@real_data
def test_published_weights_fit_their_own_network_alone(tmp_path):
    path = PUBLISHED / "packed/cifar10_resnet56.npz"
    assert parameters(with_published_weights("resnet56", path)) == 853_018
    with pytest.raises(ValueError, match=r"resnet56\.npz has \d+ arrays, but resnet20 has \d+"):
        with_published_weights("resnet20", path)


def test_weights_of_other_shapes_are_refused(tmp_path):
    state = NETWORKS["resnet20"](10, 0.5).state_dict()
    arrays = {key: value.numpy() for key, value in state.items() if value.is_floating_point()}
    np.savez(tmp_path / "narrow.npz", **arrays)
    with pytest.raises(ValueError, match=r"narrow\.npz has no weights of resnet20"):
        with_published_weights("resnet20", tmp_path / "narrow.npz")


def test_weights_are_taken_in_their_order(tmp_path):
    state = NETWORKS["resnet20"](10, 1.0).state_dict()
    values = [torch.rand_like(v) for v in state.values() if v.is_floating_point()]
    np.savez(tmp_path / "w.npz", *(value.numpy() for value in values))
    network = with_published_weights("resnet20", tmp_path / "w.npz")
    own = [value for value in network.state_dict().values() if value.is_floating_point()]
    assert equal(own, values)
