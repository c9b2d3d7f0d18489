"""The networks in their forms for images of 32 × 32 pixels.

VGG11, ResNet18, ResNet34 and DenseNet121 are the large ones with a stem that keeps the image's
size; ResNet8, 20 and 56 are those that were made for CIFAR from the start, with three narrow
stages and shortcuts without parameters (He et al., 2016). The MLP is for comparisons that need a
network without convolutions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from ..images.families import (
    Padding,
    Shortcut,
    convolution,
    densenet_features,
    pooled_classifier,
    projection,
    resnet_features,
    vgg_features,
)
from ..images.normalised import Normalised
from .data import SIDE


def mlp(classes: int, width: float) -> nn.Module:
    """Return two hidden layers of 512 units, fully connected."""
    hidden = _channels(512, width)
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs in (3 * SIDE * SIDE, hidden):
        layers += [nn.Linear(inputs, hidden), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(hidden, classes))


def vgg11(classes: int, width: float, batch_norm: bool = False) -> nn.Module:
    """Return VGG11 with a small classifier; its convolutions are initialised by fan-out."""
    layers, channels = vgg_features((1, 1, 2, 2, 2), _channels(64, width), batch_norm)
    layers.append(nn.Flatten())
    for _ in range(2):
        layers += [nn.Dropout(), nn.Linear(channels, channels), nn.ReLU(inplace=True)]
    network = nn.Sequential(*layers, nn.Linear(channels, classes))
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
    return network


def resnet(
    classes: int,
    width: float,
    blocks: tuple[int, ...],
    first: int = 64,
    shortcut: Shortcut = projection,
) -> nn.Module:
    """Return a ResNet, given the blocks of its stages and the channels of the first one."""
    channels = _channels(first, width)
    layers, outputs = resnet_features(blocks, channels, shortcut=shortcut)
    stem = [*convolution(3, channels, 3), nn.ReLU(inplace=True)]
    return nn.Sequential(*stem, *layers, *pooled_classifier(outputs, classes))


def resnet_of_he(classes: int, width: float, blocks: int) -> nn.Module:
    """Return a ResNet of three stages of 16, 32 and 64 channels, with as many blocks each."""
    return resnet(classes, width, (blocks,) * 3, first=16, shortcut=Padding)


def densenet121(classes: int, width: float) -> nn.Module:
    """Return DenseNet121."""
    growth = _channels(32, width)
    layers, channels = densenet_features((6, 12, 24, 16), growth)
    stem = nn.Conv2d(3, 2 * growth, 3, padding=1, bias=False)
    return nn.Sequential(stem, *layers, *pooled_classifier(channels, classes))


def _channels(full: int, width: float) -> int:
    return max(1, round(full * width))


NETWORKS: dict[str, Callable[[int, float], nn.Module]] = {
    "mlp": mlp,
    "vgg11": vgg11,
    "vgg11_bn": lambda classes, width: vgg11(classes, width, batch_norm=True),
    "resnet8": lambda classes, width: resnet_of_he(classes, width, 1),
    "resnet20": lambda classes, width: resnet_of_he(classes, width, 3),
    "resnet56": lambda classes, width: resnet_of_he(classes, width, 9),
    "resnet18": lambda classes, width: resnet(classes, width, (2, 2, 2, 2)),
    "resnet34": lambda classes, width: resnet(classes, width, (3, 4, 6, 3)),
    "densenet121": densenet121,
}
"""By name, given the number of classes and the share of their channels that they keep."""


PUBLISHED = {"mean": (0.485, 0.456, 0.406), "deviation": (0.229, 0.224, 0.225)}
"""What the published weights were trained with: mean and deviation of ImageNet's channels."""


def with_published_weights(name: str, path: Path) -> nn.Module:
    """Return ResNet20 or ResNet56 with weights that others have published, for images as bytes.

    Args:
        name: which of them.
        path: an ``.npz`` file with an array for each parameter, running mean and
            running variance, in the order of a ``state_dict``.

    Raises:
        ValueError: if the arrays are not as many, or not of the same shapes.
    """
    network = NETWORKS[name](10, 1.0)
    with np.load(path, allow_pickle=False) as file:
        arrays = [torch.from_numpy(file[key]) for key in file.files]
    own = [key for key, value in network.state_dict().items() if value.is_floating_point()]
    if len(own) != len(arrays):
        raise ValueError(f"{path} has {len(arrays)} arrays, but {name} has {len(own)} tensors")
    try:
        network.load_state_dict(dict(zip(own, arrays, strict=True)), strict=False)
    except RuntimeError as error:
        raise ValueError(f"{path} has no weights of {name}: {error}") from error
    return nn.Sequential(Normalised(**PUBLISHED), network)
