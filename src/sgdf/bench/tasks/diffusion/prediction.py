"""How a network is asked, and how what it returns is read."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Network = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes images (n, C, H, W), times (n,) and classes (n,); returns (n, C or 2 C, H, W)."""

Field = Callable[[Tensor, Tensor], Tensor]
"""A network whose classes are given: it takes images and times (n,)."""


def split_output(output: Tensor, channels: int) -> tuple[Tensor, Tensor | None]:
    """Return what was predicted, and what the other half says of the variance, if there is one.

    Args:
        output: of a network, with as many channels as the images, or twice as many.
        channels: of the images.
    """
    if output.shape[1] == channels:
        return output, None
    return output[:, :channels], output[:, channels:]


def per_image(values: Tensor) -> Tensor:
    """Return the mean over the values of each image."""
    return values.flatten(1).mean(1)
