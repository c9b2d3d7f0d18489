"""Where Optuna keeps the trials of a search: a journal beside the runs, or a database.

The journal is one file to which lines are added under a record lock: the system drops it when
its process ends, however it ends, and a file server keeps it for processes on other machines.
A line that a dying process has cut short is taken away by the next one that writes.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from optuna.storages import BaseStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalStorage

from . import lock
from .files import kept
from .objects import SpecError

JOURNAL = "journal:///"
PAUSE_SECONDS = 0.01


def journal_url(path: Path) -> str:
    """Return the URL of a journal in a file."""
    return f"{JOURNAL}{path.absolute()}".replace("////", "///")


def open_storage(url: str) -> BaseStorage:
    """Open the storage at a URL: ``journal:///path``, or a database as SQLAlchemy has it.

    Raises:
        SpecError: if it is no URL of a storage, or there is no such server.
    """
    if url.startswith(JOURNAL):
        path = Path("/" + url.removeprefix(JOURNAL).lstrip("/"))
        with kept(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        return JournalStorage(JournalFileBackend(str(path), RecordLock(path)))
    try:
        return RDBStorage(url)
    except Exception as error:  # SQLAlchemy's, its drivers', or that a driver is not installed
        line = str(error).partition("\n")[0]
        raise SpecError(
            f"--storage: cannot be opened: {line}; allowed: {JOURNAL}PATH, sqlite:///PATH, or the "
            "URL of a database server"
        ) from error


class RecordLock(JournalFileOpenLock):
    """Keeps others from a journal, for as long as this process lives at the most."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.holding = contextlib.ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock, and mend the journal."""
        while not self.holding.enter_context(
            lock.held(self.path.with_name(self.path.name + ".lock"))
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
        with kept(self.path), self.path.open("rb+") as journal:
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
