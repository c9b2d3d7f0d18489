"""Numbers over the steps, by setting: a row for each seed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...present.styles import Style
from ..conduct import Measured
from ..settings import MeasuredSetting, by_setting, styled
from .measure import ALL

REFERENCE = "sgd-vanilla"
"""Plain SGD: its directions are its gradients, and those of others are held against them."""
PAPERS_DEVIATION = 1e-4
"""The axis of the paper's figure reaches to four times this size on either side."""


@dataclass(frozen=True)
class SettingSeries:
    """What was measured of a setting, as series of numbers.

    Attributes:
        setting: its name, its optimizer and its runs.
        style: how it is drawn.
    """

    setting: MeasuredSetting
    style: Style

    @property
    def name(self) -> str:
        """The name of the setting among those that were measured."""
        return self.setting.name

    @property
    def optimizer(self) -> str:
        """The name of its optimizer."""
        return self.setting.optimizer

    @property
    def runs(self) -> dict[int, dict[str, Any]]:
        """By seed what was measured."""
        return {one.run.run.seed: one.record.values for one in self.setting.runs}

    @property
    def tensors(self) -> dict[str, Any]:
        """What was measured of each tensor with its lowest seed."""
        tensors: dict[str, Any] = self.runs[min(self.runs)]["tensors"]
        return tensors

    @property
    def scale(self) -> float | None:
        """What a steady gradient is multiplied by; None if that is not known, or not one number."""
        scale: float | None = self.tensors[ALL].get("scale")
        return scale

    @property
    def steps(self) -> list[int]:
        """The steps that were described with every seed."""
        first, *others = (run["tensors"][ALL]["gradient"]["step"] for run in self.runs.values())
        return [step for step in first if all(step in steps for steps in others)]

    def series(
        self,
        tensor: str,
        kind: str,
        key: str,
        seeds: Sequence[int] | None = None,
        steps: Sequence[int] | None = None,
    ) -> np.ndarray:
        """Return a number over the steps, a row for each seed; NaN where it is missing.

        Args:
            tensor: the name of a tensor.
            kind: ``"gradient"`` or ``"direction"``.
            key: one of the numbers that a distribution is described by.
            seeds: which; by default all.
            steps: which; by default those that were described with every seed.
        """
        rows = []
        for seed in self.runs if seeds is None else seeds:
            found = self.runs[seed]["tensors"][tensor][kind]
            at = dict(zip(found["step"], found[key], strict=True))
            rows.append([at.get(step, math.nan) for step in steps or self.steps])
        return np.array(rows, float)

    def shift(self, tensor: str, kind: str) -> np.ndarray:
        """Return the mean in units of the deviation over the steps, a row for each seed."""
        return _ratio(self.series(tensor, kind, "mean"), self.series(tensor, kind, "deviation"))

    def relative_deviation(self, tensor: str, reference: SettingSeries) -> np.ndarray:
        """Return the direction's deviation in units of another's, a row for each common seed.

        It is NaN at steps that the other has not reached: a run that diverged has fewer. If no
        seed is common, it is one row of NaN.
        """
        seeds, steps = [seed for seed in self.runs if seed in reference.runs], self.steps
        if not seeds:
            return np.full((1, len(steps)), math.nan)
        own, other = (
            setting.series(tensor, "direction", "deviation", seeds, steps)
            for setting in (self, reference)
        )
        return _ratio(own, other)

    def deviation_of_gradient(self, tensor: str) -> np.ndarray:
        """Return the direction's deviation in units of the gradient's on the same path."""
        return _ratio(
            self.series(tensor, "direction", "deviation"),
            self.series(tensor, "gradient", "deviation"),
        )


def series_by_setting(measured: Sequence[Measured]) -> list[SettingSeries]:
    """Return the series of measured runs in the order of their settings."""
    return [SettingSeries(setting, style) for setting, style in styled(by_setting(measured))]


def reference_of(settings: Sequence[SettingSeries]) -> SettingSeries | None:
    """Return the setting of plain SGD; the first, if there are several."""
    return next((setting for setting in settings if setting.optimizer == REFERENCE), None)


def single_tensors(setting: SettingSeries) -> list[str]:
    """Return the names of the tensors, in the order of the model."""
    return [name for name in setting.tensors if name != ALL]


def end_layers(setting: SettingSeries) -> dict[str, str]:
    """Return the tensors at the two ends of the model by what they are: weights, and the last bias.

    Weights have at least two dimensions.
    """
    names = single_tensors(setting)
    weights = [name for name in names if len(setting.tensors[name]["shape"]) > 1]
    if not weights:
        return {"first layer": names[0], "last layer": names[-1]}
    ends = {"first layer": weights[0], "last layer": weights[-1]}
    bias = names[names.index(weights[-1]) + 1 :]
    return {**ends, "last bias": bias[0]} if bias else ends


def typical_tensor(settings: Sequence[SettingSeries]) -> str:
    """Return the weights whose gradient's deviation is nearest to that in the paper's figure."""
    first = settings[0]
    names = single_tensors(first)
    weights = [name for name in names if len(first.tensors[name]["shape"]) > 1] or names

    def distance(name: str) -> float:
        sizes = [np.median(setting.series(name, "gradient", "deviation")) for setting in settings]
        size = float(np.median(sizes))
        return abs(math.log(size / PAPERS_DEVIATION)) if size > 0.0 else math.inf

    return min(weights, key=distance)


def median(values: Any, axis: int) -> np.ndarray:
    """Return the median of the values that are not NaN; NaN if all of them are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="All-NaN")
        medians: np.ndarray = np.nanmedian(np.asarray(values), axis=axis)
    return medians


def largest(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the largest of the values that are not NaN; NaN if all of them are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="All-NaN")
        most: np.ndarray = np.nanmax(values, axis=axis)
    return most


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return a quotient; NaN where it has no value."""
    ratio = np.full_like(above, math.nan)
    np.divide(above, below, out=ratio, where=below != 0.0)
    return ratio
