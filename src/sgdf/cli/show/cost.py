"""Tables for the terminal: what a step costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...analysis.cost.measure import Result, Spread
from ...analysis.cost.operations import SYMBOLS, Row
from ...analysis.cost.report import Report, is_limit, label, three_digits
from ...present.terminal import Column, Table
from ...present.words import plural


def cost_tables(report: Report) -> Iterator[Table]:
    """Yield a table of each problem, one of whole training steps, and one of operations."""
    for result in report.results:
        yield _step_table(result, report.rounds)
    runtime = report.whole_steps
    if runtime:
        yield _runtime_table(runtime, report.results)
    yield _operation_table(report.operations)


def _table(title: str, caption: str, left: tuple[str, ...], right: tuple[str, ...]) -> Table:
    """Return a table to be filled; of the numbers, the last are left out first."""
    names = [Column(heading) for heading in left]
    numbers = [Column(heading, "right", rank) for rank, heading in enumerate(right)]
    return Table([*names, *numbers], title, caption)


def _step_table(result: Result, rounds: int) -> Table:
    caption = (
        f"Medians, with quartiles in brackets, of {rounds} rounds in which all took turns."
        " State and peak: bytes per parameter; moved: those that a step in one pass reads and"
        " writes. Limit: the bytes of SGDF's step read and"
        " written without arithmetic, by the same route and as the native call alone."
        " Library: pytorch-optimizer."
    )
    if result.forward_backward:
        caption += (
            f" Share: of a whole training step, whose forward and backward pass ({result.training})"
            f" takes {1e3 * result.forward_backward.median:.0f} ms."
        )
    table = _table(
        f"{result.problem}: {result.parameters:,} parameters, {plural(result.tensors, 'tensor')}",
        caption,
        ("",),
        ("ms", "× fused Adam", "state", "moved", "× limit", "peak", "share"),
    )
    for cost in result.costs:
        limit = is_limit(cost)
        table.add_row(
            label(cost),
            three_digits(1e3 * cost.seconds.median),
            _spread(cost.to_adam),
            "–" if limit else f"{cost.state_bytes:.2f}",
            "–" if limit or cost.moved_bytes is None else f"{cost.moved_bytes:.1f}",
            three_digits(cost.to_limit.median) if cost.to_limit else "–",
            "–" if limit else f"{cost.peak_bytes:.1f}",
            "–" if limit or cost.share is None else f"{cost.share:.1%}",
            style="bold" if cost.optimizer.startswith("SGDF") else "dim" if limit else "",
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


def _spread(spread: Spread) -> str:
    return (
        f"{three_digits(spread.median)} ({three_digits(spread.lower)}–{three_digits(spread.upper)})"
    )
