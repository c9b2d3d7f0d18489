"""Flow matching (Lipman et al., 2023) on the straight path of SiT (Ma et al., 2024)."""

from __future__ import annotations

import torch
from torch import Tensor

from .prediction import Network, per_image, split_output


class Flow:
    """The straight way from noise ε at time 0 to an image x at time 1: t x + (1 - t) ε.

    A network learns the mean velocity of all ways through a point.
    """

    def noised(self, images: Tensor, times: Tensor, noise: Tensor) -> Tensor:
        """Return the points that images are at, at times (n,), given the noise they come from."""
        share = _beside(times, images)
        return share * images + (1 - share) * noise

    def velocity(self, images: Tensor, noise: Tensor) -> Tensor:
        """Return the velocity between noise and images, which is the same at all times."""
        return images - noise

    def score(self, velocity: Tensor, points: Tensor, times: Tensor) -> Tensor:
        """Return the gradient of the log-density at points, given the mean velocity there.

        Since the mean velocity is (x̂ - point) / (1 - t) and the score -ε̂ / (1 - t), with the mean
        image x̂ and the mean noise ε̂, it is (t v - point) / (1 - t). At time 1 it is not defined.
        """
        share = _beside(times, points)
        return (share * velocity - points) / (1 - share)

    def draw_times(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return random times (n,) to train on, on the CPU, uniform from 0 to 1."""
        return torch.rand(count, generator=generator)

    def losses(
        self, network: Network, images: Tensor, classes: Tensor, times: Tensor, noise: Tensor
    ) -> dict[str, Tensor]:
        """Return the parts of the loss of each image: the squared error of the velocity.

        Channels that a network has for the variance are not used.

        Args:
            network: the network.
            images: without noise (n, C, H, W).
            classes: the class of each (n,).
            times: the time of each (n,), as ``draw_times`` returns them.
            noise: normal numbers, like the images.
        """
        times = times.to(images.device)
        output = network(self.noised(images, times, noise), times, classes)
        predicted, _ = split_output(output, images.shape[1])
        return {"squared_error": per_image((predicted - self.velocity(images, noise)).square())}


def _beside(times: Tensor, like: Tensor) -> Tensor:
    """Return times (n,), to be combined with tensors like another."""
    return times.to(like).view(-1, *[1] * (like.dim() - 1))
