"""The journal of a search: a file with each operation on its trials as a line of JSON.

Processes append lines under a record lock. The operating system releases the lock when its process
ends, however it ends, and a file server keeps it for processes on other machines. If a process dies
while it writes, the next writer removes the incomplete line. Every line has its own digest, so that
damage is noticed; Optuna's tools ignore it, and lines of earlier versions have none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from ..errors import DamagedError
from ..store import files, lock
from ..store.identity import digest

PAUSE_SECONDS = 0.01
"""Between two attempts to lock the journal: every trial writes to it several times."""
BLOCK_BYTES = 4096
"""How much of the journal is read at a time to find the end of its last complete line."""


class Journal(BaseJournalBackend):
    """A journal in a file, as Optuna's ``JournalStorage`` uses it.

    Args:
        path: the file; a missing one is made.
        most: how many lines are read at most.

    Attributes:
        lines_read: how many lines have been read and are as they were written.
    """

    def __init__(self, path: Path, most: int | None = None) -> None:
        self.path, self.most = path, most
        with files.store_errors(path):
            files.make_folder(path.parent)
            if not os.path.lexists(path):
                files.open_to_append(path).close()
                files.sync_folder(path.parent)
        self._ends = [0]  # the offset at which each line ends that was read

    @property
    def lines_read(self) -> int:
        """How many lines have been read."""
        return len(self._ends) - 1

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the operations from a number on, up to the last complete line.

        Raises:
            DamagedError: at a line that is not as it was written.
        """
        with os.fdopen(files.open_plain(self.path, os.O_RDONLY), "rb") as file:
            file.seek(self._ends[log_number_from])
            lines = file.read().split(b"\n")[:-1]  # the last one is incomplete or empty
        wanted = None if self.most is None else max(0, self.most - log_number_from)
        for number, line in enumerate(lines[:wanted], start=log_number_from):
            log = _parse(line)
            if log is None:
                total = log_number_from + len(lines)
                raise DamagedError(
                    f"{self.path}: line {number + 1} of {total} is not as it was written"
                )
            if number == self.lines_read:
                self._ends.append(self._ends[number] + len(line) + 1)
            yield log

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations; once this returns, they survive a loss of power."""
        lines = b"".join(map(_line, logs))
        lock_path = self.path.with_name(f"{self.path.name}.lock")
        with lock.wait_for(lock_path, PAUSE_SECONDS), files.store_errors(self.path):
            self._remove_incomplete_line()
            with files.open_to_append(self.path) as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())

    def _remove_incomplete_line(self) -> None:
        descriptor = files.open_plain(self.path, os.O_RDWR | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb+") as file:
            size = complete = file.seek(0, os.SEEK_END)
            while complete:
                start = max(0, complete - BLOCK_BYTES)
                file.seek(start)
                newline = file.read(complete - start).rfind(b"\n")
                complete = start + newline + 1
                if newline >= 0:
                    break
            if complete != size:
                file.truncate(complete)


def _line(log: dict[str, Any]) -> bytes:
    """Return an operation as a line, whose last entry is the digest of the others."""
    content = json.dumps(log, separators=(",", ":")).encode()
    return content[:-1] + _end(digest(content)) + b"\n"


def _end(digest_: str) -> bytes:
    return b',"sum":"' + digest_.encode() + b'"}'


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the operation of a line, or None if the line is not as it was written."""
    try:
        log = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(log, dict):
        return None
    written = log.pop("sum", None)
    if written is not None:  # a line of an earlier version has none
        end = _end(str(written))
        if not line.endswith(end) or digest(line.removesuffix(end) + b"}") != written:
            return None
    return log
