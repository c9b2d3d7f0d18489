"""The numbers of probes as curves: a panel for each number, a line for each setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, mark, reveal, set_title, shorten, use_log_axis
from ...present.styles import Style
from ...present.words import plural
from ..errors import StoreError
from ..store.conform import conform
from ..store.run_folder import RunFolder
from .curve import Curve, curve_over_runs, draw_curve, thin
from .findings import Problem, RunRecord, Setting
from .styled_settings import styled_settings

MOST_PANELS = 24
LONGEST_LABEL = 26
"""Letters beside a panel."""
EXPECTED = "_expected"
"""The end of the name of a number that is a thin line in the panel of the number without it."""
ABOUT = (
    "Numbers that probes have recorded while the runs trained: means over the finished runs, with "
    "bands from the lowest run to the highest. A thin line is the value that the probe states "
    "as the expected one. Panels of the same quantity have the same axis."
)


class Words(NamedTuple):
    """How a number of a probe is written above and beside its panel."""

    title: str
    quantity: str
    """Numbers of the same quantity are there to be compared: their panels have the same axis."""


_COSINE, _ERROR = "cosine with true gradient", "relative squared error"
BUNDLED = {
    "gradient-norm": {"norm": Words("norm", "norm of the gradient")},
    "gain": {
        "mean": Words("mean", "gain"),
        "powered_mean": Words("mean of its power", "weight of the gradient"),
    },
    "estimate": {
        "cosine_raw": Words("raw gradient", _COSINE),
        "cosine_ema": Words("EMA", _COSINE),
        "cosine_sgdf": Words("SGDF", _COSINE),
        "error_raw": Words("raw gradient", _ERROR),
        "error_ema": Words("EMA", _ERROR),
        "error_sgdf": Words("SGDF", _ERROR),
    },
    "update-size": {
        "ratio": Words("update", "norm relative to weights"),
        "weights": Words("weights", "norm"),
    },
    "sharpness": {
        "largest": Words("largest eigenvalue", "eigenvalue"),
        "largest_normalised": Words("largest eigenvalue, normalised", "eigenvalue · ‖θ‖²"),
    },
}
"""The numbers of bundled probes in words."""


class Source(NamedTuple):
    """What a number of a probe is about."""

    probe: str
    optimizer: str
    """The name of the optimizer within the task."""
    number: str

    @property
    def words(self) -> Words:
        """How it is written; a number of a probe that is not bundled has its own name only."""
        kind = self.probe.partition(" ")[0]  # the second of a name is called NAME 2
        own = Words(self.number, shorten(self.number, LONGEST_LABEL))
        return BUNDLED.get(kind, {}).get(self.number, own)


class Series(NamedTuple):
    """A number of a probe over the steps at which all runs of a setting have it."""

    curve: Curve
    runs: int


def probe_curves(problem: Problem, by_name: dict[str, Style]) -> tuple[str, Drawing | None]:
    """Return what the curves show in words, and the figure; None if no probe has looked."""
    drawn = [
        (setting, style, series)
        for setting, style in styled_settings(problem, by_name)
        if (series := _series(setting))
    ]
    sources = list(dict.fromkeys(source for _, _, series in drawn for source in series))
    known = set(sources)
    sources = [source for source in sources if _plain(source) not in known]
    shown = _choose(sources)
    if not shown:
        return "", None
    sheet = Sheet(len(shown), 3.4, 2.4, [setting.name for setting, _, _ in drawn])
    labelled: dict[str, Any] = {}
    several = len({source.optimizer for source in shown}) > 1
    for panel, source in zip(sheet.panels, shown, strict=True):
        expected = source._replace(number=source.number + EXPECTED)
        for setting, style, series in drawn:
            if source in series:
                found = series[source]
                line = draw_curve(sheet, panel, setting, style, found.curve, _readings(found))
                labelled.setdefault(setting.name, line)
            if expected in series:
                found = series[expected]
                # No dashes, which would be those of some optimizer.
                (line,) = panel.plot(
                    found.curve.x, found.curve.middle, color=style.color, linewidth=0.7
                )
                mark(setting.optimizer, line)
                sheet.figure.explain(line, f"{setting.name}, expected", _readings(found))
        reveal(panel, largest=False)
        set_title(panel, _title(source, several))
        panel.set_xlabel("steps")
        panel.set_ylabel(source.words.quantity)
    _share_axes(shown, sheet.panels)
    about = ABOUT
    if len(shown) < len(sources):
        about += (
            f" {len(shown)} of {plural(len(sources), 'number')} are drawn; the files probes.jsonl "
            "in the folders of the runs have all."
        )
    return about, sheet.legend(labelled)


def _plain(source: Source) -> Source | None:
    """Return the number that this one is the expected value of; None if it is none."""
    if not source.number.endswith(EXPECTED):
        return None
    return source._replace(number=source.number.removesuffix(EXPECTED))


def _choose(sources: Sequence[Source]) -> list[Source]:
    """Return the numbers to draw: if there are too many, each probe has as many as the others."""
    turns: dict[tuple[str, str], int] = {}
    turn = {}
    for source in sources:
        turn[source] = turns.get(source[:2], 0)
        turns[source[:2]] = turn[source] + 1
    chosen = set(sorted(sources, key=turn.__getitem__)[:MOST_PANELS])
    return [source for source in sources if source in chosen]


def _share_axes(sources: Sequence[Source], panels: Sequence[Axes]) -> None:
    """Give panels of one quantity of a probe the same upright axis."""
    groups: dict[tuple[str, str, str], list[Axes]] = {}
    for source, panel in zip(sources, panels, strict=True):
        groups.setdefault((*source[:2], source.words.quantity), []).append(panel)
    for alike in groups.values():
        curves = [line.get_ydata() for panel in alike for line in panel.get_lines()]
        values = np.concatenate([np.asarray(curve, float) for curve in curves])
        values = values[np.isfinite(values)]
        if len(alike) > 1 and len(values) and 0.0 < 20.0 * values.min() < values.max():
            for panel in alike:
                use_log_axis(panel, "y")
        lows, highs = zip(*(panel.get_ylim() for panel in alike), strict=True)
        for panel in alike:
            panel.set_ylim(min(lows), max(highs))


def _title(source: Source, several: bool) -> str:
    probe = source.probe.rpartition(":")[2]  # of module:Class
    return f"{probe}{f' of {source.optimizer}' if several else ''}: {source.words.title}"


def _readings(series: Series) -> list[str]:
    runs = plural(series.runs, "seed")
    return [
        f"step {x:,.0f}: {value:.4g}, {runs}"
        for x, value in zip(series.curve.x, series.curve.middle, strict=True)
    ]


def _series(setting: Setting) -> dict[Source, Series]:
    """Return the numbers of a setting, each over the finished runs that have it."""
    runs = [numbers for run in setting.finished if (numbers := _numbers(run))]
    found = {}
    for source in dict.fromkeys(source for run in runs for source in run):
        own = [run[source] for run in runs if source in run]
        steps = sorted(set.intersection(*map(set, own)))
        if steps:
            points = ((step, [values[step] for values in own]) for step in thin(steps))
            found[source] = Series(curve_over_runs(points), len(own))
    return found


def _numbers(run: RunRecord) -> Mapping[Source, Mapping[int, float]]:
    """Return the numbers that probes recorded of a run, by step; anything else is left out."""
    try:
        rows = RunFolder(run.folder).probe_rows()
    except StoreError:  # the run counts all the same
        return {}
    found: dict[Source, dict[int, float]] = {}
    for row in rows:
        probe, optimizer = row.get("probe"), row.get("optimizer")
        if type(probe) is not str or type(optimizer) is not str:
            continue
        for key, value in row.items():
            if key != "step" and type(value) in (int, float):
                source = Source(probe, optimizer, key)
                found.setdefault(source, {})[row["step"]] = conform(float, value)
    return found
