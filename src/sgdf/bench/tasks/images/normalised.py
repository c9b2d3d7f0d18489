"""The first layer of a network on images that are kept as bytes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and deviation of ImageNet's channels, as most public programs that train on it have them."""


class Normalised(nn.Module):
    """Turns bytes into (x / 255 - mean) / deviation, by channel.

    The output is laid out channels last, in which CPUs convolve up to twice as fast.

    Args:
        mean: of each channel, from 0 to 1.
        deviation: likewise.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...]) -> None:
        super().__init__()
        means, deviations = (torch.tensor(v).view(-1, 1, 1) for v in (mean, deviation))
        self.register_buffer("scale", 1 / (255 * deviations), persistent=False)
        self.register_buffer("shift", -means / deviations, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the images normalised."""
        numbers = images.to(self.scale.dtype, memory_format=torch.channels_last)
        return torch.addcmul(self.shift, numbers, self.scale)
