"""The networks in their forms for large images and the 1,000 classes of ImageNet."""

from __future__ import annotations

from collections.abc import Callable

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


def vgg(convolutions: tuple[int, ...]) -> nn.Module:
    """Return VGG without batch normalisation, given the convolutions of its five stages."""
    layers, channels = vgg_features(convolutions)
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for inputs in (channels * 7 * 7, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, CLASSES))


def resnet(blocks: tuple[int, ...], bottleneck: bool = False) -> nn.Module:
    """Return a ResNet, given the blocks of its four stages."""
    layers, channels = resnet_features(blocks, bottleneck=bottleneck)
    return nn.Sequential(*_stem(64), *layers, *pooled_classifier(channels, CLASSES))


def densenet(blocks: tuple[int, ...], growth: int) -> nn.Module:
    """Return a DenseNet, given the layers of its four blocks."""
    layers, channels = densenet_features(blocks, growth)
    return nn.Sequential(*_stem(2 * growth), *layers, *pooled_classifier(channels, CLASSES))


def _stem(width: int) -> Layers:
    return [*convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vgg11": lambda: vgg((1, 1, 2, 2, 2)),
    "vgg13": lambda: vgg((2, 2, 2, 2, 2)),
    "resnet18": lambda: resnet((2, 2, 2, 2)),
    "resnet101": lambda: resnet((3, 4, 23, 3), bottleneck=True),
    "densenet121": lambda: densenet((6, 12, 24, 16), growth=32),
    "densenet161": lambda: densenet((6, 12, 36, 24), growth=48),
}
