"""Synthetic signals, whose best possible estimate is known, for the filters to estimate.

Each signal stands for a gradient: many elements of one tensor over many steps. What a mini-batch
shows is the signal with noise, as two half batches would have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...theory import kalman
from .shadow_filter import Observation, ShadowFilter

Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]
"""Returns independent numbers of mean 0 and variance 1 in a shape."""


def normal(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Return standard normal numbers."""
    return torch.randn(shape, generator=random, dtype=torch.float64)


def heavy_tailed(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Return numbers of Student's t law with five degrees of freedom, scaled to variance 1."""
    squares = normal((5, *shape), random).square().mean(0)
    return math.sqrt(3 / 5) * normal(shape, random) / squares.sqrt()


def rare(shape: tuple[int, ...], random: torch.Generator) -> Tensor:
    """Return 0 in 99 of 100 cases, and otherwise 10 or −10."""
    uniform = torch.rand(shape, generator=random, dtype=torch.float64)
    return 10.0 * ((uniform < 0.005).double() - (uniform >= 0.995).double())


@dataclass(frozen=True)
class Signal:
    """A signal in noise, linear in a hidden state.

    The state follows x ← F x + w, the signal is the sum of the state's components, and what is
    observed is the signal with noise v. The noises have mean 0 and are independent.

    Attributes:
        name: as reports show it.
        transition: the diagonal of F.
        drift: the variances of w.
        start: the variances of the state before the first step.
        noise: the variances of v; the elements of the tensor have them in turn.
        draw_drift: the law of w.
        draw_noise: the law of v.
    """

    name: str
    transition: tuple[float, ...] = (1.0,)
    drift: tuple[float, ...] = (0.0,)
    start: tuple[float, ...] = (1.0,)
    noise: tuple[float, ...] = (1.0,)
    draw_drift: Draw = normal
    draw_noise: Draw = normal

    @property
    def is_gaussian(self) -> bool:
        """Whether the Kalman filter is the best estimate, and not only the best linear one."""
        return self.draw_drift is normal and self.draw_noise is normal

    def observe(
        self, elements: int, random: torch.Generator
    ) -> Iterator[tuple[Tensor, Observation]]:
        """Yield the signal of each step, and what is observed of it, without end.

        Args:
            elements: how many the tensor has.
            random: the generator for signal and noise.
        """
        transition, drift, state = (
            torch.tensor(values, dtype=torch.float64)
            for values in (self.transition, self.drift, self.start)
        )
        shape = (elements, len(self.transition))
        state = normal(shape, random) * state.sqrt()
        deviation = self.noise_of_elements(elements).sqrt()
        while True:
            state = transition * state + drift.sqrt() * self.draw_drift(shape, random)
            # Each half batch has twice the variance of the whole.
            halves = math.sqrt(2.0) * deviation * self.draw_noise((2, elements), random)
            signal = state.sum(-1)
            yield signal, Observation(signal + halves.mean(0), (halves[0] - halves[1]) / 2)

    def best_estimates(self, grads: Tensor) -> Tensor:
        """Return the estimates of the Kalman filter that knows all of these numbers.

        No filter has a smaller error if the signal is Gaussian; otherwise none that is linear in
        the observations.

        Args:
            grads: the observed gradients, a row for each step.
        """
        variances, best = self.noise_of_elements(grads.shape[1]), torch.empty_like(grads)
        for variance in self.noise:
            own = variances == variance
            best[:, own] = torch.from_numpy(
                kalman(
                    grads[:, own].numpy(),
                    transition=np.diag(self.transition),
                    observation=np.ones(len(self.transition)),
                    process_noise=np.diag(self.drift),
                    observation_noise=variance,
                    initial_variance=np.diag(self.start),
                ).signal
            )
        return best

    def standard_error(self, values: Tensor) -> float:
        """Return the standard error of the mean over the elements, which are independent.

        Elements are compared with those of the same noise: that noise is unequal is no chance.
        """
        noises = self.noise_of_elements(len(values))
        parts = (values[noises == noise] for noise in set(self.noise))
        return math.sqrt(sum(len(part) * float(part.var()) for part in parts)) / len(values)

    def noise_of_elements(self, elements: int) -> Tensor:
        """Return the variance of the noise of each element."""
        repeats = math.ceil(elements / len(self.noise))
        return torch.tensor(self.noise, dtype=torch.float64).repeat(repeats)[:elements]


SIGNALS = (
    Signal("constant"),
    Signal("random walk, slow", drift=(0.05,)),
    Signal("random walk, fast", drift=(1.0,)),
    # As on an edge of stability: around a constant the sign changes at each step.
    Signal("oscillating", transition=(1.0, -0.95), drift=(0.0, 0.1), start=(1.0, 1.0)),
    Signal("jumping", drift=(0.05,), draw_drift=rare),
    Signal("heavy-tailed noise", drift=(0.05,), draw_noise=heavy_tailed),
    Signal("unequal noise", drift=(0.05,), noise=(0.01, 0.1, 1.0, 10.0)),
)


@dataclass(frozen=True)
class SignalErrors:
    """How far the filters' estimates of a signal are from it.

    Attributes:
        signal: the signal.
        best: the mean squared error of the Kalman filter that knows the signal's laws, in units
            of the noise's mean variance.
        errors: that of each filter, by its name.
        standard_errors: the standard error of each.
    """

    signal: Signal
    best: float
    errors: dict[str, float] = field(default_factory=dict)
    standard_errors: dict[str, float] = field(default_factory=dict)


def measure_signal(
    signal: Signal,
    filters: Sequence[ShadowFilter],
    steps: int = 1000,
    settled: int = 500,
    elements: int = 400,
    seed: int = 0,
) -> SignalErrors:
    """Return the mean squared errors of filters that all observe the same signal.

    Args:
        signal: what is observed.
        filters: whose errors are measured.
        steps: how many there are.
        settled: how many of them come before the first that counts.
        elements: how many the tensor has.
        seed: of signal and noise.
    """
    random = torch.Generator().manual_seed(seed)
    states: dict[str, Any] = {one.name: None for one in filters}
    squares = {one.name: torch.zeros(elements, dtype=torch.float64) for one in filters}
    grads, signals = [], []
    observed = signal.observe(elements, random)
    for step in range(steps):
        truth, observation = next(observed)
        for one in filters:
            estimate, states[one.name] = one.step(states[one.name], observation)
            if step >= settled:
                squares[one.name] += (estimate - truth).square() / (steps - settled)
        grads.append(observation.grad)
        signals.append(truth)
    errors = signal.best_estimates(torch.stack(grads)) - torch.stack(signals)
    unit = float(signal.noise_of_elements(elements).mean())
    return SignalErrors(
        signal=signal,
        best=float(errors[settled:].square().mean()) / unit,
        errors={name: float(values.mean()) / unit for name, values in squares.items()},
        standard_errors={
            name: signal.standard_error(values) / unit for name, values in squares.items()
        },
    )
