"""What is recorded about data: a digest of their rows, and how many rows two splits share.

Reports compare runs by it. The work is bounded, so that no run begins noticeably later, and no
random number is drawn.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor

HASHED_BYTES = 4 * 2**20
"""Of a split with more than this, rows that are evenly spaced are hashed."""
COMPARED_BYTES, COMPARED_ROWS = 16 * 2**20, 50_000
"""Splits with more than this together are not searched for rows that both have."""


def digest_rows(*tensors: Tensor) -> str:
    """Return a digest of tensors of equally many rows, and how many of the rows it is of.

    >>> digest_rows(torch.zeros(3, 2))
    '47bfc70aabb698b9 of 3 rows'
    """
    count = len(tensors[0])
    hashed = min(count, max(1, HASHED_BYTES // max(1, _row_bytes(tensors))))
    chosen = torch.arange(hashed) * count // hashed
    content = hashlib.sha256()
    for tensor in tensors:
        content.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        rows = tensor if hashed == count else tensor[chosen.to(tensor.device)]
        content.update(_as_bytes(rows).numpy().data)
    part = f"{hashed:,} of {count:,}" if hashed < count else f"{count:,}"
    return f"{content.hexdigest()[:16]} of {part} rows"


def count_shared_rows(train: tuple[Tensor, ...], test: tuple[Tensor, ...]) -> int | None:
    """Return how many rows of the second split are also in the first; None if there are too many.

    A row is an input with its target, or an image alone.
    """
    rows = len(train[0]) + len(test[0])
    size = len(train[0]) * _row_bytes(train) + len(test[0]) * _row_bytes(test)
    if rows > COMPARED_ROWS or size > COMPARED_BYTES:
        return None
    seen = {row.tobytes() for row in torch.cat([_as_bytes(t) for t in train], 1).numpy()}
    return sum(row.tobytes() in seen for row in torch.cat([_as_bytes(t) for t in test], 1).numpy())


def can_be_hashed(data: Any) -> bool:
    """Return whether data, which may be anything, are tensors of equally many rows in memory."""
    return (
        isinstance(data, tuple)
        and all(isinstance(t, Tensor) and t.layout is torch.strided and t.numel() for t in data)
        and len({len(tensor) if tensor.dim() else 0 for tensor in data}) == 1
    )


def _row_bytes(tensors: tuple[Tensor, ...]) -> int:
    return sum(t[:1].numel() * t.element_size() for t in tensors)


def _as_bytes(rows: Tensor) -> Tensor:
    """Return the bytes of each row."""
    flat = rows.detach().cpu().contiguous().view(len(rows), -1 if len(rows) else 0)
    return flat.view(torch.uint8)
