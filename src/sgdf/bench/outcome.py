"""What a run came to: the epochs that count, picked out of its metrics, and its figures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from .train import Row, Trainer


def epochs_that_count(rows: list[Row], protocol: str, metric: str, largest: bool) -> dict[str, Row]:
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


def result_of(trainer: Trainer) -> dict[str, Any]:
    """Return all that is kept of a run that is over."""
    run, task = trainer.run, trainer.task
    return {
        "metric": task.selects,
        "largest": task.largest,
        **epochs_that_count(trainer.rows, run.protocol, task.selects, task.largest),
        "step": trainer.step,
        "epoch": trainer.epoch,
        "diverged_at_step": trainer.diverged,
        "seconds": trainer.seconds,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "state_bytes": sum(map(_state_bytes, trainer.optimizers.values())),
        "weights": _weights_digest(trainer.model),
    }


def line_of(result: dict[str, Any]) -> str:
    """Return a result in a line."""
    if result["diverged_at_step"] is not None:
        return f"diverged at step {result['diverged_at_step']:,}"
    metric = result["metric"]
    chosen = result.get("selected") or result["best_on_test"]
    epoch = f"epoch {chosen['epoch']}"
    how = f"{epoch}, chosen on validation" if "selected" in result else f"{epoch}, the best on test"
    return f"test {metric} {chosen['test'][metric]:.4g} ({how})"


def _figures(row: Row) -> Row:
    wanted = ("epoch", "step", "train", "validation", "test")
    return {key: row[key] for key in wanted if key in row}


def _state_bytes(optimizer: Optimizer) -> int:
    entries: list[Mapping[str, Any]] = [s for s in optimizer.state.values() if isinstance(s, dict)]
    tensors = [v for entry in entries for v in entry.values() if isinstance(v, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _weights_digest(model: nn.Module) -> str:
    """Return a digest of all weights, by which two runs can be seen to be the same."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()
