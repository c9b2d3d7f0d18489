"""VGG, ResNet and DenseNet from what comes after the stem to what comes before the head.

Written out here because narrow ones and those for small images are in no library, and
torchvision does not load beside every build of torch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Layers = list[nn.Module]
Shortcut = Callable[[int, int, int], nn.Module]
"""What carries a block's input past it, given channels before and after, and the stride."""


def vgg_features(
    convolutions: tuple[int, ...], width: int = 64, batch_norm: bool = False
) -> tuple[Layers, int]:
    """Return the convolutions of a VGG, and how many channels come out of them.

    Args:
        convolutions: how many there are in each stage; at the end of a stage the image is halved.
        width: channels of the first stage; the next three have twice as many each.
        batch_norm: normalise what comes out of each convolution.
    """
    layers: Layers = []
    channels = 3
    for stage, count in enumerate(convolutions):
        outputs = width * 2 ** min(stage, 3)
        for _ in range(count):
            layers.append(nn.Conv2d(channels, outputs, 3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(outputs))
            layers.append(nn.ReLU(inplace=True))
            channels = outputs
        layers.append(nn.MaxPool2d(2))
    return layers, channels


class Residual(nn.Module):
    """A block of a ResNet: what its layers make of the input is added to it."""

    def __init__(self, layers: Layers, shortcut: nn.Module) -> None:
        super().__init__()
        self.layers, self.shortcut = nn.Sequential(*layers), shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's output."""
        return torch.relu(self.layers(inputs) + self.shortcut(inputs))


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return a shortcut that is a convolution of single pixels."""
    return nn.Sequential(*convolution(inputs, outputs, 1, stride))


class Padding(nn.Module):
    """A shortcut without parameters: fewer pixels, and channels of zeros on both sides."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride, self.before = stride, (outputs - inputs) // 2
        self.after = outputs - inputs - self.before

    def forward(self, inputs: Tensor) -> Tensor:
        """Return every so many pixels of the input, with channels added."""
        kept = inputs[:, :, :: self.stride, :: self.stride]
        return nn.functional.pad(kept, (0, 0, 0, 0, self.before, self.after))


def resnet_features(
    blocks: tuple[int, ...],
    width: int = 64,
    bottleneck: bool = False,
    shortcut: Shortcut = projection,
) -> tuple[Layers, int]:
    """Return the blocks of a ResNet, and how many channels come out of them.

    Args:
        blocks: how many there are in each stage; all stages but the first halve the image.
        width: channels of the first stage, and before it; each next one has twice as many.
        bottleneck: make blocks of three convolutions, with four times the channels outside.
        shortcut: what goes past a block whose output has another shape than its input.
    """
    layers: Layers = []
    channels = width
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        outputs = 4 * inner if bottleneck else inner
        for block in range(count):
            stride = 2 if stage and not block else 1
            if bottleneck:
                parts = [
                    *convolution(channels, inner, 1),
                    nn.ReLU(inplace=True),
                    *convolution(inner, inner, 3, stride),
                    nn.ReLU(inplace=True),
                    *convolution(inner, outputs, 1),
                ]
            else:
                parts = [
                    *convolution(channels, inner, 3, stride),
                    nn.ReLU(inplace=True),
                    *convolution(inner, outputs, 3),
                ]
            same = stride == 1 and channels == outputs
            past = nn.Identity() if same else shortcut(channels, outputs, stride)
            layers.append(Residual(parts, past))
            channels = outputs
    return layers, channels


class Dense(nn.Module):
    """A layer of a DenseNet: it puts its features beside its input."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            *convolution(channels, 4 * growth, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the input with the new features."""
        return torch.cat([inputs, self.layers(inputs)], 1)


def densenet_features(blocks: tuple[int, ...], growth: int = 32) -> tuple[Layers, int]:
    """Return the blocks of a DenseNet, and how many channels come out of them.

    Args:
        blocks: how many layers there are in each; the image is halved between two of them.
        growth: channels that a layer adds; the stem before them has twice as many.
    """
    layers: Layers = []
    channels = 2 * growth
    for block, count in enumerate(blocks):
        for _ in range(count):
            layers.append(Dense(channels, growth))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
        if block < len(blocks) - 1:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return layers, channels


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> Layers:
    """Return a convolution that keeps the image's size but for the stride, and its BatchNorm."""
    bare = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return [bare, nn.BatchNorm2d(outputs)]


def pooled_classifier(channels: int, classes: int) -> Layers:
    """Return a head: one linear layer on the means of all channels."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
