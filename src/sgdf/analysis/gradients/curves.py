"""What changes over the steps: deviations, means and the loss, a line for each setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...present.plots import Drawing, Plot, Sheet, band, drawing, mark, use_log_axis
from .measure import ALL
from .series import REFERENCE, SettingSeries, end_layers, median, reference_of, single_tensors
from .tables import DEVIATION, MEAN

LOSS = "Loss"
Curve = Callable[[SettingSeries], tuple[Sequence[int], np.ndarray] | None]
"""Returns the steps and the numbers of a setting there, a row for each seed; None for no line."""


def deviation_plot(settings: Sequence[SettingSeries], tensors: Sequence[str]) -> Plot | None:
    """Draw the deviations of directions relative to plain SGD's; None if that was not measured."""
    reference = reference_of(settings)
    if reference is None:
        return None
    panels: dict[str, Curve] = {}
    for scaled in (False, True) if any(s.scale not in (None, 1.0) for s in settings) else (False,):
        divided = " / (u/(1-β))" if scaled else ""
        panels[f"median over tensors{divided}"] = _relative(reference, None, scaled)
        for name in (*tensors, ALL):
            panels[f"{name}{divided}"] = _relative(reference, name, scaled)
    figure = _figure("gradients-deviation", settings, panels, f"relative to {REFERENCE}", log=True)
    return Plot(
        "gradients-deviation",
        DEVIATION,
        f"Deviation of the direction relative to that of {REFERENCE}",
        "At the same step and with the same seed; the mean over the seeds, with a band from the "
        "lowest to the highest. Where the title says so, the direction is divided by u/(1-β), what "
        "a steady gradient is multiplied by.",
        figure,
    )


def mean_plot(settings: Sequence[SettingSeries]) -> Plot:
    """Draw means in units of the deviation, for the layers at the ends of the model."""
    ends = end_layers(settings[0])
    panels = {
        f"{layer}, {kind}": _shift(tensor, kind)
        for kind in ("direction", "gradient")
        for layer, tensor in ends.items()
    }
    figure = _figure("gradients-mean", settings, panels, "mean / deviation", columns=len(ends))
    names = "; ".join(f"{layer}: {tensor}" for layer, tensor in ends.items())
    return Plot(
        "gradients-mean",
        MEAN,
        "Means in units of the deviation",
        f"{names}. The mean over the seeds, with a band from the lowest to the highest. The exact "
        "mean of the last layer's gradient is 0, if the loss is that of softmax.",
        figure,
    )


def loss_plot(settings: Sequence[SettingSeries]) -> Plot:
    """Draw the training loss of every step."""

    def losses(setting: SettingSeries) -> tuple[Sequence[int], np.ndarray]:
        length = min(len(run["loss"]) for run in setting.runs.values())
        rows = [run["loss"][:length] for run in setting.runs.values()]
        return range(1, length + 1), np.array(rows, float)

    figure = _figure("gradients-loss", settings, {"training loss": losses}, "loss", width=6.0)
    about = "Of each step's batch, before the step: the mean over the seeds, with a band."
    return Plot("gradients-loss", LOSS, "Loss of each step", about, figure)


def _relative(reference: SettingSeries, tensor: str | None, scaled: bool) -> Curve:
    """Return the curve of a tensor's relative deviation, or of the median over all tensors."""

    def curve(setting: SettingSeries) -> tuple[Sequence[int], np.ndarray] | None:
        scale = setting.scale if scaled else 1.0
        if scale is None:
            return None
        names = single_tensors(setting) if tensor is None else [tensor]
        rows = median([setting.relative_deviation(name, reference) for name in names], axis=0)
        return setting.steps, rows / scale

    return curve


def _shift(tensor: str, kind: str) -> Curve:
    return lambda setting: (setting.steps, setting.shift(tensor, kind))


def _figure(
    name: str,
    settings: Sequence[SettingSeries],
    panels: dict[str, Curve],
    label: str,
    log: bool = False,
    columns: int = 3,
    width: float = 3.2,
) -> Drawing:
    """Draw a panel for each title, and in it a line for each setting."""
    with drawing(name):
        names = [setting.name for setting in settings]
        sheet = Sheet(len(panels), width, 2.5, names, columns)
        labelled: dict[str, Any] = {}
        for panel, (title, curve) in zip(sheet.panels, panels.items(), strict=True):
            for setting in settings:
                found = curve(setting)
                if found is None:
                    continue
                steps, rows = found
                middle = rows.mean(axis=0)
                style = setting.style
                # Settings of one optimizer share hue and dashes: dots keep the second apart.
                marker = style.marker if style.faded else ""
                (line,) = panel.plot(
                    steps, middle, linewidth=1.4, marker=marker, markersize=3.0, **style.line
                )
                shade = band(panel, steps, rows.min(axis=0), rows.max(axis=0), style.color)
                mark(setting.optimizer, line, shade)
                points = zip(steps, middle, strict=True)
                texts = [f"step {step}: {value:.3g}" for step, value in points]
                sheet.figure.explain(line, setting.name, texts)
                labelled.setdefault(setting.name, line)
            if log:
                use_log_axis(panel, "y", numbers=3)
            panel.set_title(title)
            panel.set_xlabel("step")
            panel.set_ylabel(label)
        return sheet.legend(labelled)
