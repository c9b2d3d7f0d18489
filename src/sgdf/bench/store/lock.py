"""Locks on folders that die with the process that holds them.

POSIX record locks: the kernel drops them when their process ends, however it ends, and
children do not inherit them. On a network disk the file server keeps them (NFS, Lustre
with ``flock``, …), so that processes on several machines see the same locks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]  # hold() says what is missing

from ..errors import StoreError
from .files import open_plain, store_errors

HELD = (errno.EACCES, errno.EAGAIN)
PATIENCE = 3
"""Attempts, 20 ms apart: ``owner()`` takes the lock in shared mode for a moment."""

_ours: set[Path] = set()
# Closing any descriptor of a file drops all locks of the process on it: the file of a lock that
# this process holds must not be opened again.


@contextlib.contextmanager
def hold(path: Path) -> Iterator[bool]:
    """Hold the lock at ``path`` within the block; yield whether it was free."""
    path = path.absolute()
    if path in _ours:
        yield False
        return
    with store_errors(path):
        # Not through a link: the name of the holder would be written to the file that it leads to.
        descriptor = open_plain(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        got = any(_try(descriptor, path, pause=attempt > 0) for attempt in range(PATIENCE))
        if got:
            _ours.add(path)
            with contextlib.suppress(OSError):  # a full disk is no reason to stop
                _name_holder(descriptor)
        yield got
    finally:
        _ours.discard(path)
        os.close(descriptor)


@contextlib.contextmanager
def wait_for(path: Path, pause: float = 0.05) -> Iterator[None]:
    """Hold the lock at ``path`` within the block; wait while another process holds it.

    Args:
        path: the file of the lock.
        pause: seconds between two attempts.
    """
    while True:
        with hold(path) as ours:
            if ours:
                yield
                return
        time.sleep(pause)


def owner(path: Path) -> str | None:
    """Return the process that holds the lock at ``path``, or None if it is free."""
    path = path.absolute()
    if path in _ours:
        return f"process {os.getpid()}"
    try:
        descriptor = open_plain(path, os.O_RDONLY | os.O_NOFOLLOW)
    except (OSError, StoreError):
        return None
    try:
        if _try(descriptor, path, shared=True):
            return None
        return os.pread(descriptor, 200, 0).decode(errors="replace") or "somebody"
    finally:
        os.close(descriptor)


def _name_holder(descriptor: int) -> None:
    """Write this process into the file of a lock that it holds, for people who look into it."""
    if os.fstat(descriptor).st_nlink == 1:  # else it is a file elsewhere too, by a hard link
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{socket.gethostname()} process {os.getpid()}".encode(), 0)


def _try(descriptor: int, path: Path, pause: bool = False, shared: bool = False) -> bool:
    if fcntl is None:
        raise StoreError("the bench needs the file locks of Linux or macOS")
    if pause:
        time.sleep(0.02)
    try:
        fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD:
            return False
        raise StoreError(
            f"cannot lock {path}: {error.strerror}; is locking enabled on this disk?"
        ) from error
    return True
