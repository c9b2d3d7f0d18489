"""What unfinished evaluations of a run have kept: a file for each part of each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from . import files, summed_files
from .identity import digest

KEPT = re.compile(r"evaluation-(\d{12})-[0-9a-f]{16}-[0-9a-f]{16}\.pt")


class KeptEvaluations:
    """The files ``evaluation-STEP-PART-SUM.pt`` in the folder of a run.

    Each part of an evaluation has a file of its own, so that keeping one neither writes the others
    again nor holds them in memory.

    Args:
        path: the folder of the run.
        notices: receives a line about each damaged file.
    """

    def __init__(self, path: Path, notices: list[str]) -> None:
        self.path, self.notices = path, notices

    def keep(self, step: int, part: str, content: bytes) -> None:
        """Write the state of a part of the evaluation at a step, in place of the one before."""
        summed_files.write(self.path, _start(step, part), content)

    def whole(self, step: int, part: str) -> Iterator[tuple[Path, bytes]]:
        """Yield the states of a part that are as written, the latest first; put aside others."""
        found = [p for p in self.path.glob(f"{_start(step, part)}-*.pt") if KEPT.fullmatch(p.name)]
        for path in sorted(found, key=lambda path: os.lstat(path).st_mtime_ns, reverse=True):
            content = summed_files.read(path)
            if content is None:
                self.put_aside(path, "is damaged")
            else:
                yield path, content

    def put_aside(self, path: Path, reason: str) -> None:
        """Rename a file that the evaluation cannot continue from, and notice it."""
        summed_files.put_aside(path)
        self.notices.append(f"what its evaluation kept, {path.name}, {reason} and was put aside")

    def drop(self, last: int | None = None) -> None:
        """Remove what evaluations up to the one at the step ``last`` have kept; by default all."""
        for path in self.path.glob("evaluation-*.pt"):
            name = KEPT.fullmatch(path.name)
            if name and not path.is_dir() and (last is None or int(name[1]) <= last):
                files.remove(path)


def _start(step: int, part: str) -> str:
    """Return how the names of the files of a part begin; a part may be called anything."""
    return f"evaluation-{step:012}-{digest(part.encode())}"
