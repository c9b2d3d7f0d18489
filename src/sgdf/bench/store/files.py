"""Files that are either complete or absent, even if the process or the machine dies.

A store may come from anywhere, and hold anything under the name of a file. Only plain files are
read: a pipe would make the reader wait for ever. Nothing is written through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..errors import DamagedError, StoreError

TEMPORARY = ".tmp-"
LARGEST_RECORD = 1 << 30
"""Bytes of the largest file that is read, a checkpoint apart: 3 million rows of metrics."""
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextlib.contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Raise a ``StoreError`` that names the file if the system refuses an operation."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def read(path: Path, most: float = LARGEST_RECORD) -> bytes:
    """Return the content of a file; a missing file counts as empty.

    Args:
        path: the file, or a link to it.
        most: how many bytes it may have.

    Raises:
        DamagedError: if it is no plain file, or too large.
        StoreError: if it exists and cannot be read, which says nothing about its content.
    """
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise DamagedError(f"{path} has {size:,} bytes; such a file has at most {most:,}")
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file as ``os.open`` does, and return its descriptor; never wait for a pipe.

    Raises:
        DamagedError: if anything but a plain file is there.
        OSError: if there is nothing, or the system refuses.
    """
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        known = {errno.ENXIO: "a socket", errno.EISDIR: "a folder", errno.ELOOP: "a link to itself"}
        if flags & os.O_NOFOLLOW and path.is_symlink():
            known[errno.ELOOP] = "a link"
        if error.errno not in known:
            raise
        if path.is_fifo():  # opened to be written to, which nobody reads
            known[errno.ENXIO] = "a pipe"
        raise DamagedError(f"{path} is {known[error.errno]}, not a file") from error
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise DamagedError(f"{path} is {KINDS.get(kind, 'something else')}, not a file")
    return descriptor


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file to append to it; a missing one is made.

    Raises:
        DamagedError: if anything but a plain file is there, such as a link.
        OSError: if the system refuses.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    file = os.fdopen(open_plain(path, flags), "ab")
    if os.fstat(file.fileno()).st_nlink > 1:  # a copy by hard links, which share their content
        file.close()
        write(path, read(path))
        file = os.fdopen(open_plain(path, flags), "ab")
    return file


def remove(path: Path) -> None:
    """Remove a file if it exists."""
    with store_errors(path):
        path.unlink(missing_ok=True)


def write(path: Path, content: bytes, sync: bool = True) -> None:
    """Write a file in one atomic operation.

    Readers see the old file or the new one. Once this returns, the new file survives a loss
    of power.

    Args:
        path: the file.
        content: all of its bytes.
        sync: without it, this returns sooner, and the file may be empty after a loss of power.

    Raises:
        StoreError: if it cannot be written; the old file is untouched.
    """
    temporary = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    with store_errors(path):
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if sync:
            sync_folder(path.parent)


def append(path: Path, lines: bytes) -> None:
    """Append lines. A reader must expect a last line that a dying process cut short."""
    with store_errors(path), open_to_append(path) as file:
        file.write(lines)


def remove_leftovers(folder: Path) -> None:
    """Remove files that killed processes left unfinished; only the folder's owner may."""
    for leftover in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(StoreError):  # it harms nothing
            remove(leftover)


def put_aside(path: Path) -> None:
    """Rename something that is not what its name says, so that it can be looked at later."""
    with store_errors(path):
        path.rename(path.with_name(f"{path.name}.damaged"))


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they exist; they survive a loss of power.

    Raises:
        OSError: if the system refuses.
    """
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync(path: Path) -> None:
    """Make a file that was written without syncing survive a loss of power."""
    _sync(open_plain(path, os.O_RDONLY))
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    _sync(os.open(folder, os.O_RDONLY))


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
