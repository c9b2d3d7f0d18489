"""How many examples a batch has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def count_examples(batch: Any) -> int:
    """Return the length of the first tensor in a batch.

    Args:
        batch: a tensor, or tensors in tuples, lists and mappings.

    Raises:
        ValueError: if there is no tensor that has a length.
    """
    first = next(_tensors_in(batch), None)
    if first is None or not first.ndim:
        raise ValueError(
            f"cannot count the examples of a batch of type {type(batch).__name__}: it has no "
            "tensor whose length it could be; give the weights of the batches"
        )
    return len(first)


def _tensors_in(batch: Any) -> Iterator[Tensor]:
    """Yield the tensors of a batch: itself, or those in tuples, lists and mappings."""
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors_in(value)
    elif isinstance(batch, list | tuple):
        for value in batch:
            yield from _tensors_in(value)
