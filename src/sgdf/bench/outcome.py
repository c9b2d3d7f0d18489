"""What a run came to: the epochs that count, picked out of its metrics."""

from __future__ import annotations

import math
from typing import Any

Row = dict[str, Any]


def outcome(rows: list[Row], protocol: str, metric: str, largest: bool) -> dict[str, Row]:
    """Return the epochs that a report shows.

    ``last`` is the last one that was evaluated. With the protocol ``"validation"``,
    ``selected`` is the one that is best on the validation data: its test figures are the
    run's result. With ``"paper"``, ``best_on_test`` is the best on the test data, which is
    what the paper reports; it was chosen by looking at them.

    Args:
        rows: the run's metrics.
        protocol: the run's protocol.
        metric: what "best" is measured by; the earliest wins a tie.
        largest: whether the largest value is the best.
    """
    evaluated = [row for row in rows if row["kind"] == "epoch" and "test" in row]
    if not evaluated:
        return {}
    name, split = (
        ("selected", "validation") if protocol == "validation" else ("best_on_test", "test")
    )

    def rank(row: Row) -> float:
        value = row[split][metric]
        return -math.inf if math.isnan(value) else value if largest else -value

    return {"last": _figures(evaluated[-1]), name: _figures(max(evaluated, key=rank))}


def _figures(row: Row) -> Row:
    wanted = ("epoch", "step", "train", "validation", "test")
    return {key: row[key] for key in wanted if key in row}
