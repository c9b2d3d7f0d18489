"""The tables about gradients and directions: deviations, means, and each tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...bench.report.sample_cells import mean_cell
from ...bench.report.statistics import Sample
from ...present.table import NOTHING, Cell, Table, number_cell
from .measure import ALL
from .series import (
    REFERENCE,
    SettingSeries,
    end_layers,
    largest,
    median,
    reference_of,
    single_tensors,
)

DEVIATION, MEAN = "Deviation", "Mean"
"""The sections of the page that tables belong to."""
ABOUT_U = (
    "Momentum adds each gradient with the weight u to the sum before, which decays by β: a steady "
    "gradient becomes u/(1-β) times as large, which is 1 for a running mean."
)
SMALLEST_SHIFT = 1e-4
"""Means below this many deviations are as good as 0: rounding and weight decay reach so far."""


def typical_deviation(setting: SettingSeries, reference: SettingSeries) -> np.ndarray:
    """Return the median over tensors and steps of the relative deviation, for each seed."""
    by_tensor = [
        median(setting.relative_deviation(name, reference), axis=1)
        for name in single_tensors(setting)
    ]
    return median(by_tensor, axis=0)


def largest_shift(setting: SettingSeries, tensor: str, kind: str) -> np.ndarray:
    """Return the mean that is farthest from 0, in deviations, for each seed; without its sign."""
    return largest(np.abs(setting.shift(tensor, kind)), axis=1)


def deviation_table(settings: Sequence[SettingSeries]) -> Table:
    """Return a row for each setting: how wide its directions are, and how skewed."""
    reference = reference_of(settings)
    rows = []
    for setting in settings:
        relative = None if reference is None else typical_deviation(setting, reference)
        names = single_tensors(setting)
        own = [median(setting.deviation_of_gradient(name), axis=1) for name in names]
        skews = [
            median([median(np.abs(setting.series(n, kind, "skew")), axis=1) for n in names], axis=0)
            for kind in ("gradient", "direction")
        ]
        scale = setting.scale
        rows.append(
            (
                setting.setting.cell,
                _cell(relative),
                number_cell(scale),
                _cell(relative / scale if relative is not None and scale else None),
                _cell(median(own, axis=0)),
                *map(_cell, skews),
            )
        )
    compared = (
        f"The deviation of the direction is relative to that of {REFERENCE} at the same step and "
        "with the same seed, then divided by u/(1-β) so that forms of momentum can be compared, "
        "and relative to the setting's own gradients."
        if reference
        else "The deviation of the direction is relative to that of the setting's own gradients; "
        f"with a run of {REFERENCE}, which is plain SGD, it would be shown relative to that too."
    )
    return Table(
        "gradients-deviation",
        DEVIATION,
        "Directions by setting",
        f"A deviation is the standard deviation of the elements of a tensor. {compared} {ABOUT_U} "
        "Each is the median over the steps, then over the tensors; so is the skew, without its "
        "sign.",
        (
            "setting",
            f"deviation / {REFERENCE}",
            "u/(1-β)",
            f"divided by it / {REFERENCE}",
            "deviation / own gradient",
            "skew of gradients",
            "skew of directions",
        ),
        tuple(rows),
    ).without_empty_columns()


def mean_table(settings: Sequence[SettingSeries]) -> Table:
    """Return how far the means are from 0, for the layers at the ends of the model."""
    rows = []
    for layer, tensor in end_layers(settings[0]).items():
        for setting in settings:
            rows.append(
                (
                    Cell(f"{layer}: {tensor}"),
                    setting.setting.cell,
                    _shift_cell(largest_shift(setting, tensor, "gradient")),
                    _shift_cell(largest_shift(setting, tensor, "direction")),
                    _shift_cell(median(setting.shift(tensor, "direction"), axis=1)),
                )
            )
    return Table(
        "gradients-mean",
        MEAN,
        "Means in units of the deviation",
        "The mean over the elements of a tensor, divided by their standard deviation at the same "
        "step: the largest over the steps, without its sign, and the median over the steps, with "
        "it. The gradient of softmax has mean 0 over the classes, so the last layer's is 0 but for "
        "rounding, and a direction whose mean is not 0 there was shifted by the optimizer (weight "
        "decay shifts it by about a thousandth).",
        ("tensor", "setting", "gradient, largest", "direction, largest", "direction, median"),
        tuple(rows),
    )


def tensor_table(settings: Sequence[SettingSeries]) -> Table:
    """Return a row for each tensor: the deviation of each setting's direction."""
    reference = reference_of(settings)
    base = reference or settings[0]
    rows = []
    for name in [*single_tensors(base), ALL]:
        sizes = [
            setting.relative_deviation(name, reference)
            if reference
            else setting.deviation_of_gradient(name)
            for setting in settings
        ]
        rows.append(
            (
                Cell(name),
                number_cell(math.prod(base.tensors[name]["shape"]), digits=9),
                _cell(median(base.series(name, "gradient", "deviation"), axis=1)),
                *(_cell(median(size, axis=1)) for size in sizes),
            )
        )
    held = f"that of {REFERENCE}" if reference else "that of the setting's own gradient"
    return Table(
        "gradients-tensors",
        DEVIATION,
        "Directions by tensor",
        f"The standard deviation of the elements of the gradient in the runs of {base.name}, and "
        f"by setting that of the direction relative to {held}: medians over the steps.",
        ("tensor", "elements", f"gradient of {base.name}", *(setting.name for setting in settings)),
        tuple(rows),
    )


def _cell(values: np.ndarray | None) -> Cell:
    """Return the mean and the deviation over the seeds; of one seed, which a finding says, alone.

    "One seed" in each of some hundred cells would hide the numbers.
    """
    if values is None or np.isnan(values).all():
        return Cell(NOTHING)
    if len(values) == 1:
        return number_cell(float(values[0]), digits=3)
    return mean_cell(Sample(tuple(map(float, values))))


def _shift_cell(values: np.ndarray) -> Cell:
    """Return a mean in units of the deviation; its digits only where it is more than rounding."""
    cell = _cell(values)
    small = bool(np.all(np.abs(values) < SMALLEST_SHIFT))
    return replace(cell, text=f"below {SMALLEST_SHIFT:g}") if small else cell
