"""Densities over the steps as ridge lines, a panel for each setting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Plot, Sheet, drawing, mark, set_title
from ...present.words import plural
from .distribution import BANDWIDTH, counts_from_text, density, robust_deviation
from .series import SettingSeries

SECTION = "Densities"
VIEWS = {
    "gradients": "gradients",
    "directions": "directions",
    "scaled": "directions divided by u/(1-β)",
}
"""What can be drawn of a tensor, by a word for the file's name."""
LABELS = {
    "gradients": "element of the gradient",
    "directions": "element of the direction",
    "scaled": "element, divided by u/(1-β)",
}
"""The words below the axis of each view."""
MOST_LINES = 10
POINTS = 121
REACH = 4.5
"""The axis reaches to this many robust deviations on either side of 0."""
HEIGHT, HIGHEST = 1.2, 1.8
"""The height of a panel's median line and where higher ones are cut, in distances between lines."""
_ABOUT = (
    "Kernel density estimates at {steps}, made of the histograms with a normal kernel; its "
    f"standard deviation is {BANDWIDTH:g} of the distribution's, which is estimated by the middle "
    "half of the elements. The dotted line is 0, and a dot marks the mean; a flat top is a peak "
    "that was cut. {axes}{seeds}"
)


@dataclass(frozen=True)
class _Line:
    """A histogram at one step, with what is needed to draw its density."""

    step: int
    counts: np.ndarray
    mean: float
    width: float  # its deviation by the middle half of the elements
    scale: float

    def density(self, at: np.ndarray) -> np.ndarray:
        scaled = self.scale * at
        return self.scale * density(self.counts, BANDWIDTH * self.width * self.scale, scaled)


def ridge_plot(settings: Sequence[SettingSeries], tensor: str, view: str, name: str) -> Plot | None:
    """Draw the densities of a tensor, a panel for each setting, with the lowest seed.

    Args:
        settings: what is drawn; those without a scale are left out of the view ``"scaled"``.
        tensor: the name of the tensor.
        view: one of ``VIEWS``.
        name: the name of the plot.

    Returns:
        The plot; None if there is nothing to draw.
    """
    lines = {setting.name: _lines(setting, tensor, view) for setting in settings}
    shown = [setting for setting in settings if lines[setting.name]]
    if not shown:
        return None
    drawn = [line for setting in shown for line in lines[setting.name]]
    steps = sorted({line.step for line in drawn})
    with drawing(name):
        sheet = Sheet(len(shown), 3.0, 3.0, [])
        for panel, setting in zip(sheet.panels, shown, strict=True):
            own = lines[setting.name]
            _draw(panel, setting, own, _reach(own if view == "directions" else drawn), steps)
            panel.set_xlabel(LABELS[view])
    seeds = sorted(settings[0].runs)
    about = _ABOUT.format(
        steps=f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}",
        axes="Each panel has its own axis." if view == "directions" else "All axes are the same.",
        seeds=f" Seed {seeds[0]} of {plural(len(seeds), 'seed')}." if len(seeds) > 1 else "",
    )
    return Plot(name, SECTION, f"{tensor}: {VIEWS[view]}", about, sheet.figure)


def _lines(setting: SettingSeries, tensor: str, view: str) -> list[_Line]:
    """Return the lines of a panel: at most ten, as far apart as they can evenly be."""
    scale = setting.scale if view == "scaled" else 1.0
    series = setting.tensors[tensor]["gradient" if view == "gradients" else "direction"]
    if scale is None:
        return []
    lines = []
    for i in range(0, len(series["step"]), -(-len(series["step"]) // MOST_LINES)):
        width = robust_deviation(series["quantiles"][i])
        if width > 0.0:  # else half of the elements are equal, as in a layer that is dead
            counts = counts_from_text(series["counts"][i])
            mean = series["mean"][i] / scale
            lines.append(_Line(series["step"][i], counts, mean, width / scale, scale))
    return lines


def _reach(lines: Sequence[_Line]) -> float:
    return float(REACH * np.median([line.width for line in lines]))


def _draw(
    panel: Axes,
    setting: SettingSeries,
    lines: Sequence[_Line],
    reach: float,
    steps: Sequence[int],
) -> None:
    """Draw the lines of a setting; all panels have the same steps on their upright axis."""
    at = np.linspace(-reach, reach, POINTS)
    densities = [line.density(at) for line in lines]
    apart = min((after - before for before, after in itertools.pairwise(steps)), default=1)
    # The highest peak is no measure: one step with tiny gradients would flatten all others.
    factor = HEIGHT * apart / float(np.median([estimate.max() for estimate in densities]))
    panel.axvline(0.0, color="black", linestyle=":", linewidth=0.9)
    for number, (line, estimate) in enumerate(zip(lines, densities, strict=True)):
        heights = line.step + np.minimum(factor * estimate, HIGHEST * apart)
        over = 3.0 - number / len(lines)  # earlier steps are in front
        color = setting.style.color
        (ridge,) = panel.plot(at, heights, color=color, linewidth=1.1, zorder=over)
        below = np.append(at, [reach, -reach]), np.append(heights, [line.step, line.step])
        (shade,) = panel.fill(*below, color=color, alpha=0.12, linewidth=0, zorder=over)
        mark(setting.optimizer, ridge, shade)
        if abs(line.mean) < reach:
            height = float(np.interp(line.mean, at, heights))
            (dot,) = panel.plot(line.mean, height, "o", color=color, markersize=3.2, zorder=over)
            mark(setting.optimizer, dot)
    set_title(panel, setting.name)
    panel.set_xlim(-reach, reach)
    panel.set_yticks(steps)
    panel.set_ylim(steps[0] - 0.5 * apart, steps[-1] + HIGHEST * apart)
    panel.set_ylabel("step")
    panel.grid(axis="x", visible=False)
    panel.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
    panel.xaxis.get_offset_text().set_fontsize("small")
