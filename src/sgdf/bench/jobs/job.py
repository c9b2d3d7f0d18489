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
"""How often in a row a worker may die on a run, without a checkpoint between, until it failed."""


class Job(Protocol):
    """Work on a store that any number of processes can share, on as many machines."""

    @property
    def store(self) -> Path:
        """The folder that keeps the runs."""

    @property
    def threads(self) -> int:
        """How many threads the most demanding run wants."""

    @property
    def gpus(self) -> int:
        """How many GPUs of CUDA's the most demanding run wants."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The runs that it will do, as far as that is known before."""

    def parts(self) -> Sequence[Job]:
        """Return the pieces that can be done without each other, in order."""

    def as_json(self) -> str:
        """Return it as a line that ``read_job`` makes the same job of."""

    def work(self, display: Display, stop: Stop) -> None:
        """Do what is to be done and nobody else is at, until nothing is left or ``stop`` is set."""


def job_line(reader: str, content: Table) -> str:
    """Return a job as a line, with where this process finds modules and data.

    Args:
        reader: the function that makes the job of the content again, as ``module:function``.
        content: what the function takes: plain JSON.
    """
    data = str(data_folder()) if DATA_VARIABLE in os.environ else None
    return json.dumps({"reader": reader, **content, "path": sys.path, "data": data})


def read_job(line: str) -> Job:
    """Return the job that such a line holds, and find modules and data where its writer does.

    What is installed or set here comes first: the writer may sit at another machine.
    """
    content: Table = json.loads(line)
    sys.path += [place for place in content["path"] if place not in sys.path]
    if content["data"]:
        os.environ.setdefault(DATA_VARIABLE, content["data"])
    job: Job = find(content["reader"], {}, "job")(content)
    return job
