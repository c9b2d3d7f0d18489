"""The half-batch Kalman filter: noise and drift measured instead of assumed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .filters import Mean, RunningMean
from .shadow_filter import Observation, ShadowFilter


class HalfBatchState(NamedTuple):
    """What the filter keeps of one tensor; the numbers are for the tensor as a whole."""

    estimate: Tensor
    level: Mean
    """The slow running mean, to which an oscillation returns."""
    products: Tensor
    """The 2 × 2 matrix of the normal equations: products of estimate and level."""
    moments: Tensor
    """Their right-hand side: products of estimate and level with the gradient."""
    innovation: Tensor
    """The mean square of gradient minus prediction: noise, and error of the prediction."""
    noise: Tensor
    """The mean square of the noise."""
    steps: int


class HalfBatchKalman(ShadowFilter):
    r"""A Kalman filter whose model is fitted while it runs, one for each tensor.

    Two half batches give the gradient :math:`g = (g_a + g_b)/2` and a sample of its noise,
    :math:`h = (g_a - g_b)/2`, which has the noise's variance and nothing of the signal. With the
    last estimate :math:`e` and a slow running mean :math:`w` of the gradients (decay 0.95):

    .. math::
        p &= a\, e + c\, w, \qquad
        S = \overline{|g - p|^2}, \quad R = \overline{|h|^2}, \quad
        K = \mathrm{clip}(1 - R/S,\ 0.02,\ 1) \\
        e &\leftarrow p + K (g - p)

    The bars are running means (decay 0.9). :math:`(a, c)` is the least-squares fit of the past
    gradients to the estimates and means before them: running means (0.9) of its normal equations,
    a ridge of 1e-3 of their mean diagonal, clipped to ±2; (1, 0) in the first four steps.

    It is a yardstick, not an optimizer: two more backward passes for each step.
    """

    name = "half-batch Kalman"
    decay, level_decay = 0.9, 0.95
    ridge, largest_weight, smallest_gain = 1e-3, 2.0, 0.02
    fixed_steps = 4

    def __init__(self) -> None:
        self._level = RunningMean(self.level_decay)

    def step(
        self, state: HalfBatchState | None, observation: Observation
    ) -> tuple[Tensor, HalfBatchState]:
        """Return the estimate."""
        if observation.noise is None:
            raise ValueError("the half-batch Kalman filter needs the noise of half batches")
        grad, state = observation.grad, state or self._start(observation.grad)
        last = torch.stack([state.estimate.flatten(), self._mean(state).flatten()])
        prediction = (self._weights(state) @ last).view_as(grad)
        innovation = self._average(state.innovation, (grad - prediction).square().sum())
        noise = self._average(state.noise, observation.noise.square().sum())
        # 0/0, a tensor without any gradient so far, counts as no gain.
        gain = (1.0 - noise / innovation).nan_to_num(0.0).clamp(self.smallest_gain, 1.0)
        estimate = prediction.lerp(grad, gain)
        return estimate, HalfBatchState(
            estimate=estimate,
            level=self._level.step(state.level, observation)[1],
            products=self._average(state.products, last @ last.T),
            moments=self._average(state.moments, last @ grad.flatten()),
            innovation=innovation,
            noise=noise,
            steps=state.steps + 1,
        )

    def _start(self, grad: Tensor) -> HalfBatchState:
        zeros, zero = torch.zeros_like(grad), grad.new_zeros(())
        return HalfBatchState(
            zeros, Mean(zeros, 0), grad.new_zeros(2, 2), grad.new_zeros(2), zero, zero, 0
        )

    def _average(self, mean: Tensor, value: Tensor) -> Tensor:
        return self.decay * mean + (1.0 - self.decay) * value

    def _mean(self, state: HalfBatchState) -> Tensor:
        """Return the level without the effect of its start at zero."""
        return state.level.value / (1.0 - self.level_decay ** max(state.level.steps, 1))

    def _weights(self, state: HalfBatchState) -> Tensor:
        """Return the weights of estimate and level in the prediction."""
        # Solved in float64: estimate and level are nearly parallel when the gradient is steady.
        products = state.products.double()
        size = products.diagonal().mean()
        if state.steps < self.fixed_steps or not size:  # nothing to fit, if all was 0 so far
            return state.moments.new_tensor([1.0, 0.0])
        ridged = products + self.ridge * size * torch.eye(2).to(products)
        weights: Tensor = torch.linalg.solve(ridged, state.moments.double())
        return weights.clamp(-self.largest_weight, self.largest_weight).to(state.moments.dtype)
