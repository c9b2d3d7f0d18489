"""The tables and figures about the Hessian at the end of runs, with the paper's numbers beside."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from ...bench.paper.published import published
from ...bench.report.sample_cells import mean_cell
from ...bench.report.statistics import Sample
from ...present.plots import Drawing, Plot, Sheet, drawing, mark, set_title, use_log_axis
from ...present.table import NOTHING, Table, number_cell
from ...present.words import listed, plural
from ..conduct import Contents, Measured
from ..settings import (
    ABOUT_LOSSES,
    LOSS_ON_EXAMPLES,
    TRAINING_LOSS,
    MeasuredSetting,
    by_setting,
    by_task,
    last_test_results,
    styled,
)
from ..significance import significant_differences

SECTION = "Hessian"
FIGURE = "fig:hessian_spectrum"
"""The paper's figure with the numbers of eight optimizers."""
HATCHES = ("", "//", "..", "xx", "--", "\\\\", "oo", "++")
"""Of bars in a hue that other settings before have too."""


def contents(given: Mapping[str, Any], measured: Sequence[Measured]) -> Contents:
    """Return what the page shows, given the settings of the analysis and its records."""
    settings = by_setting(measured)
    tables = [_overview(settings), _weights(settings)]
    if given["power"]:
        tables.append(_paper_way(given, settings))
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
    return Contents(_summary(given, settings), tables, plots, {SECTION: _how(given, measured)})


def _largest(one: Measured) -> float | None:
    """Return the largest eigenvalue; None if it has not converged."""
    values = one.record["largest"]["values"]
    return float(values[0]) if values else None


def _smallest(one: Measured) -> float | None:
    """Return the smallest eigenvalue; None if it has not converged."""
    values = one.record["smallest"]["values"]
    return float(values[0]) if values else None


def _trace(one: Measured) -> float:
    return float(one.record["trace"]["value"])


def _square(one: Measured) -> float:
    """Return the squared norm of the weights."""
    return float(one.record["weight norm"]) ** 2


def _normalised_largest(one: Measured) -> float | None:
    largest = _largest(one)
    return None if largest is None else _square(one) * largest


def _summary(given: Mapping[str, Any], settings: Sequence[MeasuredSetting]) -> list[str]:
    """Return the order of the settings; those of different tasks are not compared."""
    lines = []
    values: dict[str, Callable[[Measured], float | None]] = {
        "trace": _trace,
        "largest eigenvalue": _largest,
    }
    tasks = by_task(settings)
    for (name_of_value, value), alike in itertools.product(values.items(), tasks):
        what = name_of_value if len(tasks) == 1 else f"{name_of_value} ({alike[0].task})"
        by_seed = {setting.name: setting.by_seed(value) for setting in alike}
        means = {name: Sample(tuple(found.values())).mean for name, found in by_seed.items()}
        ranked = sorted(filter(by_seed.get, means), key=lambda name: means[name])
        order = " < ".join(f"{name} ({means[name]:.3g})" for name in ranked)
        if ranked:
            lines.append(f"Mean {what}: {order}.")
        lines += significant_differences({name: by_seed[name] for name in ranked}, what)
    return [*lines, *_missing(given, settings)]


def _missing(given: Mapping[str, Any], settings: Sequence[MeasuredSetting]) -> Iterator[str]:
    """Yield in sentences which eigenvalues have not converged, and what to do."""
    for which, count in (("largest", given["top"]), ("smallest", 1)):
        failed = {
            one.run.name: len(one.record[which]["converged"])
            for setting in settings
            for one in setting.runs
            if "converged" in one.record[which]
        }
        if failed:
            found = listed(
                [f"{name} ({done} of {count} converged)" for name, done in failed.items()]
            )
            what = f"{which} eigenvalue" if count == 1 else f"{count} {which} eigenvalues"
            yield (
                f"The {what} to a relative accuracy of {given['tolerance']:g} could not be found "
                f"for {found}. A larger --tolerance"
                f"{', or fewer of them (--top),' if which == 'largest' else ''} may help."
            )


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
        f"Eigenvalues are by Lanczos' method to a relative accuracy of {given['tolerance']:g}; "
        "that of the smallest is relative to the largest in modulus, because rounding errors "
        f"are. The trace is the mean over {given['probes']} random vectors.",
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
            mean_cell(setting.sample(_smallest)),
            number_cell(trace.get(setting.optimizer)),
            number_cell(largest.get(setting.optimizer)),
            number_cell(_trace_error(setting)),
            number_cell(_largest_residual(setting), 2),
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
        "not their size. They are repeated for each setting of an optimizer. The error of the "
        "trace is its standard error, which its random vectors give, as a mean over seeds. The "
        "largest residual is the largest ‖Hv − λv‖/|λ| among the largest eigenvalues λ with their "
        "unit vectors v. Products with the Hessian, each a double backward pass, are those that "
        "the largest eigenvalues took.",
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


def _largest_residual(setting: MeasuredSetting) -> float | None:
    """Return the largest residual of all runs; None if no run has eigenvalues."""
    residuals = [each for one in setting.runs for each in one.record["largest"]["residuals"]]
    return max(residuals, default=None)


