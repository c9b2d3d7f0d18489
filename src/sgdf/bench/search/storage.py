"""Where Optuna keeps the trials of a search: a journal beside the runs, or a database.

The journal is a file to which processes append lines under a record lock. The operating system
releases the lock when its process ends, however it ends, and a file server keeps it for processes
on other machines. If a process dies while it writes, the next writer removes the incomplete line.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, cast

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, get_storage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from sqlalchemy.exc import SQLAlchemyError

from ..errors import SpecError, StoreError, first_line
from ..store import lock
from ..store.files import store_errors
from ..store.identity import digest

JOURNAL, SQLITE = "journal:///", "sqlite:///"
PAUSE_SECONDS = 0.01
"""Between two attempts to lock the journal: every trial writes to it several times."""
BLOCK_BYTES = 4096
"""How much of the journal is read at a time to find the end of its last complete line."""


def journal_url(path: Path) -> str:
    """Return the URL of a journal in a file."""
    return f"{JOURNAL}{path.absolute()}"


def absolute_url(url: str) -> str:
    """Return the URL of a file with its absolute path, so that it is valid in any directory.

    As in SQLAlchemy, a path after three slashes is relative to the working directory.

    >>> absolute_url("sqlite:////tmp/trials.db"), absolute_url("postgresql://host/trials")
    ('sqlite:////tmp/trials.db', 'postgresql://host/trials')
    """
    for scheme in (JOURNAL, SQLITE):
        if url.startswith(scheme) and len(url) > len(scheme):
            return scheme + str(Path(url.removeprefix(scheme)).absolute())
    return url


def storage_mark(url: str) -> bytes:
    """Return a digest that identifies a storage: its URL may hold a password."""
    return digest(url.encode()).encode()


def open_storage(url: str) -> BaseStorage:
    """Open the storage at a URL: ``journal:///path``, or a database as in SQLAlchemy.

    Later I/O errors of the storage are raised as ``StoreError``, like those of a store's files.

    Raises:
        SpecError: if the URL names no storage, or its server does not answer.
    """
    if url.startswith(JOURNAL):
        path = Path(url.removeprefix(JOURNAL))
        with store_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        backend = JournalFileBackend(str(path), RecordLock(path))
        return cast("BaseStorage", _Guarded(JournalStorage(backend)))
    try:
        return cast("BaseStorage", _Guarded(get_storage(url)))
    except Exception as error:  # of SQLAlchemy or a database driver, or a driver is not installed
        line = str(error).partition("\n")[0]
        raise SpecError(
            f"--storage: cannot be opened: {line}; allowed: {JOURNAL}PATH, {SQLITE}PATH, or the "
            "URL of a database server"
        ) from error


class _Guarded:
    """Wraps an Optuna storage so that its I/O errors are raised as ``StoreError``."""

    def __init__(self, storage: BaseStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._storage, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return attribute(*arguments, **options)
            except (OSError, StorageInternalError, SQLAlchemyError) as error:
                raise StoreError(f"the storage of the trials: {first_line(error)}") from error

        return call


class RecordLock(JournalFileOpenLock):
    """The lock under which one process at a time writes to a journal.

    Optuna's own locks outlive a process that is killed; this one does not.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.holding = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock, then remove an incomplete last line from the journal."""
        path = self.path.with_name(self.path.name + ".lock")
        with contextlib.ExitStack() as holding:
            holding.enter_context(lock.wait_for(path, PAUSE_SECONDS))
            self._remove_incomplete_line()
            self.holding = holding.pop_all()  # held from here on, unless the line above raised
        return True

    def release(self) -> None:
        """Let other processes write."""
        self.holding.close()

    def _remove_incomplete_line(self) -> None:
        with store_errors(self.path), self.path.open("rb+") as journal:
            size = complete = journal.seek(0, os.SEEK_END)
            while complete:
                start = max(0, complete - BLOCK_BYTES)
                journal.seek(start)
                newline = journal.read(complete - start).rfind(b"\n")
                complete = start + newline + 1
                if newline >= 0:
                    break
            if complete != size:
                journal.truncate(complete)
