"""Numbers from a mixture of normal distributions, for which a perfect network is a formula."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """Independent numbers, each from one of several normal distributions.

    Attributes:
        shares: how likely each of them is.
        means: of each.
        deviations: of each; 0 makes a single value.
    """

    shares: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]

    def expected(self, points: Tensor, signal: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean number x and the mean noise e, given points = signal x + spread e."""
        points, signal, spread = points.unsqueeze(-1), signal.unsqueeze(-1), spread.unsqueeze(-1)
        shares, means, deviations = (
            torch.tensor(v, dtype=points.dtype) for v in (self.shares, self.means, self.deviations)
        )
        variance = (signal * deviations).square() + spread.square()
        away = points - signal * means
        log_weights = shares.log() - variance.log() / 2 - away.square() / variance / 2
        weights = log_weights.softmax(-1)
        number = means + signal * deviations.square() / variance * away
        return (weights * number).sum(-1), (weights * spread / variance * away).sum(-1)

    def cumulative(self, numbers: Tensor) -> Tensor:
        """Return the share of the mixture below each number."""
        parts = zip(self.shares, self.means, self.deviations, strict=True)
        return sum(p * torch.special.ndtr((numbers - m) / s) for p, m, s in parts)

    def distance(self, drawn: Tensor) -> float:
        """Return the Wasserstein distance of drawn numbers from the mixture."""
        grid = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
        ordered = drawn.double().flatten().sort().values
        below = torch.searchsorted(ordered, grid, right=True) / len(ordered)
        return torch.trapezoid((below - self.cumulative(grid)).abs(), grid).item()

    def gap(self, drawn: Tensor) -> float:
        """Return the largest difference between the shares below any number (Kolmogorov's)."""
        expected = self.cumulative(drawn.double().flatten().sort().values)
        shares = torch.arange(len(expected) + 1) / len(expected)
        return max((expected - shares[1:]).abs().max(), (expected - shares[:-1]).abs().max()).item()

    def noise_of(self, chain):
        """Return the perfect prediction of noise on a chain, of points and times."""

        def field(points: Tensor, times: Tensor) -> Tensor:
            steps = torch.searchsorted(chain.times, times.long())
            signal = chain.signal[steps].to(points.dtype).view(-1, *[1] * (points.dim() - 1))
            return self.expected(points, signal.sqrt(), (1 - signal).sqrt())[1]

        return field

    def velocity(self, points: Tensor, times: Tensor) -> Tensor:
        """Return the perfect prediction of the velocity at points and times."""
        share = times.view(-1, *[1] * (points.dim() - 1))
        number, noise = self.expected(points, share, 1 - share)
        return number - noise
