"""The networks in their forms for large images and the 1,000 classes of ImageNet.

They are those of torchvision, the law of their first weights included. A narrow one keeps a share
of its channels: those of the first stage, the growth of a DenseNet and the hidden units of a VGG
are multiplied by the width and rounded, and are at least 1. All others follow from these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn

from ..images.families import (
    Layers,
    convolution,
    densenet_features,
    pooled_classifier,
    resnet_features,
    vgg_features,
)

CLASSES = 1000
Fan = Literal["fan_in", "fan_out"]


def vgg(
    convolutions: tuple[int, ...],
    classes: int = CLASSES,
    width: float = 1.0,
    batch_norm: bool = False,
) -> nn.Module:
    """Return VGG, given the convolutions of its five stages."""
    layers, channels = vgg_features(convolutions, _channels(64, width), batch_norm)
    hidden = _channels(4096, width)
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for inputs in (channels * 7 * 7, hidden):
        layers += [nn.Linear(inputs, hidden), nn.ReLU(inplace=True), nn.Dropout()]
    network = nn.Sequential(*layers, nn.Linear(hidden, classes))
    _draw_convolutions(network, "fan_out")
    for module in network.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.0, 0.01)
            nn.init.zeros_(module.bias)
    return network


def resnet(
    blocks: tuple[int, ...],
    classes: int = CLASSES,
    width: float = 1.0,
    bottleneck: bool = False,
) -> nn.Module:
    """Return a ResNet, given the blocks of its four stages."""
    stem = _channels(64, width)
    layers, channels = resnet_features(blocks, stem, bottleneck)
    network = nn.Sequential(*_stem(stem), *layers, *pooled_classifier(channels, classes))
    _draw_convolutions(network, "fan_out")
    return network


def densenet(
    blocks: tuple[int, ...], growth: int, classes: int = CLASSES, width: float = 1.0
) -> nn.Module:
    """Return a DenseNet, given the layers of its four blocks."""
    growth = _channels(growth, width)
    layers, channels = densenet_features(blocks, growth)
    network = nn.Sequential(*_stem(2 * growth), *layers, *pooled_classifier(channels, classes))
    _draw_convolutions(network, "fan_in")
    (head,) = (module for module in network if isinstance(module, nn.Linear))
    nn.init.zeros_(head.bias)
    return network


def _stem(width: int) -> Layers:
    return [*convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]


def _channels(full: int, width: float) -> int:
    return max(1, round(full * width))


def _draw_convolutions(network: nn.Module, fan: Fan) -> None:
    """Draw the weights of convolutions with a variance of 2 / fan; biases are 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=fan, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "vgg11": partial(vgg, (1, 1, 2, 2, 2)),
    "vgg13": partial(vgg, (2, 2, 2, 2, 2)),
    "vgg11_bn": partial(vgg, (1, 1, 2, 2, 2), batch_norm=True),
    "vgg13_bn": partial(vgg, (2, 2, 2, 2, 2), batch_norm=True),
    "resnet18": partial(resnet, (2, 2, 2, 2)),
    "resnet34": partial(resnet, (3, 4, 6, 3)),
    "resnet50": partial(resnet, (3, 4, 6, 3), bottleneck=True),
    "resnet101": partial(resnet, (3, 4, 23, 3), bottleneck=True),
    "densenet121": partial(densenet, (6, 12, 24, 16), 32),
    "densenet161": partial(densenet, (6, 12, 36, 24), 48),
}
"""By name; ``classes`` and ``width``, the share of their channels that they keep, are optional."""
