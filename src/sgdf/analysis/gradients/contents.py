"""The page about gradients and directions: its findings, tables and plots in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ...bench.errors import SpecError
from ...present.plots import Plot
from ...present.words import listed
from ..conduct import Contents, Measured
from ..significance import significant_differences
from .curves import deviation_plot, loss_plot, mean_plot
from .measure import ALL, check_tensors
from .ridges import VIEWS, ridge_plot
from .series import (
    REFERENCE,
    SettingSeries,
    end_layers,
    median,
    reference_of,
    series_by_setting,
    single_tensors,
    typical_tensor,
)
from .tables import deviation_table, largest_shift, mean_table, tensor_table, typical_deviation


def contents(measured: Sequence[Measured], tensors: Sequence[str]) -> Contents:
    """Return what the page shows.

    Args:
        measured: the runs, all of one task.
        tensors: the tensors to draw, beside all parameters together; by default one.

    Raises:
        SpecError: if no run was described, or none of its tensors has such a name.
    """
    described = [one for one in measured if one.record["tensors"]]
    if not described:
        raise SpecError(
            "all runs diverged before their first description; choose a smaller --every"
        )
    settings = series_by_setting(described)
    check_tensors(tensors, single_tensors(settings[0]))
    drawn = list(tensors) or [typical_tensor(settings)]
    plots = [
        deviation_plot(settings, drawn),
        mean_plot(settings),
        *_ridge_plots(settings, drawn),
        loss_plot(settings),
    ]
    return Contents(
        summary=[*_findings(settings), *_diverged(measured)],
        tables=[deviation_table(settings), tensor_table(settings), mean_table(settings)],
        plots=[plot for plot in plots if plot is not None],
    )


def _ridge_plots(
    settings: Sequence[SettingSeries], tensors: Sequence[str]
) -> Iterator[Plot | None]:
    named = {f"{number}": tensor for number, tensor in enumerate(tensors, start=1)} | {"all": ALL}
    for word, tensor in named.items():
        for view in VIEWS:
            yield ridge_plot(settings, tensor, view, f"gradients-{view}-{word}")


def _findings(settings: Sequence[SettingSeries]) -> Iterator[str]:
    """Yield in sentences: the order of the deviations, the shifts, and what limits them."""
    if (reference := reference_of(settings)) is not None:
        yield from _order_of_deviations(settings, reference)
    for layer, tensor in end_layers(settings[0]).items():
        shifts = [
            f"{float(np.mean(largest_shift(setting, tensor, 'direction'))):.2g} ({setting.name})"
            for setting in settings
        ]
        yield (
            "Largest mean of the direction in units of its standard deviation, "
            f"{layer} ({tensor}): {listed(shifts)}."
        )
    alone = [setting.name for setting in settings if len(setting.runs) == 1]
    if alone:
        which = "all settings" if len(alone) == len(settings) else listed(alone)
        yield f"The numbers of {which} are of one seed, and say nothing about their spread."


def _diverged(measured: Sequence[Measured]) -> Iterator[str]:
    """Yield in sentences which runs diverged."""
    for one in measured:
        if "nonfinite" in one.record:
            shown = (
                "what is shown of it ends before"
                if one.record["tensors"]
                else ("nothing of it is shown")
            )
            yield (
                f"{one.run.setting}, seed {one.run.run.seed}, diverged at step "
                f"{one.record['nonfinite']}: {shown}."
            )


def _order_of_deviations(
    settings: Sequence[SettingSeries], reference: SettingSeries
) -> Iterator[str]:
    """Yield the order of the settings, and which of their differences are significant."""
    by_seed = {
        setting.name: dict(
            zip(
                [seed for seed in setting.runs if seed in reference.runs],
                map(float, typical_deviation(setting, reference)),
                strict=True,
            )
        )
        for setting in settings
        if setting.runs.keys() & reference.runs.keys()
    }
    sizes = {name: float(np.mean(list(values.values()))) for name, values in by_seed.items()}
    ordered = sorted(
        (setting for setting in settings if setting.name in sizes), key=lambda s: sizes[s.name]
    )
    names = single_tensors(reference)
    by_tensor = [
        [float(np.mean(median(s.relative_deviation(name, reference), axis=1))) for s in ordered]
        for name in names
    ]
    agreeing = sum(row == sorted(row) for row in by_tensor)
    chain = " < ".join(f"{setting.name} ({sizes[setting.name]:.2g})" for setting in ordered)
    yield (
        f"Standard deviation of the direction relative to {REFERENCE}'s, the median over steps and "
        f"tensors: {chain}. This order holds in {agreeing} of {len(names)} tensors."
    )
    yield from significant_differences(by_seed, "deviation")
