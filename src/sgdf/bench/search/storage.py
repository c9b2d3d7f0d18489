"""Where Optuna keeps the trials of a search: a journal beside the runs, or a database.

The journal is one file to which lines are added under a record lock: the system drops it when
its process ends, however it ends, and a file server keeps it for processes on other machines.
A line that a dying process has cut short is taken away by the next one that writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path
from typing import Any, cast

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, get_storage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage
from sqlalchemy.exc import SQLAlchemyError

from ..errors import SpecError, StoreError, first_line
from ..store import lock
from ..store.files import store_errors

JOURNAL, SQLITE = "journal:///", "sqlite:///"
PAUSE_SECONDS = 0.01


def journal_url(path: Path) -> str:
    """Return the URL of a journal in a file."""
    return f"{JOURNAL}{path.absolute()}"


def absolute_url(url: str) -> str:
    """Return the URL of a file with its whole path: processes elsewhere are to find it too.

    As SQLAlchemy has it, what follows three slashes is a path from the working directory.

    >>> absolute_url("sqlite:////tmp/trials.db"), absolute_url("postgresql://host/trials")
    ('sqlite:////tmp/trials.db', 'postgresql://host/trials')
    """
    for scheme in (JOURNAL, SQLITE):
        if url.startswith(scheme) and len(url) > len(scheme):
            return scheme + str(Path(url.removeprefix(scheme)).absolute())
    return url


def storage_mark(url: str) -> bytes:
    """Return what a storage is known by, without its password."""
    return hashlib.sha256(url.encode()).hexdigest()[:16].encode()


def open_storage(url: str) -> BaseStorage:
    """Open the storage at a URL: ``journal:///path``, or a database as SQLAlchemy has it.

    What goes wrong with it later is a ``StoreError``, as with every file of a store.

    Raises:
        SpecError: if it is no URL of a storage, or there is no such server.
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
    except Exception as error:  # SQLAlchemy's, its drivers', or that a driver is not installed
        line = str(error).partition("\n")[0]
        raise SpecError(
            f"--storage: cannot be opened: {line}; allowed: {JOURNAL}PATH, {SQLITE}PATH, or the "
            "URL of a database server"
        ) from error


class _Guarded:
    """A storage of Optuna's that is no more sure than a disk, and says so in the same way."""

    def __init__(self, storage: BaseStorage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return found(*arguments, **options)
            except (OSError, StorageInternalError, SQLAlchemyError) as error:
                raise StoreError(f"the storage of the trials: {first_line(error)}") from error

        return call


class RecordLock(JournalFileOpenLock):
    """Keeps others from a journal, for as long as this process lives at the most."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.holding = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock, and mend the journal."""
        while not self.holding.enter_context(
            lock.hold(self.path.with_name(self.path.name + ".lock"))
        ):
            self.holding.close()
            time.sleep(PAUSE_SECONDS)
        self._mend()
        return True

    def release(self) -> None:
        """Let others write."""
        self.holding.close()

    def _mend(self) -> None:
        """Take away a last line that has no end."""
        with store_errors(self.path), self.path.open("rb+") as journal:
            end = whole = journal.seek(0, os.SEEK_END)
            while whole:
                start = max(0, whole - 4096)
                journal.seek(start)
                found = journal.read(whole - start).rfind(b"\n")
                whole = start + found + 1 if found >= 0 else start
                if found >= 0:
                    break
            if whole != end:
                journal.truncate(whole)
