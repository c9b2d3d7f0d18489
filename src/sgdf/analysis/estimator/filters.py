"""The filters whose estimates are compared: the forms of momentum, and SGDF's."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...filter import check_filter_options, filter_gradient, filter_scalars
from .shadow_filter import Observation, ShadowFilter


class RawGradient(ShadowFilter):
    """The gradient of the mini-batch itself, against which the others are measured."""

    name, optimizer = "raw gradient", "sgd-vanilla"

    def step(self, state: None, observation: Observation) -> tuple[Tensor, None]:
        """Return the gradient."""
        return observation.grad, None


class Mean(NamedTuple):
    """A running sum or mean, and how many gradients are in it."""

    value: Tensor
    steps: int


class RunningMean(ShadowFilter):
    """The exponential moving average (EMA), divided by 1 − βᵗ to undo its start at zero.

    Args:
        beta: its decay rate.
    """

    optimizer = "sgd-ema"

    def __init__(self, beta: float = 0.9) -> None:
        self.name, self.beta = f"EMA, β {beta:g}", beta

    def step(self, state: Mean | None, observation: Observation) -> tuple[Tensor, Mean]:
        """Return the mean."""
        value, steps = state or (torch.zeros_like(observation.grad), 0)
        state = Mean(value.lerp(observation.grad, 1.0 - self.beta), steps + 1)
        return state.value / (1.0 - self.beta**state.steps), state


class Momentum(ShadowFilter):
    """Classical momentum (CM), the running sum that SGD steps with.

    As it is, it tends to 1/(1 − β) times a steady gradient: nearly all of its error is this
    factor, which the learning rate undoes. Only scaled by 1 − β is it an estimate of the
    gradient, and differs from the running mean by its start at zero.

    Args:
        beta: its decay rate.
        scale: what the sum is multiplied by.
    """

    optimizer = "sgd-cm"

    def __init__(self, beta: float = 0.9, scale: float = 1.0) -> None:
        self.name = f"CM, β {beta:g}" + (f", times {scale:.3g}" if scale != 1.0 else "")
        self.beta, self.scale = beta, scale

    def step(self, state: Tensor | None, observation: Observation) -> tuple[Tensor, Tensor]:
        """Return the sum, scaled."""
        total = observation.grad if state is None else self.beta * state + observation.grad
        return self.scale * total, total


class FixedGain(ShadowFilter):
    """A fixed mixture of running mean and gradient, as quasi-hyperbolic momentum (QHM) has it.

    Args:
        beta: the decay rate of the mean.
        gain: the weight of the gradient.
    """

    def __init__(self, beta: float = 0.9, gain: float = 0.175) -> None:
        self.name, self.gain, self.mean = f"gain {gain:g}, β {beta:g}", gain, RunningMean(beta)

    def step(self, state: Mean | None, observation: Observation) -> tuple[Tensor, Mean]:
        """Return the mixture."""
        mean, state = self.mean.step(state, observation)
        return mean.lerp(observation.grad, self.gain), state


class Moments(NamedTuple):
    """The running moments of SGDF's filter, and how many gradients are in them."""

    mean: Tensor
    var: Tensor
    steps: int


class Filtered(NamedTuple):
    """What SGDF's filter knows after a step, with its state for the next."""

    estimate: Tensor
    corrected_mean: Tensor
    residual: Tensor
    gain: Tensor
    """Before the power is taken."""
    mean_variance: Tensor
    """The variance of the mean, as the filter estimates it: the square of its standard error."""
    moments: Moments


class SGDFEstimate(ShadowFilter):
    """The estimate that ``sgdf.SGDF`` steps with; its weight decay is no part of it.

    Args:
        betas: decay rates of the mean and of the residual variance.
        eps: added to the squared residual.
        gamma: power of the gain.
        gamma_decay: makes the power shrink as ``gamma / step**gamma_decay``.
        correction: ``"paper"`` or ``"none"``.
    """

    optimizer = "sgdf"

    def __init__(
        self,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        gamma: float = 0.5,
        gamma_decay: float = 0.0,
        correction: str = "paper",
    ) -> None:
        check_filter_options(betas, eps, gamma, gamma_decay, correction)
        power = "" if gamma == 0.5 else f", γ {gamma:g}"
        self.name = f"SGDF, β {betas[0]:g}{power}"
        self.eps = eps
        self.betas, self.gamma = betas, gamma
        self.gamma_decay, self.correction = gamma_decay, correction

    def step(self, state: Moments | None, observation: Observation) -> tuple[Tensor, Moments]:
        """Return the filtered gradient."""
        found = self.filter(state, observation.grad)
        return found.estimate, found.moments

    def filter(self, state: Moments | None, grad: Tensor) -> Filtered:
        """Return the filtered gradient, with what it was made of."""
        mean, var, steps = state or (torch.zeros_like(grad), torch.zeros_like(grad), 0)
        step = steps + 1
        found = filter_gradient(
            grad,
            mean,
            var,
            step,
            betas=self.betas,
            eps=self.eps,
            gamma=self.gamma,
            gamma_decay=self.gamma_decay,
            correction=self.correction,
        )
        scalars = filter_scalars(
            step,
            betas=self.betas,
            gamma=self.gamma,
            gamma_decay=self.gamma_decay,
            correction=self.correction,
        )
        corrected_mean = found.mean / scalars.mean_correction
        return Filtered(
            estimate=found.estimate,
            corrected_mean=corrected_mean,
            residual=grad - corrected_mean,
            gain=found.gain,
            mean_variance=found.var / scalars.residual_weight,
            moments=Moments(found.mean, found.var, step),
        )
