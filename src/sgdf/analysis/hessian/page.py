"""The tables and figures about the Hessian at the end of runs, with the paper's numbers beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...bench.paper.published import published
from ...bench.report.sample_cells import mean_cell
from ...present.plots import Drawing, Plot, Sheet, drawing, mark, set_title, use_log_axis
from ...present.table import Table, number_cell
from ...present.words import listed
from ..conduct import Contents, Measured
from ..settings import MeasuredSetting, by_setting, by_task, last_test_results, styled

SECTION = "Hessian"
FIGURE = "fig:hessian_spectrum"
"""The paper's figure with the numbers of eight optimizers."""


def contents(given: Mapping[str, Any], measured: Sequence[Measured]) -> Contents:
    """Return what the page shows, given the settings of the analysis and its records."""
    settings = by_setting(measured)
    tables = [_overview(settings), _weights(settings)]
    if given["power"]:
        tables.append(_paper_way(settings))
    plots = [
        Plot(
            "hessian-histogram",
            SECTION,
            f"Histograms of the {given['top']} largest eigenvalues",
            "As in the paper's figure, one panel for each setting, the eigenvalues of all seeds "
            "together. All panels have the same bins, on a logarithmic axis.",
            _histograms(settings),
        ),
        Plot(
            "hessian-ranks",
            SECTION,
            f"The {given['top']} largest eigenvalues, one after the other",
            "The mean over seeds.",
            _ranks(settings),
        ),
    ]
    return Contents(_summary(settings), tables, plots, {SECTION: _how(given, measured)})


def _largest(one: Measured) -> float:
    return float(one.record["largest"]["values"][0])


def _trace(one: Measured) -> float:
    return float(one.record["trace"]["value"])


def _square(one: Measured) -> float:
    """Return the squared norm of the weights."""
    return float(one.record["weight norm"]) ** 2


def _summary(settings: Sequence[MeasuredSetting]) -> list[str]:
    """Return the order of the settings; those of different tasks are not compared."""
    lines = []
    for what, value in (("trace", _trace), ("largest eigenvalue", _largest)):
        for alike in by_task(settings):
            means = {setting.name: setting.sample(value).mean for setting in alike}
            ranked = sorted(means, key=lambda name: means[name])
            order = " < ".join(f"{name} ({means[name]:.3g})" for name in ranked)
            lines.append(f"Mean {what}: {order}.")
    return lines


def _how(given: Mapping[str, Any], measured: Sequence[Measured]) -> list[str]:
    examples = dict.fromkeys(
        one.record.get("examples", f"{given['examples']:,} training examples") for one in measured
    )
    modes = (
        "BatchNorm uses the statistics of each batch, dropout is on"
        if given["batch_statistics"]
        else "BatchNorm uses its stored statistics, dropout is off"
    )
    decay = (
        f"the loss includes the term of a weight decay of {given['weight_decay']:g}"
        if given["weight_decay"]
        else "no term of the weight decay is in the loss"
    )
    return [
        f"The loss is that of {listed(list(examples))}, at the last epoch; {modes}, and {decay}. "
        f"Eigenvalues are by Lanczos' method to a relative accuracy of {given['tolerance']:g}, "
        f"the trace is the mean over {given['probes']} random vectors.",
        "Numbers with ± are mean and standard deviation over seeds. Where BatchNorm follows a "
        "weight, scaling the weight by c leaves the network the same and divides this part of its "
        "Hessian by c². So a network with larger weights has a smaller Hessian without being any "
        "flatter; the columns with ‖θ‖² multiply by the squared norm of all weights.",
    ]


def _overview(settings: Sequence[MeasuredSetting]) -> Table:
    trace, largest = _printed("Trace"), _printed("Largest eigenvalue")
    rows = [
        (
            setting.cell,
            mean_cell(setting.sample(_trace)),
            mean_cell(setting.sample(_largest)),
            mean_cell(setting.sample(lambda one: one.record["smallest"]["values"][0])),
            number_cell(trace.get(setting.optimizer)),
            number_cell(largest.get(setting.optimizer)),
            number_cell(_trace_error(setting)),
            number_cell(max(max(one.record["largest"]["residuals"]) for one in setting.runs), 2),
            mean_cell(setting.sample(lambda one: one.record["largest"]["products"])),
        )
        for setting in settings
    ]
    return Table(
        "hessian-spectrum",
        SECTION,
        "Curvature at the end of training",
        f"The paper's numbers ({FIGURE}) are of a ResNet-18 after 200 epochs of CIFAR-100, "
        "measured at an epoch and on images that it does not name: their order can be compared, "
        "not their size. They are repeated for each setting of an optimizer.",
        (
            "setting",
            "trace",
            "largest eigenvalue",
            "smallest eigenvalue",
            "paper: trace",
            "paper: largest",
            "error of the trace",
            "largest residual",
            "products",
        ),
        tuple(rows),
    )


def _trace_error(setting: MeasuredSetting) -> float:
    """Return the standard error of a run's trace, by its random vectors; the mean over runs."""
    return setting.sample(lambda one: one.record["trace"]["error"]).mean