def _weights(settings: Sequence[MeasuredSetting]) -> Table:
    heading, results = last_test_results(settings)
    rows = [
        (
            setting.cell,
            mean_cell(setting.sample(lambda one: one.record["weight norm"])),
            mean_cell(setting.sample(lambda one: _square(one) * _trace(one))),
            mean_cell(setting.sample(_normalised_largest)),
            mean_cell(setting.sample(lambda one: one.record["loss"])),
            mean_cell(setting.sample(lambda one: one.run.last("train").get("loss"))),
            mean_cell(result),
        )
        for setting, result in zip(settings, results, strict=True)
    ]
    return Table(
        "hessian-weights",
        SECTION,
        "Size of the weights, losses and test results of the same networks",
        f"A comparison of curvature means little where these differ. {ABOUT_LOSSES}",
        (
            "setting",
            "‖θ‖",
            "trace · ‖θ‖²",
            "largest · ‖θ‖²",
            LOSS_ON_EXAMPLES,
            TRAINING_LOSS,
            heading,
        ),
        tuple(rows),
    )


def _paper_way(given: Mapping[str, Any], settings: Sequence[MeasuredSetting]) -> Table:
    rows = [
        (
            setting.cell,
            mean_cell(setting.sample(_first_error)),
            mean_cell(setting.sample(_worst_error)),
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
        "it changes by less than 0.1 %. It finds the largest in modulus, negative ones too. The "
        "error is relative to Lanczos' method, for the eigenvalue of the same rank. "
        f"{_signs_of_errors(given, settings)}An early stop leaves a value too small. It leaves "
        "its vector inexact too, and what later values have of that vector makes them too large.",
        (
            "setting",
            "error of the first (%)",
            "largest error (%)",
            "negative ones",
            "products",
        ),
        tuple(rows),
    )


def _signs_of_errors(given: Mapping[str, Any], settings: Sequence[MeasuredSetting]) -> str:
    """Return in a sentence, with a space, how many values of the paper's way are off, if any."""
    parts = [_paper_errors(one) for setting in settings for one in setting.runs]
    errors, limit = np.concatenate(parts), 100.0 * given["tolerance"]
    small, large = np.sum(errors < -limit), np.sum(errors > limit)
    return (
        f"{small} of {plural(len(errors), 'value')} {'is' if small == 1 else 'are'} more than "
        f"{limit:g} % too small, {large} more than {limit:g} % too large. "
        if len(errors)
        else ""
    )


def _count_negative(one: Measured) -> int:
    return sum(value < 0 for value in one.record["power"]["values"])


def _paper_errors(one: Measured) -> np.ndarray:
    """Return by how many per cent the values of the paper's way are off, the largest first."""
    found = np.sort(np.array(one.record["power"]["values"]))[::-1]
    exact = np.array(one.record["largest"]["values"][: len(found)])
    errors: np.ndarray = 100.0 * (found[: len(exact)] - exact) / np.abs(exact)
    return errors


def _first_error(one: Measured) -> float | None:
    errors = _paper_errors(one)
    return float(errors[0]) if len(errors) else None


def _worst_error(one: Measured) -> float | None:
    errors = _paper_errors(one)
    return float(errors[np.abs(errors).argmax()]) if len(errors) else None


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
    drawn: dict[str, int] = {}
    with drawing("hessian-histogram"):
        sheet = Sheet(len(settings), 3.0, 2.1, [], columns=4)
        for panel, (setting, style) in zip(sheet.panels, styled(settings), strict=True):
            counts, _ = np.histogram(_positive(setting), edges)
            # Settings outnumber the hues, and bars have no dashes.
            hatch = HATCHES[drawn.setdefault(style.color, 0) % len(HATCHES)]
            drawn[style.color] += 1
            bars = panel.bar(
                *(edges[:-1], counts, np.diff(edges)),
                align="edge",
                color=style.color,
                alpha=0.8,
                hatch=hatch,
                edgecolor="white" if hatch else style.color,
                linewidth=0.0,
            )
            mark(setting.optimizer, *bars)
            use_log_axis(panel, "x")
            panel.set_xlim(edges[0], edges[-1])
            panel.set_ylim(0.0, 1.5 * max(1, *counts))  # the text is above the bars
            panel.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            set_title(panel, setting.name)
            panel.annotate(
                f"trace {_short(setting.sample(_trace))}\n"
                f"largest {_short(setting.sample(_largest))}",
                (0.97, 0.95),
                xycoords="axes fraction",
                ha="right",
                va="top",
                fontsize=8,
            )
            panel.set_xlabel("eigenvalue")
            panel.set_ylabel("number")
        return sheet.figure


def _short(sample: Sample) -> str:
    return f"{sample.mean:.3g}" if sample.values else NOTHING


def _ranks(settings: Sequence[MeasuredSetting]) -> Drawing:
    with drawing("hessian-ranks"):
        sheet = Sheet(1, 6.0, 3.6, [setting.name for setting in settings])
        (panel,) = sheet.panels
        handles: dict[str, Any] = {}
        for setting, style in styled(settings):
            spectra = [
                values for one in setting.runs if (values := one.record["largest"]["values"])
            ]
            if not spectra:
                continue
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
