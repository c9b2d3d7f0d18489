"""Diffusion: noise is added step by step, and a network learns to take it away.

The chain, its bound and the simple loss are those of Ho et al. (2020); the learned variance and
the chains with fewer steps those of Nichol & Dhariwal (2021).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...errors import SpecError
from .likelihood import kl_of_normals, log_likelihood_of_levels
from .prediction import Network, per_image, split_output

BOUND_WEIGHT = 0.001
"""The weight λ of the bound beside the squared error."""


class Chain:
    r"""Steps of noise, and the normal distributions that follow from them.

    After step t an image is :math:`x_t = \sqrt{\bar\alpha_t}\,x_0 + \sqrt{1-\bar\alpha_t}\,ε`, and
    :math:`β_t = 1 - \bar\alpha_t / \bar\alpha_{t-1}`. Steps are counted from 0, the one next to
    the image. All tables are in float64 on the CPU. So steps had better be on the CPU too, since
    a device has to wait when they are fetched.

    Args:
        signal: ᾱ after each step, falling, in float64.
        times: what the network is told of each step.

    Attributes:
        signal: the same.
        times: the same.
        betas: the variance that each step adds.
        posterior_variance: β̃, the variance of the step back when the image is known.
    """

    def __init__(self, signal: Tensor, times: Tensor) -> None:
        before = torch.cat([signal.new_ones(1), signal[:-1]])
        self.signal, self.times = signal, times
        self.betas = 1 - signal / before
        self.posterior_variance = self.betas * (1 - before) / (1 - signal)
        self._image_weight = before.sqrt() * self.betas / (1 - signal)
        self._point_weight = (signal / before).sqrt() * (1 - before) / (1 - signal)
        # The last step back has variance 0 if the image is known. Its logarithm is taken from the
        # step before it; a chain of a single step has none, and takes that of its noise.
        self._log_least = self.posterior_variance.log()
        self._log_least[0] = self._log_least[1] if len(signal) > 1 else self.betas[0].log()
        self._log_most = self.betas.log()

    def __len__(self) -> int:
        return len(self.signal)

    def noised(self, images: Tensor, steps: Tensor, noise: Tensor) -> Tensor:
        """Return images as they are after steps (n,), given the noise (like the images)."""
        signal = _at(self.signal, steps, images)
        return signal.sqrt() * images + (1 - signal).sqrt() * noise

    def image_of(self, points: Tensor, steps: Tensor, noise: Tensor) -> Tensor:
        """Return the images that ``noised`` made noisy images of with this noise."""
        signal = _at(self.signal, steps, points)
        return (points - (1 - signal).sqrt() * noise) / signal.sqrt()

    def posterior_mean(self, images: Tensor, points: Tensor, steps: Tensor) -> Tensor:
        """Return the mean of what was there before a step, given the image and what came after.

        Args:
            images: without noise.
            points: the same images after the steps.
            steps: the step of each (n,).
        """
        image_weight = _at(self._image_weight, steps, points)
        return image_weight * images + _at(self._point_weight, steps, points) * points

    def log_variance(self, steps: Tensor, points: Tensor, learned: Tensor | None) -> Tensor:
        """Return the logarithm of the variance of steps back.

        It lies between those of β̃ and β, the best choices for a known image and for pure noise.

        Args:
            steps: the step of each image (n,).
            points: the noisy images.
            learned: the network's choice, for each value: -1 is β̃, 1 is β, and between them the
                logarithm is interpolated. None is β̃.
        """
        least = _at(self._log_least, steps, points)
        if learned is None:
            return least
        share = (learned + 1) / 2
        return share * _at(self._log_most, steps, points) + (1 - share) * least

    def bound(
        self, images: Tensor, points: Tensor, steps: Tensor, noise: Tensor, learned: Tensor | None
    ) -> Tensor:
        """Return the term of the variational bound of each image's step, in bits per value.

        That is the divergence of the known step back from the predicted one; at step 0, minus the
        log-likelihood of the image, whose values count as 256 levels from -1 to 1.

        Args:
            images: without noise.
            points: the same images after the steps.
            steps: the step of each (n,).
            noise: what the network takes for the noise in the points.
            learned: the network's choice of the variance, as in ``log_variance``.
        """
        mean = self.posterior_mean(self.image_of(points, steps, noise), points, steps)
        log_variance = self.log_variance(steps, points, learned)
        known = self.posterior_mean(images, points, steps)
        divergence = kl_of_normals(
            known, self.log_variance(steps, points, None), mean, log_variance
        )
        surprise = -log_likelihood_of_levels(images, mean, log_variance)
        is_first = steps.to(points.device).view(-1, *[1] * (points.dim() - 1)) == 0
        return per_image(torch.where(is_first, surprise, divergence)) / math.log(2)


class Diffusion(Chain):
    """The chain that a network is trained on: β rises linearly.

    Args:
        steps: how many steps there are.
        beta_start: the variance that the first step adds.
        beta_end: the variance that the last one adds. With far fewer than a thousand steps it has
            to be larger than by default, or the end of the chain is no pure noise.

    Raises:
        SpecError: if there are no steps, or a variance is not between 0 and 1.
    """

    def __init__(self, steps: int = 1000, beta_start: float = 1e-4, beta_end: float = 0.02) -> None:
        if steps < 1:
            raise SpecError(f"steps = {steps}: a diffusion needs at least 1")
        if not 0 < beta_start <= beta_end < 1:
            raise SpecError(
                f"beta_start = {beta_start}, beta_end = {beta_end}: must be between 0 and 1, and "
                "the end not below the start"
            )
        betas = torch.linspace(beta_start, beta_end, steps, dtype=torch.float64)
        super().__init__((1 - betas).cumprod(0), torch.arange(steps))

    def respaced(self, steps: int) -> Chain:
        """Return a chain of evenly spaced steps of this one, its last step among them.

        Raises:
            SpecError: if there are not as many steps.
        """
        if not 1 <= steps <= len(self):
            raise SpecError(f"steps = {steps}: allowed are 1 to {len(self)}")
        end, gaps = len(self) - 1, max(steps - 1, 1)
        kept = torch.tensor([end - round(k * end / gaps) for k in reversed(range(steps))])
        return Chain(self.signal[kept], self.times[kept])

    def draw_times(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Return random steps (n,) to train on, on the CPU, all equally likely."""
        return torch.randint(len(self), (count,), generator=generator)

    def losses(
        self, network: Network, images: Tensor, classes: Tensor, times: Tensor, noise: Tensor
    ) -> dict[str, Tensor]:
        r"""Return the parts of the loss of each image; the loss is their sum.

        ``squared_error`` is that of the predicted noise. ``bound`` is there if the network learns
        the variance: :math:`λ T L_t` with λ = 0.001, which makes its mean over random steps λ
        times the whole bound. With T = 1000 steps that is the term :math:`L_t` itself, in bits per
        value. It sees the predicted noise as a constant, and so trains the variance alone.

        Args:
            network: the network.
            images: without noise (n, C, H, W).
            classes: the class of each (n,).
            times: the step of each (n,), as ``draw_times`` returns them.
            noise: normal numbers, like the images.
        """
        points = self.noised(images, times, noise)
        told = self.times[times.cpu()].to(images.device)
        predicted, learned = split_output(network(points, told, classes), images.shape[1])
        parts = {"squared_error": per_image((predicted - noise).square())}
        if learned is not None:
            bound = self.bound(images, points, times, predicted.detach(), learned)
            parts["bound"] = BOUND_WEIGHT * len(self) * bound
        return parts


def _at(table: Tensor, steps: Tensor, like: Tensor) -> Tensor:
    """Return the entries of a table at steps, to be combined with tensors like another."""
    entries = table[steps.cpu()].to(like.dtype).to(like.device)  # not every device has float64
    return entries.view(-1, *[1] * (like.dim() - 1))
