"""Checkpoints as bytes: how the state of a trainer is written to its folder and read again."""

from __future__ import annotations

import io
from typing import Any

import torch

from ..store.run_folder import RunFolder


def save(folder: RunFolder, state: dict[str, Any], step: int) -> None:
    """Write a checkpoint to the folder of a run.

    The first one of a run is read back at once: a state that cannot be loaded again should be
    known before hours are spent.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    if not folder.saved():
        _parse(content)
    folder.save(content, step)


def load(folder: RunFolder) -> dict[str, Any] | None:
    """Return the last checkpoint of a run that is whole, or None."""
    content = folder.load()
    return None if content is None else _parse(content)


def _parse(content: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    return state
