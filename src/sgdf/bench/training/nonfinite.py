"""Which number of a run was the first that is not finite: an input, a parameter or the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from ..store.records import FirstNonfinite


def first_nonfinite(
    batch: Any, model: nn.Module | None, step: int, name: str = "loss"
) -> FirstNonfinite:
    """Return what spoilt a loss that is not finite.

    Args:
        batch: the batch of the loss.
        model: the model before the step on this loss; None if the step has been taken.
        step: the step of the loss.
        name: what the loss is called.
    """
    for place, tensor in _tensors(batch):
        if not _is_finite(tensor):
            return {"what": "input", "name": place, "step": step}
    for place, tensor in model.named_parameters() if model is not None else ():
        if not _is_finite(tensor):
            # The loss before it was finite, so the step before this one has spoilt it.
            return {"what": "parameter", "name": place, "step": step - 1}
    return {"what": "loss", "name": name, "step": step}


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.detach().isfinite().all())


def _tensors(batch: Any, place: str = "batch") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a batch, each with the expression that leads to it."""
    if isinstance(batch, Tensor):
        yield place, batch
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from _tensors(value, f"{place}[{key!r}]")
    elif isinstance(batch, list | tuple):
        for index, value in enumerate(batch):
            yield from _tensors(value, f"{place}[{index}]")
