"""The page of a landscape: its tables, its sentences, and the order of its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...bench.report.sample_cells import mean_cell
from ...bench.report.statistics import Sample
from ...present.table import Cell, Table, number_cell
from ...present.words import listed, plural
from ..conduct import Contents, Measured
from ..settings import LOSS_ON_EXAMPLES, last_test_results
from ..significance import significant_differences
from .figures import contour_plot, line_plot, slice_plot, surface_plot
from .findings import LandscapeFindings, LineGroup, Spread
from .options import LandscapeOptions

PLANES, LINES = "Around each network", "Between networks"


def landscape_contents(options: LandscapeOptions, measured: Sequence[Measured]) -> Contents:
    """Return what the page of a landscape shows; each task has sections of its own."""
    by_task: dict[str, list[Measured]] = {}
    for one in measured:
        by_task.setdefault(one.run.task, []).append(one)
    if len(by_task) == 1:
        return _contents_of_task(options, measured)
    parts = [
        _named(_contents_of_task(options, own), task, number)
        for number, (task, own) in enumerate(by_task.items(), start=1)
    ]
    return Contents(
        [line for part in parts for line in part.summary],
        [table for part in parts for table in part.tables],
        [plot for part in parts for plot in part.plots],
        {section: lines for part in parts for section, lines in part.notes.items()},
    )


def _named(contents: Contents, task: str, number: int) -> Contents:
    """Return the contents with the name of the task, among those of several."""

    def section(title: str) -> str:
        return f"{title}: {task}"

    return Contents(
        [f"{task}: {line}" for line in contents.summary],
        [
            replace(table, name=f"{table.name}-{number}", section=section(table.section))
            for table in contents.tables
        ],
        [
            replace(plot, name=f"{plot.name}-{number}", section=section(plot.section))
            for plot in contents.plots
        ],
        {section(title): lines for title, lines in contents.notes.items()},
    )


def _contents_of_task(options: LandscapeOptions, measured: Sequence[Measured]) -> Contents:
    findings = LandscapeFindings(measured, options.level)
    tables, plots, notes = [], [], {}
    if findings.settings:
        tables += [_settings_table(findings), _pairs_table(findings)]
        plots += [
            slice_plot(findings, options.positions, PLANES),
            contour_plot(findings, options.positions, PLANES),
            surface_plot(findings, options.positions, PLANES),
        ]
        notes[PLANES] = _plane_notes(options, findings)
    if findings.line_groups:
        tables.append(_lines_table(findings.line_groups))
        plots.append(line_plot(findings.line_groups, options.line_positions, LINES))
        notes[LINES] = _line_notes(options)
    return Contents(_summary(findings), tables, plots, notes)


def _summary(findings: LandscapeFindings) -> list[str]:
    lines = []
    if findings.settings:
        level = findings.level
        shares = {setting.name: setting.shares(level) for setting in findings.settings}
        curvatures = {setting.name: setting.curvatures() for setting in findings.settings}
        lines += [
            *_warn_of_level(findings),
            f"Share of the planes with a loss below {level:.3g}, the largest first: "
            f"{_ranked(_means(shares), lambda value: f'{100 * value:.3g} %')}.",
            *significant_differences(_by_seed(shares), "share"),
            "Curvature at the network, the largest first: "
            f"{_ranked(_means(curvatures), lambda value: f'{value:.3g}')}.",
            *significant_differences(_by_seed(curvatures), "curvature"),
        ]
    if findings.line_groups:
        barriers = {group.name: group.barriers().mean for group in findings.line_groups}
        lines.append(
            "Rise of the loss between two networks above the higher one, the largest first: "
            f"{_ranked(barriers, lambda value: f'{value:.3g}')}. No difference is tested: lines "
            "between the same networks are not independent."
        )
    return lines


def _warn_of_level(findings: LandscapeFindings) -> list[str]:
    """Return a sentence if a level tells nothing apart, because no loss, or any, is below it."""
    losses = np.concatenate(
        [one.losses.ravel() for setting in findings.settings for one in setting.planes]
    )
    losses = losses[np.isfinite(losses)]
    if not len(losses):
        return []
    if not np.any(losses < findings.level):
        found = f"the lowest loss is {losses.min():.3g}; choose a larger --level"
        return [f"No loss is below {findings.level:.3g}: {found}."]
    if np.all(losses < findings.level):
        found = f"the highest is {losses.max():.3g}; choose a smaller --level or a larger --span"
        return [f"Every loss is below {findings.level:.3g}: {found}."]
    return []


def _ranked(values: dict[str, float], write: Callable[[float], str]) -> str:
    order = sorted(values, key=lambda name: -values[name])
    return ", ".join(f"{name} {write(values[name])}" for name in order)


def _means(spreads: dict[str, Spread]) -> dict[str, float]:
    return {name: spread.sample.mean for name, spread in spreads.items()}


def _by_seed(spreads: dict[str, Spread]) -> dict[str, dict[int, float]]:
    return {name: spread.by_seed for name, spread in spreads.items()}


def _settings_table(findings: LandscapeFindings) -> Table:
    heading, results = last_test_results(findings.settings)
    level = findings.level
    rows = tuple(
        (
            setting.cell,
            _spread_cell(setting.shares(level), 100.0),
            _spread_cell(setting.shares(), 100.0),
            _spread_cell(setting.curvatures()),
            mean_cell(setting.centres()),
            mean_cell(result),
        )
        for setting, result in zip(findings.settings, results, strict=True)
    )
    return Table(
        "landscape",
        PLANES,
        "Share of low loss, and curvature",
        "Mean ± standard deviation over the seeds; each seed counts with its mean over the planes. "
        "In brackets: the standard deviation over the planes of a run, as a mean over the seeds. "
        f"The first share compares all runs at one loss, {level:.3g}; the second uses 2 × (loss of "
        "the network) + 0.1, which differs from run to run. The curvature is the sum of the "
        "second differences of the loss along both directions of a plane.",
        (
            "setting",
            f"share below {level:.3g} (%)",
            "share below own level (%)",
            "curvature",
            LOSS_ON_EXAMPLES,
            heading,
        ),
        rows,
    )


def _spread_cell(spread: Spread, scale: float = 1.0) -> Cell:
    cell = mean_cell(spread.sample, scale)
    if spread.over_pairs is None:
        return cell
    deviation = scale * spread.over_pairs
    parts = {**cell.parts, "sd over planes": deviation}
    return Cell(f"{cell.text} [{deviation:.2g}]", cell.order, parts)


def _pairs_table(findings: LandscapeFindings) -> Table:
    rows = tuple(
        (
            Cell(one.run.name, optimizer=one.run.optimizer),
            number_cell(pair + 1),
            number_cell(cosine, 2),
            number_cell(100.0 * common),
            number_cell(100.0 * own),
            number_cell(curvature),
        )
        for setting in findings.settings
        for one in setting.planes
        for pair, (cosine, common, own, curvature) in enumerate(
            zip(one.cosines, one.shares(findings.level), one.shares(), one.curvatures, strict=True)
        )
    )
    return Table(
        "landscape-planes",
        PLANES,
        "Every plane",
        "The two directions of a plane are random and not made orthogonal: their cosine is given. "
        "The plane of the same number has the same random numbers in every run.",
        (
            "run",
            "plane",
            "cosine",
            f"share below {findings.level:.3g} (%)",
            "share below own level (%)",
            "curvature",
        ),
        rows,
    )


def _lines_table(groups: Sequence[LineGroup]) -> Table:
    rows = tuple(
        (
            Cell(group.name, optimizer=group.lines[0].optimizer if group.within else ""),
            number_cell(len(group.lines)),
            _over_lines([float(max(row[0], row[-1])) for row in group.losses]),
            _over_lines([float(max(row)) for row in group.losses]),
            _over_lines(group.barriers().values),
        )
        for group in groups
    )
    return Table(
        "landscape-lines",
        LINES,
        "Barriers",
        "Means ± standard deviations over the lines. The barrier is the largest loss on a line "
        "minus the loss at its higher end.",
        ("between", "lines", "loss at the higher end", "largest loss", "barrier"),
        rows,
    )


def _over_lines(values: Sequence[float]) -> Cell:
    sample = Sample(tuple(values))
    if sample.sd is None:
        return number_cell(sample.mean)
    return mean_cell(sample)


def _plane_notes(options: LandscapeOptions, findings: LandscapeFindings) -> list[str]:
    vectors = {
        "zero": "Biases and BatchNorm do not move.",
        "scaled": "Biases and BatchNorm move too, each vector by its norm.",
    }[options.vectors]
    notes = [
        f"The loss is that of {listed(findings.examples)}, in evaluation mode: "
        "BatchNorm keeps its statistics, and weight decay is left out.",
        f"{plural(options.pairs, 'plane')} of {options.points} × {options.points} points go "
        f"through each network, from {-options.span:g} to {options.span:g} along two random "
        "directions. "
        f"At 1, each filter has moved by as much as its own norm. {vectors}",
    ]
    if not findings.same_shapes:
        notes.append(
            "The networks have parameters of different shapes, so they do not share their random "
            "numbers: their planes cannot be compared one by one."
        )
    return notes


def _line_notes(options: LandscapeOptions) -> list[str]:
    statistics = {
        "recomputed": "The statistics of BatchNorm are computed anew at every point, the "
        "ends included, from the examples that the loss is measured on.",
        "interpolated": "The statistics of BatchNorm are interpolated as the weights are.",
    }[options.statistics]
    return [
        f"The weights go in a straight line from one network to the other. {statistics} Units that "
        "compute the same in another order are not matched: a barrier can vanish if they are.",
    ]
