"""The measured costs as tables, JSON, Markdown and a bar chart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .measure import LIMIT, MEMORY_ALONE, Cost, Result, Spread, whole_steps
from .operations import SYMBOLS, Row

if TYPE_CHECKING:
    from rich.table import Table

PLOT_FORMATS = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class Report:
    """Everything that one call of ``sgdf cost`` found out."""

    environment: dict[str, str]
    rounds: int
    results: list[Result]
    operations: list[Row]

    def as_json(self) -> dict[str, Any]:
        """Return plain lists, dicts and numbers."""
        return {
            "environment": self.environment,
            "rounds": self.rounds,
            "problems": [
                asdict(result) | {"whole_steps": whole_steps(result)} for result in self.results
            ],
            "operations": [asdict(row) | {"total": row.total} for row in self.operations],
        }

    def tables(self) -> Iterator[Table]:
        """Yield tables for a terminal."""
        for result in self.results:
            yield _step_table(result, self.rounds)
        runtime = [row for result in self.results for row in whole_steps(result)]
        if runtime:
            yield _runtime_table(runtime, self.results)
        yield _operation_table(self.operations)


def _table(title: str, caption: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for heading in left:
        table.add_column(heading, no_wrap=True)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _step_table(result: Result, rounds: int) -> Table:
    caption = (
        f"Medians, with quartiles in brackets, of {rounds} rounds in which all took turns."
        " State and peak: bytes per parameter. Limit: the bytes of SGDF's step read and"
        " written without arithmetic, by the same route and as the native call alone."
        " Library: pytorch-optimizer."
    )
    if result.forward_backward:
        caption += (
            f" Share: of a whole training step, whose forward and backward pass ({result.training})"
            f" takes {1e3 * result.forward_backward.median:.0f} ms."
        )
    table = _table(
        f"{result.problem}: {result.parameters:,} parameters, {_plural(result.tensors, 'tensor')}",
        caption,
        ("",),
        ("ms", "× fused Adam", "× limit", "state", "peak", "share"),
    )
    for cost in result.costs:
        limit = _name(cost) in (LIMIT, MEMORY_ALONE)
        table.add_row(
            ", ".join(_name(cost)),
            _number(1e3 * cost.seconds.median),
            _spread(cost.to_adam),
            _number(cost.to_limit.median) if cost.to_limit else "–",
            "–" if limit else f"{cost.state_bytes:.1f}",
            "–" if limit else f"{cost.peak_bytes:.1f}",
            "–" if limit or cost.share is None else f"{cost.share:.1%}",
            style="bold" if cost.optimizer == "SGDF" else "dim" if limit else None,
        )
    return table


def _runtime_table(rows: list[dict[str, Any]], results: list[Result]) -> Table:
    training = next(result.training for result in results if result.training)
    table = _table(
        "Whole training steps, as ratios to SGD with momentum",
        f"Ours: {training}, on this machine. Paper and hours: 100 epochs of ImageNet at 224 pixels,"
        " batch 256, fp16, on a GPU. Share: the optimizer's, larger for smaller batches.",
        ("network", "optimizer", "implementation"),
        ("share", "ours / SGD", "paper / SGD", "hours"),
    )
    for row in rows:
        table.add_row(
            row["network"],
            row["optimizer"],
            row["implementation"],
            f"{row['share']:.1%}",
            f"{row['ratio_to_sgd']:.3f}",
            f"{row['published_ratio']:.3f}",
            f"{row['published_hours']:.2f}",
        )
    return table


def _operation_table(rows: list[Row]) -> Table:
    table = _table(
        "Operations per parameter element and step",
        "Counted on the loop over tensors of this installation. Paper: total as written →"
        " simplified. Other: comparisons and powers, which the paper does not count.",
        ("optimizer", "decay"),
        (*SYMBOLS, "total", "paper"),
    )
    for row in rows:
        table.add_row(
            row.optimizer,
            row.decay,
            *(str(row.counted.get(symbol, "")) for symbol in SYMBOLS),
            str(row.total),
            " → ".join(map(str, row.published)),
        )
    return table


def _name(cost: Cost) -> tuple[str, str]:
    return cost.optimizer, cost.implementation


def _number(value: float) -> str:
    """Return three digits, or all of them before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}"


def _spread(spread: Spread) -> str:
    return f"{_number(spread.median)} ({_number(spread.lower)}–{_number(spread.upper)})"


def draw(report: Report, path: Path) -> None:
    """Write a bar chart: each implementation's step as a ratio to fused Adam's."""
    from matplotlib.figure import Figure

    results = report.results
    rows = max(len(result.costs) for result in results)
    figure = Figure(figsize=(2.4 + 2.6 * len(results), 1.3 + 0.26 * rows), layout="constrained")
    panels = figure.subplots(1, len(results), squeeze=False, sharey=True)[0]
    for panel, result in zip(panels, results, strict=True):
        costs = result.costs[::-1]
        ratios = [cost.to_adam for cost in costs]
        panel.barh(
            [", ".join(_name(cost)) for cost in costs],
            [ratio.median for ratio in ratios],
            xerr=[
                [ratio.median - ratio.lower for ratio in ratios],
                [ratio.upper - ratio.median for ratio in ratios],
            ],
            color=[_colour(cost) for cost in costs],
            error_kw={"elinewidth": 1, "capsize": 2},
        )
        panel.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
        for row, ratio in enumerate(ratios):
            panel.annotate(f" {_number(ratio.median)}", (ratio.upper, row), va="center", fontsize=7)
        panel.set(
            xscale="log",
            title=f"{result.problem}, {_plural(result.tensors, 'tensor')}",
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


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


# Of the palette by Okabe and Ito, which colour-blind readers can tell apart.
_COLOURS = {"SGDF": "#D55E00", "Adam": "#0072B2", "AdamW": "#56B4E9", "SGD": "#009E73"}


def _colour(cost: Cost) -> str:
    return (
        "#BBBBBB"
        if _name(cost) in (LIMIT, MEMORY_ALONE)
        else _COLOURS.get(cost.optimizer, "#CC79A7")
    )
