"""Work that any number of processes share, and how it is handed to them as a line of JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..catalog.lookup import find
from ..store.records import Table
from ..store.run_folder import State
from ..tasks.assets import DATA_VARIABLE, data_folder
from .events import Display
from .signals import Stop

TO_DO = (State.WAITING, State.PAUSED, State.DAMAGED)
MAX_DEATHS = 5
"""A run has failed after this many worker deaths in a row without a new checkpoint."""


def repeated_deaths(what: str, count: int, log: str) -> str:
    """Return in a line that a run failed because its processes died, and what to do.

    Args:
        what: which process died, and how.
        count: how often.
        log: where it may have written why.
    """
    return (
        f"{what}, {count} times in a row before it could save a checkpoint. If memory ran "
        "out, take fewer workers or a smaller batch; if something ends it after a time, lower "
        f"--checkpoint-every. {log} may say more; --retry tries it again"
    )


class Job(Protocol):
    """Work on a store that any number of processes, on any number of machines, can share."""

    @property
    def store(self) -> Path:
        """The folder that keeps the runs."""

    @property
    def threads(self) -> int:
        """The largest number of threads that one of the runs needs."""

    @property
    def gpus(self) -> int:
        """The largest number of CUDA GPUs that one of the runs needs."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its runs, as far as they are known in advance."""

    def parts(self) -> Sequence[Job]:
        """Return the pieces that can be done independently, in order."""

    def as_json(self) -> str:
        """Return the job as a line that ``read_job`` can read."""

    def work(self, display: Display, stop: Stop) -> None:
        """Do the work that no other process has claimed, until none is left or ``stop`` is set."""


def job_line(reader: str, content: Table) -> str:
    """Return a job as a line, with the places where this process finds modules and data.

    Args:
        reader: the function that makes the job from the content, as ``module:function``.
        content: the function's argument, as plain JSON.
    """
    data = str(data_folder()) if DATA_VARIABLE in os.environ else None
    return json.dumps({"reader": reader, **content, "path": sys.path, "data": data})


def read_job(line: str) -> Job:
    """Return the job of a line, and make its writer's modules and data available.

    What is installed or set on this machine comes first: the writer may be another machine.
    """
    content: Table = json.loads(line)
    sys.path += [place for place in content["path"] if place not in sys.path]
    if content["data"]:
        os.environ.setdefault(DATA_VARIABLE, content["data"])
    job: Job = find(content["reader"], {}, "job")(content)
    return job
