"""Files whose names end in a checksum of their content: whether one is as written can be seen."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from ..errors import DamagedError
from . import files
from .identity import digest


def write(folder: Path, start: str, content: bytes) -> Path:
    """Write a file ``START-SUM.pt``, then remove others whose names have the same start."""
    path = folder / f"{start}-{digest(content)}.pt"
    files.write(path, content)
    for other in folder.glob(f"{start}-*.pt"):
        if other != path:
            files.remove(other)
    return path


def read(path: Path) -> bytes | None:
    """Return the content of a file, or None if it is not as written.

    Raises:
        StoreError: if it cannot be read, which says nothing about its content.
    """
    with contextlib.suppress(DamagedError):
        content = files.read(path, most=math.inf)
        if path.stem.rpartition("-")[2] == digest(content):
            return content
    return None


def put_aside(path: Path) -> None:
    """Rename a file that cannot be used, so that it can be looked at later."""
    with files.store_errors(path):
        path.rename(path.with_suffix(".damaged"))
