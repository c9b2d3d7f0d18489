"""The networks whose parameters a step is measured on, in their ImageNet forms.

Written out here because only sizes and speed matter, and torchvision does not load beside
every build of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

CLASSES = 1000

Shapes = list[tuple[int, ...]]


def vgg(convolutions: tuple[int, ...]) -> nn.Module:
    """Return VGG without batch normalisation, given the convolutions of its five stages."""
    layers: list[nn.Module] = []
    width = 3
    for stage, count in enumerate(convolutions):
        outputs = min(64 * 2**stage, 512)
        for _ in range(count):
            layers += [nn.Conv2d(width, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            width = outputs
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for inputs in (width * 7 * 7, 4096):
        layers += [nn.Linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(4096, CLASSES))


class Residual(nn.Module):
    """A block of a ResNet: what its layers make of the input is added to it."""

    def __init__(self, layers: list[nn.Module], shortcut: nn.Module) -> None:
        super().__init__()
        self.layers, self.shortcut = nn.Sequential(*layers), shortcut

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the block's output."""
        return torch.relu(self.layers(inputs) + self.shortcut(inputs))


def resnet(blocks: tuple[int, ...], bottleneck: bool) -> nn.Module:
    """Return a ResNet, given the blocks of its four stages."""
    width, layers = 64, _stem(64)
    for stage, count in enumerate(blocks):
        inner = 64 * 2**stage
        outputs = 4 * inner if bottleneck else inner
        for block in range(count):
            stride = 2 if stage and not block else 1
            if bottleneck:
                parts = [
                    *_convolution(width, inner, 1),
                    nn.ReLU(inplace=True),
                    *_convolution(inner, inner, 3, stride),
                    nn.ReLU(inplace=True),
                    *_convolution(inner, outputs, 1),
                ]
            else:
                parts = [
                    *_convolution(width, inner, 3, stride),
                    nn.ReLU(inplace=True),
                    *_convolution(inner, outputs, 3),
                ]
            same = stride == 1 and width == outputs
            shortcut = [] if same else _convolution(width, outputs, 1, stride)
            layers.append(Residual(parts, nn.Sequential(*shortcut)))
            width = outputs
    return nn.Sequential(*layers, *_head(width))


class Dense(nn.Module):
    """A layer of a DenseNet: it appends its features to its input."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            *_convolution(width, 4 * growth, 1),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the input with the new features."""
        return torch.cat([inputs, self.layers(inputs)], 1)


def densenet(blocks: tuple[int, ...], growth: int) -> nn.Module:
    """Return a DenseNet, given the layers of its four blocks."""
    width = 2 * growth
    layers = _stem(width)
    for block, count in enumerate(blocks):
        for _ in range(count):
            layers.append(Dense(width, growth))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        if block < len(blocks) - 1:
            layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, *_head(width))


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


def _stem(width: int) -> list[nn.Module]:
    return [*_convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)]


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "vgg11": lambda: vgg((1, 1, 2, 2, 2)),
    "vgg13": lambda: vgg((2, 2, 2, 2, 2)),
    "resnet18": lambda: resnet((2, 2, 2, 2), bottleneck=False),
    "resnet101": lambda: resnet((3, 4, 23, 3), bottleneck=True),
    "densenet121": lambda: densenet((6, 12, 24, 16), growth=32),
    "densenet161": lambda: densenet((6, 12, 36, 24), growth=48),
}


def gpt2_shapes(layers: int = 12, width: int = 768) -> Shapes:
    """Return the shapes of GPT-2's parameters, small by default."""

    def linear(inputs: int, outputs: int) -> Shapes:
        return [(inputs, outputs), (outputs,)]

    def block() -> Iterator[tuple[int, ...]]:
        norm: Shapes = [(width,), (width,)]
        yield from [*norm, *linear(width, 3 * width), *linear(width, width)]
        yield from [*norm, *linear(width, 4 * width), *linear(4 * width, width)]

    blocks = [shape for _ in range(layers) for shape in block()]
    return [(50257, width), (1024, width), *blocks, (width,), (width,)]
