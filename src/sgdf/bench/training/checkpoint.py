"""Checkpoints as bytes: how the state of a trainer is written to its folder and read again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..errors import first_line
from ..store.run_folder import RunFolder


def save(folder: RunFolder, state: dict[str, Any], step: int) -> None:
    """Write a checkpoint to the folder of a run.

    The first one of a run is read back at once: a state that cannot be loaded again should be
    known before hours are spent.
    """
    content = to_bytes(state)
    if not folder.saved():
        parse(content)
    folder.save(content, step)


def load(folder: RunFolder) -> dict[str, Any] | None:
    """Return the last checkpoint of a run that can be loaded, or None."""
    return next((state for _, state in states(folder)), None)


def states(folder: RunFolder) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield the checkpoints of a run that can be loaded, the latest first; others are put aside."""
    for path, content in folder.whole_checkpoints():
        try:
            state = parse(content)
        except Exception as error:  # torch does not document which
            if is_lack_of_memory(error):
                raise
            folder.put_checkpoint_aside(path, f"cannot be loaded ({first_line(error)})")
        else:
            yield path, state


def is_lack_of_memory(error: Exception) -> bool:
    """Return whether an error is a lack of memory, which says nothing about a checkpoint."""
    # Most backends of torch raise a RuntimeError, and a module repeats the text in one of its own.
    texts = ("out of memory", "allocate memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        text in str(error) for text in texts
    )


def to_bytes(state: dict[str, Any]) -> bytes:
    """Return a state as the content of a file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def parse(content: bytes) -> dict[str, Any]:
    """Return the state in the content of a file; nothing in it is executed."""
    state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    if not isinstance(state, dict):
        raise TypeError(f"holds a {type(state).__name__} instead of the state of a run")
    return state
