"""The measured costs as a bar chart."""

from __future__ import annotations

from pathlib import Path

from ...bench.report.optimizer_styles import optimizer_styles
from ...present.words import plural
from .report import Report, is_limit, label, three_digits

LIMIT_COLOR = "#BBBBBB"


def draw(report: Report, path: Path) -> None:
    """Write a bar chart: each implementation's step as a ratio to fused Adam's."""
    from matplotlib.figure import Figure  # which takes its time

    results = report.results
    names = {cost.optimizer.lower() for result in results for cost in result.costs}
    by_name = optimizer_styles(names)
    rows = max(len(result.costs) for result in results)
    figure = Figure(figsize=(2.4 + 2.6 * len(results), 1.3 + 0.26 * rows), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for panel, result in zip(panels, results, strict=True):
        costs = result.costs[::-1]
        ratios = [cost.to_adam for cost in costs]
        panel.barh(
            [label(cost) for cost in costs],
            [ratio.median for ratio in ratios],
            xerr=[
                [ratio.median - ratio.lower for ratio in ratios],
                [ratio.upper - ratio.median for ratio in ratios],
            ],
            color=[
                LIMIT_COLOR if is_limit(cost) else by_name[cost.optimizer.lower()].color
                for cost in costs
            ],
            error_kw={"elinewidth": 1, "capsize": 2},
        )
        panel.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
        for row, ratio in enumerate(ratios):
            panel.annotate(
                f" {three_digits(ratio.median)}", (ratio.upper, row), va="center", fontsize=7
            )
        panel.set(
            xscale="log",
            title=f"{result.problem}, {plural(result.tensors, 'tensor')}",
            xlim=(min(ratio.lower for ratio in ratios) / 1.5, 3 * max(r.upper for r in ratios)),
        )
        panel.title.set_size(9)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.tick_params(labelsize=8)
    machine = report.environment
    figure.supxlabel(
        "time of a step / fused Adam's: median and quartiles\n"
        f"{machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}, "
        f"{machine['date']}",
        fontsize=8,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
