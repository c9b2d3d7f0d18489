"""The probe ``gain``: how much of each gradient the filter lets pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...bench.training.probe import Moment, Numbers
from ...monitor import attach
from ...monitor.measurement import choose_elements
from ...monitor.unwrapping import has_filter
from ...theory import steady_gain
from .filter_beside import FilterBeside, all_gradients, join

MAX_ELEMENTS = 2048
"""Elements of each parameter that are measured: enough for a mean, and cheap."""


class Gain:
    """The mean gain of SGDF's filter, and the mean of its power, which is the gradient's weight.

    Beside each is the value that noise of a constant size would give. An optimizer with a filter
    is measured itself, as ``sgdf.monitor`` does it. Beside any other, SGDF's filter sees the same
    gradients.

    Args:
        betas: of the filter beside an optimizer that has none.
    """

    def __init__(self, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.beside = FilterBeside(betas)
        # Of the step that was watched last: the gains, and how many are of each parameter.
        self._gain, self._counts = torch.zeros(0), [0]

    def watch(self, moment: Moment) -> None:
        """Filter the gradient of a step, if the optimizer does not do so itself."""
        if not has_filter(moment.optimizers[moment.optimizer]):
            chosen = [choose_elements(one, MAX_ELEMENTS) for one in all_gradients(moment).values()]
            self._counts = [len(one) for one in chosen]
            self._gain = self.beside.see(moment.optimizer, join(chosen)).gain

    def __call__(self, moment: Moment) -> Numbers | Callable[[], Numbers]:
        """Return the means of this step."""
        optimizer = moment.optimizers[moment.optimizer]
        if not has_filter(optimizer):
            return self._means_beside(list(all_gradients(moment).values()))
        monitor = attach(optimizer, every=1, max_elements=MAX_ELEMENTS)

        def measure() -> Numbers:
            monitor.detach()
            if not monitor.latest:  # the step was left out, for its gradient was not finite
                return {}
            total, steady = monitor.latest["total"], monitor.latest["steady_noise"]
            return _named(
                *(total["gain_mean"], steady["gain_mean"]),
                *(total["powered_gain_mean"], steady["powered_gain_mean"]),
            )

        return measure

    def _means_beside(self, gradients: list[Tensor]) -> Numbers:
        sizes = [one.numel() * (2 if one.is_complex() else 1) for one in gradients]
        own, gain = self.beside.filter, self._gain.double()
        # A parameter counts with all of its elements; the measured ones stand for them.
        weights = torch.cat(
            [
                torch.full((count,), size / max(1, count), dtype=torch.float64)
                for size, count in zip(sizes, self._counts, strict=True)
            ]
        )
        mean, powered = (
            float(weights @ values / weights.sum()) for values in (gain, gain.pow(own.gamma))
        )
        steady, powered_steady = steady_gain(
            betas=own.betas, gamma=own.gamma, eps=own.eps, correction=own.correction
        )
        return _named(mean, steady, powered, powered_steady)

    def state(self) -> dict[str, object]:
        """Return the state of the filter beside the optimizer."""
        return self.beside.state()

    def load_state(self, state: dict[str, object]) -> None:
        """Continue from what ``state`` returned."""
        self.beside.load_state(state)


def _named(mean: float, steady: float, powered: float, powered_steady: float) -> Numbers:
    return {
        "mean": mean,
        "mean_expected": steady,
        "powered_mean": powered,
        "powered_mean_expected": powered_steady,
    }