def _weights(settings: Sequence[MeasuredSetting]) -> Table:
    heading, results = last_test_results(settings)
    rows = [
        (
            setting.cell,
            mean_cell(setting.sample(lambda one: one.record["weight norm"])),
            mean_cell(setting.sample(lambda one: _square(one) * _trace(one))),
            mean_cell(setting.sample(lambda one: _square(one) * _largest(one))),
            mean_cell(setting.sample(lambda one: one.record["loss"])),
            mean_cell(setting.sample(lambda one: one.run.last("train").get("loss"))),
            mean_cell(result),
        )
        for setting, result in zip(settings, results, strict=True)
    ]
    return Table(
        "hessian-weights",
        SECTION,
        "Size of the weights, training loss and test results of the same networks",
        "A comparison of curvature means little where these differ.",
        (
            "setting",
            "‖θ‖",
            "trace · ‖θ‖²",
            "largest · ‖θ‖²",
            "loss on these examples",
            "training loss",
            heading,
        ),
        tuple(rows),
    )


def _paper_way(settings: Sequence[MeasuredSetting]) -> Table:
    rows = [
        (
            setting.cell,
            mean_cell(setting.sample(lambda one: _paper_error(one, first=True))),
            mean_cell(setting.sample(lambda one: _paper_error(one, first=False))),
            mean_cell(setting.sample(_count_negative)),
            mean_cell(setting.sample(lambda one: one.record["power"]["products"])),
        )
        for setting in settings
    ]
    return Table(
        "hessian-power",
        SECTION,
        "The same in the paper's way",
        "Power iteration with deflation, at most 100 products for each eigenvalue, stopped when "
        "it changes by less than 0.1 %. It finds the largest in modulus, negative ones too, and "
        "its early stop makes them too small. The error is relative to Lanczos' method, for "
        "the eigenvalue of the same rank.",
        (
            "setting",
            "error of the first (%)",
            "largest error (%)",
            "negative ones",
            "products",
        ),
        tuple(rows),
    )


def _count_negative(one: Measured) -> int:
    return sum(value < 0 for value in one.record["power"]["values"])


def _paper_error(one: Measured, first: bool) -> float:
    """Return by how many per cent the first value of the paper's way, or the worst one, is off."""
    found = np.array(one.record["power"]["values"])
    found = np.sort(found)[::-1]
    exact = np.array(one.record["largest"]["values"][: len(found)])
    errors = 100.0 * (found[: len(exact)] - exact) / np.abs(exact)
    return float(errors[0] if first else errors[np.abs(errors).argmax()])


def _printed(name: str) -> dict[str, float]:
    """Return the paper's numbers in one of its columns, by the optimizer's name here."""
    (column,) = (one for one in published() if (one.label, one.name) == (FIGURE, name))
    return {column.optimizers[key]: value[0] for key, value in column.values.items()}


def _positive(setting: MeasuredSetting) -> np.ndarray:
    """Return the largest eigenvalues of all runs of a setting, without those below zero."""
    values = np.concatenate([one.record["largest"]["values"] for one in setting.runs])
    return values[values > 0]


def _histograms(settings: Sequence[MeasuredSetting]) -> Drawing:
    everything = np.concatenate([_positive(setting) for setting in settings])
    low, high = (everything.min(), everything.max()) if len(everything) else (0.1, 1.0)
    edges = np.geomspace(low / 1.05, high * 1.05, 31)
    with drawing("hessian-histogram"):
        sheet = Sheet(len(settings), 3.0, 2.1, [], columns=4)
        for panel, (setting, style) in zip(sheet.panels, styled(settings), strict=True):
            counts, _ = np.histogram(_positive(setting), edges)
            bars = panel.bar(
                edges[:-1], counts, np.diff(edges), align="edge", color=style.color, alpha=0.8
            )
            mark(setting.optimizer, *bars)
            use_log_axis(panel, "x")
            panel.set_xlim(edges[0], edges[-1])
            set_title(panel, setting.name)
            panel.annotate(
                f"trace {setting.sample(_trace).mean:.4g}\n"
                f"largest {setting.sample(_largest).mean:.3g}",
                (0.97, 0.95),
                xycoords="axes fraction",
                ha="right",
                va="top",
                fontsize=8,
            )
            panel.set_xlabel("eigenvalue")
            panel.set_ylabel("number")
        return sheet.figure


def _ranks(settings: Sequence[MeasuredSetting]) -> Drawing:
    with drawing("hessian-ranks"):
        sheet = Sheet(1, 6.0, 3.6, [setting.name for setting in settings])
        (panel,) = sheet.panels
        handles: dict[str, Any] = {}
        for setting, style in styled(settings):
            spectra = [one.record["largest"]["values"] for one in setting.runs]
            mean = np.mean([s[: min(map(len, spectra))] for s in spectra], axis=0)
            (line,) = panel.plot(np.arange(1, len(mean) + 1), mean, **style.line)
            mark(setting.optimizer, line)
            texts = [f"eigenvalue {rank}: {value:.4g}" for rank, value in enumerate(mean, 1)]
            sheet.figure.explain(line, setting.name, texts)
            handles[setting.name] = line
        use_log_axis(panel, "y")
        panel.set_xlabel("rank")
        panel.set_ylabel("eigenvalue")
        return sheet.legend(handles)
