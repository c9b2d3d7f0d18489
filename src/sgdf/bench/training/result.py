"""The result of a run: the epochs that count, picked from its metrics, and its figures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer

from ..spec.protocol import Protocol
from ..store.records import (
    EpochFigures,
    Result,
    Row,
    chosen_epoch,
    figures_on,
    is_chosen_on_test,
    splits_in,
)
from ..tasks import Task
from ..tasks.metric import Metric
from .trainer import Trainer


def epochs_that_count(
    rows: list[Row], protocol: Protocol, metric: Metric
) -> dict[str, EpochFigures]:
    """Return the epochs that a report shows.

    ``last`` is the last one that was evaluated. The other is the best by the protocol, under the
    name that the protocol gives it: ``selected`` is the best on the validation data, and its test
    figures are the run's result; ``best_on_test``, which the paper reports, was chosen by looking
    at the test data.

    Args:
        rows: the run's metrics.
        protocol: the run's protocol.
        metric: what "best" is measured by; the earliest wins a tie.
    """
    evaluated = [row for row in rows if row["kind"] == "epoch" and "test" in row]
    judged = [row for row in evaluated if metric.name in figures_on(row, protocol.chooses_on)]
    if not evaluated:
        return {}
    last = {"last": _figures(evaluated[-1])}
    if not judged:
        return last

    def rank(row: Row) -> float:
        value = figures_on(row, protocol.chooses_on)[metric.name]
        return -math.inf if math.isnan(value) else value if metric.is_maximized else -value

    best = max(judged, key=rank)
    return {**last, protocol.chosen: _figures(best)}


def result_of(trainer: Trainer) -> Result:
    """Return the result of a run that is finished or diverged."""
    metric = trainer.metric
    result = {
        "metric": metric.name,
        "largest": metric.is_maximized,
        **({"unit": metric.unit} if metric.unit is not None else {}),
        **epochs_that_count(trainer.rows, trainer.protocol, metric),
        "step": trainer.step,
        "epoch": trainer.epoch,
        "diverged_at_step": trainer.diverged,
        "seconds": trainer.seconds,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        **_examples(trainer.task),
        "state_bytes": sum(map(state_bytes, trainer.optimizers.values())),
        "weights": _weights_digest(trainer.model),
    }
    return cast("Result", result)


def _examples(task: Task) -> dict[str, dict[str, int]]:
    """Return the entry about the number of examples; none if the task does not say it."""
    try:
        counts = {str(split): int(count) for split, count in task.count_examples().items()}
    except Exception:  # a number for people to read must not cost a run its result
        counts = {}
    return {"examples": counts} if counts else {}


def line_of(result: Result) -> str:
    """Return a result in one line."""
    if result["diverged_at_step"] is not None:
        return f"diverged at step {result['diverged_at_step']:,}"
    metric = result["metric"]
    chosen = chosen_epoch(result)
    if chosen is None:
        return "finished without an evaluation"
    how = "the best on test" if is_chosen_on_test(result) else "chosen on validation"
    return f"test {metric} {chosen['test'][metric]:.4g} (epoch {chosen['epoch']}, {how})"


def _figures(row: Row) -> EpochFigures:
    kept = {"epoch": row["epoch"], "step": row["step"]}
    return cast(
        "EpochFigures", {**kept, **{split: figures_on(row, split) for split in splits_in(row)}}
    )


def state_bytes(optimizer: Optimizer) -> int:
    """Return how many bytes an optimizer keeps besides the parameters."""
    entries: list[Mapping[str, Any]] = [s for s in optimizer.state.values() if isinstance(s, dict)]
    tensors = [v for entry in entries for v in entry.values() if isinstance(v, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _weights_digest(model: nn.Module) -> str:
    """Return a digest of all weights, to compare two runs by."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()
