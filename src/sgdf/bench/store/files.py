"""Files that are either complete or absent, even if the process or the machine dies."""

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
    """Raise a ``StoreError`` that names the file if the system refuses an operation."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path) -> bytes:
    """Return the content of a file; a missing file counts as empty.

    Raises:
        StoreError: if it exists and cannot be read, which says nothing about its content.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with store_errors(path):
        path.unlink(missing_ok=True)


def write(path: Path, content: bytes) -> None:
    """Write a file in one atomic operation.

    Readers see the old file or the new one. Once this returns, the new file survives a loss
    of power.

    Raises:
        StoreError: if it cannot be written; the old file is untouched.
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
    """Append lines. A reader must expect a last line that a dying process cut short."""
    with store_errors(path), path.open("ab") as file:
        file.write(lines)


def remove_leftovers(folder: Path) -> None:
    """Remove files that killed processes left unfinished; only the folder's owner may."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        remove(leftover)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
