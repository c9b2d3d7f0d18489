"""The result of a run: the epochs that count, picked from its metrics, and its figures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..spec.protocol import Protocol
from ..store.records import (
    EpochFigures,
    FirstNonfinite,
    Result,
    Row,
    chosen_epoch,
    divergence_in_words,
    figures_on,
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

    chosen = judged[-1] if protocol.chosen == "last" else max(judged, key=rank)
    return {**last, protocol.chosen: _figures(chosen)}


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
        **_first_nonfinite(trainer),
        "seconds": trainer.seconds,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        **_examples(trainer.task),
        "state_bytes": sum(map(state_bytes, trainer.optimizers.values())),
        "weights": digest_of_weights(trainer.model.state_dict().items()),
    }
    return cast("Result", result)


def _first_nonfinite(trainer: Trainer) -> dict[str, FirstNonfinite]:
    """Return the entry about the first number that was not finite; none if all were."""
    if trainer.diverged is None or trainer.nonfinite is None:
        return {}
    return {"first_nonfinite": trainer.nonfinite}


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
        return f"diverged {divergence_in_words(result)}"
    metric = result["metric"]
    chosen = chosen_epoch(result)
    if chosen is None:
        return "finished without an evaluation"
    how = {"selected": "chosen on validation", "best_on_test": "the best on test"}
    known = [words for name, words in how.items() if name in result and result["epoch"] > 1]
    which = f" (epoch {chosen['epoch']}, {known[0]})" if known else ""
    return f"test {metric} {chosen['test'][metric]:.4g}{which}"


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


def digest_of_weights(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Return a digest of all weights by name, to compare two runs by."""
    digest = hashlib.sha256()
    for name, tensor in weights:
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()
