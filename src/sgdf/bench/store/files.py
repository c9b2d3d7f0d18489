"""Files that are either whole or not there, whenever the process or the machine dies."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from ..errors import StoreError

TEMPORARY = ".tmp-"


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Tell which file could not be kept, and why."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path) -> bytes:
    """Return what is in a file; a file that is not there is empty.

    Raises:
        StoreError: if it is there and cannot be read, which says nothing about its content.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Remove a file that may be there."""
    with store_errors(path):
        path.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` in one stroke.

    Readers see the old file or the new one. Once this returns, the new one outlives a loss
    of power.

    Raises:
        StoreError: if it cannot be written; what was there is untouched.
    """
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    with store_errors(path):
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync(path.parent)


def append(path: Path, lines: bytes) -> None:
    """Add lines; one that a dying process has cut short is for the reader to notice."""
    with store_errors(path), path.open("ab") as file:
        file.write(lines)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes had begun to write; for the folder's owner alone."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        remove(leftover)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
