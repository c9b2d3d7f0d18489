"""The figures of a landscape: slices, contours, surfaces, and lines between networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm

from ...bench.report.optimizer_styles import optimizer_styles
from ...present.plots import Plot, Sheet, band, drawing, log_ticks, mark, set_title, use_log_axis
from ...present.styles import DASHES, HUES, Style
from ..settings import LOSS_ON_EXAMPLES, styled
from .findings import LandscapeFindings, LineGroup, Planes
from .numbers import own_level

COLOURS, HIGHLIGHT = "viridis", "#FF3B30"
BAR = 0.75
"""Inches for the bar with the colours, beside the panels."""
HIGHEST = 10.0
"""Maps end at this multiple of the loss that all runs are compared at: further up, networks differ
in nothing but how wrong they are."""


def slice_plot(findings: LandscapeFindings, positions: Sequence[float], section: str) -> Plot:
    """Draw the loss along single directions, all settings in one panel."""
    with drawing("landscape-slices"):
        level = f"loss {findings.level:.3g}"
        sheet = Sheet(1, 7.0, 3.6, [*(setting.name for setting in findings.settings), level])
        (panel,) = sheet.panels
        labelled: dict[str, Any] = {}
        for setting, style in styled(findings.settings):
            # A row for each direction: the mean over the seeds.
            directions = np.mean([one.slices for one in setting.planes], axis=0)
            line = _draw(sheet, panel, positions, directions, style, setting.name)
            mark(setting.optimizer, *line)
            labelled[setting.name] = line[0]
        labelled[level] = panel.axhline(
            findings.level, color="gray", linewidth=0.8, linestyle=(0, (1, 2))
        )
        _use_loss_axis(panel)
        panel.set_xlabel("position along the direction, in norms of each filter")
        panel.set_ylabel(LOSS_ON_EXAMPLES)
        about = (
            "The loss on these examples along each random direction through the networks: the mean "
            "over directions and seeds. The band reaches from the lowest direction to the highest."
        )
        return Plot("landscape-slices", section, "Slices", about, sheet.legend(labelled))


def contour_plot(findings: LandscapeFindings, positions: Sequence[float], section: str) -> Plot:
    """Draw the first plane of each setting as a map, all with the same colours."""
    with drawing("landscape-contours"):
        maps = _Maps(findings, width=2.9, height=2.75)
        edge = positions[-1]
        outer = edge + (positions[1] - positions[0]) / 2.0  # points are the middles of pixels
        for panel, one in maps.panels():
            losses = maps.drawable(one)
            panel.imshow(
                losses,
                extent=(-outer, outer, -outer, outer),
                origin="lower",
                interpolation="bilinear",
                norm=maps.norm,
                cmap=COLOURS,
            )
            levels: list[tuple[Any, str, float, str]] = [
                (np.geomspace(maps.lowest, maps.highest, 14)[1:-1], "white", 0.4, "solid"),
                ([findings.level], HIGHLIGHT, 1.5, "solid"),
                ([own_level(one.centre)], "white", 1.5, "dashed"),
            ]
            for heights, colour, width, dash in levels:
                crossed = [height for height in heights if losses.min() < height < losses.max()]
                if crossed:  # matplotlib warns of levels that are not there
                    panel.contour(
                        *(positions, positions, losses, crossed),
                        colors=colour,
                        linewidths=width,
                        linestyles=dash,
                    )
            panel.set(xlim=(-edge, edge), ylim=(-edge, edge))
            panel.grid(False)
            set_title(panel, one.run.name)
            panel.set_xlabel("first direction")
            panel.set_ylabel("second direction")
        about = (
            "The first plane through the first seed of each setting, with the same logarithmic "
            "colours and thin contours for all. The thick red line is at the loss "
            f"{findings.level:.3g} that all runs are compared at; the dashed white line is at the "
            "network's own level, 2 × (loss of the network) + 0.1."
        )
        return Plot("landscape-contours", section, "Contours", about, maps.sheet.figure)


def surface_plot(findings: LandscapeFindings, positions: Sequence[float], section: str) -> Plot:
    """Draw the same planes as surfaces."""
    with drawing("landscape-surfaces"):
        maps = _Maps(findings, width=3.2, height=2.9)
        x, y = np.meshgrid(positions, positions)
        ticks = log_ticks(maps.lowest, maps.highest)
        for panel, one in maps.panels():
            losses, solid = maps.drawable(one), _in_three_dimensions(panel)
            # Heights are logarithms: axes in three dimensions have no logarithmic scale.
            solid.plot_surface(
                *(x, y, np.log10(losses)),
                facecolors=mpl.colormaps[COLOURS](maps.norm(losses)),
                **{"rcount": len(x), "ccount": len(x), "linewidth": 0, "shade": False},
                antialiased=False,  # else the page's background shows between the faces
                rasterized=True,  # as paths they would make the page large
            )
            solid.set_zlim(np.log10(maps.lowest), np.log10(maps.highest))
            solid.set_zticks([float(np.log10(tick)) for tick in ticks], [f"{t:g}" for t in ticks])
            solid.set_xlabel("first direction", fontsize=7, labelpad=-6)
            solid.set_ylabel("second direction", fontsize=7, labelpad=-6)
            set_title(solid, one.run.name)
        about = "The planes of the contours as surfaces; the height is the logarithm of the loss."
        return Plot("landscape-surfaces", section, "Surfaces", about, maps.sheet.figure)


def line_plot(groups: Sequence[LineGroup], positions: Sequence[float], section: str) -> Plot:
    """Draw the loss between networks: within settings, and from one setting to another."""
    styles = optimizer_styles(
        {run.optimizer for group in groups for line in group.lines for run in (line, line.end)}
    )
    panels = {
        title: chosen
        for title, chosen in (
            ("between two seeds", [group for group in groups if group.within]),
            ("between two settings", [group for group in groups if not group.within]),
        )
        if chosen
    }
    with drawing("landscape-lines"):
        width = 7.0 / len(panels)
        sheet = Sheet(len(panels), width, 3.4, [group.name for group in groups])
        labelled: dict[str, Any] = {}
        for panel, (title, chosen) in zip(sheet.panels, panels.items(), strict=True):
            for place, group in enumerate(chosen):
                line = group.lines[0]
                # Two settings have no colour in common, so their lines have those of their places.
                own = Style(HUES[place % len(HUES)], place % len(DASHES))
                style = styles[line.optimizer] if group.within else own
                drawn = _draw(sheet, panel, positions, group.losses, style, group.name)
                if group.within:
                    mark(line.optimizer, *drawn)
                labelled[group.name] = drawn[0]
            _use_loss_axis(panel)
            panel.set_title(title)
            panel.set_xlabel("position between the two networks")
            panel.set_ylabel(LOSS_ON_EXAMPLES)
        about = (
            "The loss on these examples on the straight line from one network to another: the mean "
            "over the lines. The band reaches from the lowest line to the highest."
        )
        return Plot("landscape-lines", section, "Lines", about, sheet.legend(labelled))


def _draw(
    sheet: Sheet,
    panel: Axes,
    positions: Sequence[float],
    rows: np.ndarray,
    style: Style,
    name: str,
) -> tuple[Any, Any]:
    """Draw the mean of some rows and the band that they fill; return both."""
    middle = rows.mean(axis=0)
    (line,) = panel.plot(positions, middle, linewidth=1.6, **style.line)
    texts = [f"at {at:.3g}: {value:.4g}" for at, value in zip(positions, middle, strict=True)]
    sheet.figure.explain(line, name, texts)
    return line, band(panel, positions, rows.min(0), rows.max(0), style.color)


class _Maps:
    """A panel for the first plane of each setting, and a bar with the colours of all."""

    def __init__(self, findings: LandscapeFindings, width: float, height: float) -> None:
        self.planes = [setting.planes[0] for setting in findings.settings]
        losses = np.concatenate([one.losses[0].ravel() for one in self.planes])
        losses = losses[np.isfinite(losses)]
        # A loss may be negative, but logarithmic colours show what is above 0.
        ceiling = HIGHEST * findings.level if findings.level > 0.0 else np.inf
        self.highest = float(min(losses.max(initial=0.0), ceiling)) or 1.0
        self.lowest = float(max(losses.min(initial=np.inf), self.highest / 1e4))
        if not self.lowest < self.highest:
            self.lowest, self.highest = 0.5 * self.highest, 2.0 * self.highest
        self.norm = LogNorm(self.lowest, self.highest)
        self.sheet = Sheet(len(self.planes), width, height, [], beside=BAR)
        bar = self.sheet.beside
        assert bar is not None, "there is room for it"
        colours = self.sheet.figure.colorbar(ScalarMappable(self.norm, COLOURS), cax=bar)
        cast("Any", colours.solids).set_rasterized(True)
        bar.grid(False)
        ticks = log_ticks(self.lowest, self.highest)
        colours.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        colours.minorticks_off()
        colours.set_label(LOSS_ON_EXAMPLES)

    def panels(self) -> Iterator[tuple[Axes, Planes]]:
        """Yield each panel with the planes of its run."""
        yield from zip(self.sheet.panels, self.planes, strict=True)

    def drawable(self, one: Planes) -> np.ndarray:
        """Return the losses of the first plane, within the range of the colours."""
        losses = np.nan_to_num(one.losses[0], nan=self.highest, posinf=self.highest)
        return np.asarray(np.clip(losses, self.lowest, self.highest))


def _use_loss_axis(panel: Axes) -> None:
    """Make the upright axis logarithmic, with losses that can be read, if they differ widely."""
    values = np.concatenate([np.asarray(line.get_ydata(), float) for line in panel.get_lines()])
    values = values[np.isfinite(values) & (values > 0.0)]
    if len(values) and values.max() > 3.0 * values.min():
        use_log_axis(panel, "y", numbers=3)
        panel.set_yticks([], minor=True)


def _in_three_dimensions(panel: Axes) -> Any:  # matplotlib has no types for it
    """Replace a panel by one with three axes, and return that."""
    place, figure = panel.get_position(), panel.get_figure(root=True)
    assert figure is not None, "a panel of a sheet has its figure"
    panel.remove()
    solid: Any = figure.add_axes(place.bounds, projection="3d")
    solid.view_init(elev=28, azim=-55)
    solid.set_box_aspect((1, 1, 0.8), zoom=1.1)
    for axis in (solid.xaxis, solid.yaxis, solid.zaxis):
        axis.pane.set_visible(False)  # a grey pane hides the page's own background
    solid.tick_params(labelsize=7, pad=-2)
    return solid
