"""The plots of a report: each is drawn once, and written as SVG for the page, PNG and PDF."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

from ..store import State
from .cells import OVERALL, scale_of
from .data import SPLITS, Findings, Problem, Setting
from .palette import Look, looks
from .targets import Target, profiles

Curve = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
POINTS = 120
"""More than these a curve of a few centimetres cannot show."""
AXES = {"step": "steps", "seconds": "seconds of training"}
STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9.0,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "path.simplify_threshold": 0.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name is not a formula
}


@dataclass(frozen=True)
class Plot:
    """A figure with its heading."""

    name: str
    section: str
    title: str
    about: str
    figure: Figure

    def svg(self) -> str:
        """Return it as SVG."""
        text = io.StringIO()
        with _drawing(self.name):
            self.figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        return text.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """Write it as PNG and PDF."""
        paths = [folder / f"{self.name}.{kind}" for kind in ("png", "pdf")]
        with _drawing(self.name):
            self.figure.savefig(paths[0], dpi=144)
            self.figure.savefig(paths[1], metadata={"CreationDate": None})
        return paths


def plots(findings: Findings, targets: Sequence[Target]) -> Iterator[Plot]:
    """Yield every plot that the runs have something for."""
    by_name = looks(findings.optimizers)
    with _drawing("plots"):
        for index, problem in enumerate(findings.problems):
            for axis, words in AXES.items():
                figure = _curves(problem, axis, by_name)
                if figure:
                    yield Plot(
                        f"curves-{index}-{axis}",
                        problem.name,
                        f"Curves against {words}",
                        "Means over the seeds; bands reach from the least to the most.",
                        figure,
                    )
            figure = _rates(problem, by_name)
            if figure:
                yield Plot(
                    f"rates-{index}",
                    problem.name,
                    "What the learning rate does",
                    f"On {problem.judged_on} data: mean over the seeds, from the least to the "
                    "most. A cross at the edge: some run there diverged.",
                    figure,
                )
        figure = _profile(list(targets), by_name)
        if figure:
            yield Plot(
                "profile",
                OVERALL,
                "How often an optimizer is nearly the first at the target",
                "For each factor: the share of instances (a problem with a seed) on which the "
                "target was reached within so many times the steps of the fastest.",
                figure,
            )


@contextlib.contextmanager
def _drawing(salt: str) -> Iterator[None]:
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}), warnings.catch_warnings():
        # A name may be in a script that the font has not got: a box then stands for it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _figure(
    rows: int, columns: int, width: float, height: float, **options: Any
) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _variants(problem: Problem, by_name: dict[str, Look]) -> Iterator[tuple[Setting, Look]]:
    """Yield each setting of the headline with its look."""
    seen: dict[str, int] = {}
    for setting in problem.headline:
        index = seen.setdefault(setting.optimizer, 0)
        seen[setting.optimizer] += 1
        yield setting, by_name[setting.optimizer].variant(index)


def _curves(problem: Problem, axis: str, by_name: dict[str, Look]) -> Figure | None:
    metrics = [name for name in dict.fromkeys((problem.metric, "loss")) if name in problem.metrics]
    drawn = {
        (metric, split): curves
        for metric in metrics
        for split in SPLITS
        if (curves := list(_panel(problem, metric, split, axis, by_name)))
    }
    if not drawn:
        return None
    columns = min(3, len(drawn))
    rows = -(-len(drawn) // columns)
    figure, axes = _figure(rows, columns, 3.4 * columns, 2.5 * rows + 0.4)
    labelled: dict[str, Any] = {}
    for panel, ((metric, split), curves) in zip(axes.flat, drawn.items(), strict=False):
        scale, _ = scale_of(metric)
        for setting, look, (x, low, middle, high) in curves:
            (line,) = panel.plot(
                x, scale * middle, color=look.color, linestyle=look.line, linewidth=1.4
            )
            band = panel.fill_between(
                x, scale * low, scale * high, color=look.color, alpha=0.18, linewidth=0
            )
            _mark(line, band, setting=setting)
            labelled.setdefault(setting.name, line)
        _dress(panel, metric, problem.largest if metric == problem.metric else False)
        panel.set_title(f"training {metric}" if split == "train" else f"{split} {metric}")
        panel.set_xlabel(AXES[axis])
    free = list(axes.flat[len(drawn) :])
    for panel in free:
        panel.set_axis_off()
    _legend(figure, labelled, free[0] if free else None)
    return figure


def _panel(
    problem: Problem, metric: str, split: str, axis: str, by_name: dict[str, Look]
) -> Iterator[tuple[Setting, Look, Curve]]:
    for setting, look in _variants(problem, by_name):
        curve = _curve(setting, split, metric, axis)
        if curve is not None:
            yield setting, look, curve


def _curve(setting: Setting, split: str, metric: str, axis: str) -> Curve | None:
    """Return abscissa, least, mean and most over the seeds, epoch by epoch."""
    runs = [
        {
            row["epoch"]: (_abscissa(row, axis), row[split][metric])
            for row in run.epochs
            if metric in row.get(split, {})
        }
        for run in setting.runs
    ]
    runs = [run for run in runs if run]
    if not runs:
        return None
    epochs = sorted(set.union(*(set(run) for run in runs)))
    if len(epochs) > POINTS:
        epochs = [epochs[round(i * (len(epochs) - 1) / (POINTS - 1))] for i in range(POINTS)]
    points = [[run[epoch] for run in runs if epoch in run] for epoch in epochs]
    x = np.array([np.mean([at for at, _ in point]) for point in points])
    values = [np.array([value for _, value in point], dtype=float) for point in points]
    values = [np.where(np.isfinite(v), v, np.nan) for v in values]
    low, middle, high = (np.array([take(v) for v in values]) for take in (np.min, np.mean, np.max))
    return x, low, middle, high


def _abscissa(row: Any, axis: str) -> float:
    seconds = row["seconds"]
    return float(row["step"] if axis == "step" else seconds["step"] + seconds["data"])


def _rates(problem: Problem, by_name: dict[str, Look]) -> Figure | None:
    """Draw the metric against the learning rate, for optimizers that had several."""
    series: dict[tuple[str, str], dict[float, Setting]] = {}
    for setting in problem.settings:
        options = setting.table["optimizer"]
        rate = options.get("lr")
        if isinstance(rate, float | int) and not isinstance(rate, bool) and rate > 0:
            rest = setting.name.replace(f" lr={rate}", "")
            series.setdefault((setting.optimizer, rest), {})[float(rate)] = setting
    several = {name: found for name, found in series.items() if len(found) > 1}
    if not several:
        return None
    figure, axes = _figure(1, 1, 7.0, 3.6)
    panel = axes[0, 0]
    scale, _ = scale_of(problem.metric)
    labelled: dict[str, Any] = {}
    count: dict[str, int] = {}
    for (optimizer, rest), found in several.items():
        look = by_name[optimizer].variant(count.setdefault(optimizer, 0))
        count[optimizer] += 1
        rates = sorted(found)
        samples = [found[rate].sample(problem.judged_on, problem.metric) for rate in rates]
        shown = [(r, s) for r, s in zip(rates, samples, strict=True) if math.isfinite(s.mean)]
        if shown:
            x = [rate for rate, _ in shown]
            (line,) = panel.plot(
                x,
                [scale * sample.mean for _, sample in shown],
                color=look.color,
                linestyle=look.line,
                marker=look.marker,
                markersize=4,
            )
            band = panel.fill_between(
                x,
                [scale * min(sample.values) for _, sample in shown],
                [scale * max(sample.values) for _, sample in shown],
                color=look.color,
                alpha=0.18,
                linewidth=0,
            )
            _mark(line, band, setting=found[rates[0]])
            labelled[rest] = line
        lost = [r for r in rates if any(run.state is State.DIVERGED for run in found[r].runs)]
        if lost:
            edge = 0.02 if problem.largest else 0.98
            (crosses,) = panel.plot(
                lost,
                [edge] * len(lost),
                "x",
                color=look.color,
                transform=panel.get_xaxis_transform(),
            )
            _mark(crosses, setting=found[rates[0]])
    panel.set(xscale="log", xlabel="learning rate")
    _plain_numbers(panel.xaxis)
    panel.set_ylabel(f"{problem.judged_on} {problem.metric}")
    if scale == 100.0:
        panel.yaxis.set_major_formatter(PercentFormatter(100.0))
    _legend(figure, labelled)
    return figure


def _profile(targets: list[Target], by_name: dict[str, Look]) -> Figure | None:
    ratios = profiles(targets)
    finite = [ratio for found in ratios.values() for ratio in found if math.isfinite(ratio)]
    if len(ratios) < 2 or not finite:
        return None
    figure, axes = _figure(1, 1, 7.0, 3.4)
    panel = axes[0, 0]
    end = max(2.0, 1.1 * max(finite))
    labelled = {}
    for name, found in ratios.items():
        reached = [ratio for ratio in found if math.isfinite(ratio)]
        x = [1.0, *reached, end]
        y = [0.0, *((i + 1) / len(found) for i in range(len(reached))), len(reached) / len(found)]
        look = by_name[name]
        (line,) = panel.step(
            x, y, where="post", color=look.color, linestyle=look.line, linewidth=1.6
        )
        line.set_gid(mark_of(name))
        labelled[name] = line
    panel.set(xlabel="times the steps of the fastest", ylim=(-0.02, 1.04))
    if end > 20.0:
        panel.set_xscale("log")
        _plain_numbers(panel.xaxis)
    panel.set_ylabel("share of instances")
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _legend(figure, labelled)
    return figure


def _dress(panel: Axes, metric: str, largest: bool) -> None:
    """Give an axis its unit, and losses that fall far a logarithmic one."""
    if scale_of(metric)[0] == 100.0:
        panel.yaxis.set_major_formatter(PercentFormatter(100.0))
        _zoom(panel)
    elif not largest:
        drawn = [np.asarray(line.get_ydata(), float) for line in panel.get_lines()]
        values = np.concatenate([d[np.isfinite(d)] for d in drawn]) if drawn else np.array([])
        if len(values) and values.min() > 0 and values.max() > 20 * values.min():
            panel.set_yscale("log")
            _plain_numbers(panel.yaxis)


def _zoom(panel: Axes) -> None:
    """Let the first fifth of the way leave the picture if the rest needs less than half of it."""
    curves = [np.asarray(line.get_ydata(), float) for line in panel.get_lines()]
    values = np.concatenate(curves)
    late = np.concatenate([curve[len(curve) // 5 :] for curve in curves])
    if np.isfinite(late).any():
        low, high, lowest = np.nanmin(late), np.nanmax(values), np.nanmin(values)
        if high - low < 0.5 * (high - lowest):
            margin = 0.1 * (high - low)
            panel.set_ylim(low - 5.0 * margin, high + margin)


def _plain_numbers(axis: Any) -> None:
    """Write a logarithmic axis without formulas, which names are not to be taken for either."""
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _mark(*artists: Any, setting: Setting) -> None:
    for artist in artists:
        artist.set_gid(mark_of(setting.optimizer))


def mark_of(optimizer: str) -> str:
    """Return a mark by which the page finds what is drawn of an optimizer."""
    return "of-" + optimizer.encode().hex()


def _legend(figure: Figure, labelled: dict[str, Any], free: Axes | None = None) -> None:
    """Say what is what: in a panel that is free, or else below."""
    handles, names = list(labelled.values()), list(labelled)
    if free and len(names) <= 12:
        free.legend(handles, names, loc="center")
    elif names:
        columns = 1 if max(map(len, names)) > 40 else min(4, len(names))
        figure.legend(handles, names, loc="outside lower center", ncols=columns)
    # Drawn in several formats: arranged once.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
