"""A search as a job: any number of processes share its trials.

Trials are dealt out under locks that die with their process, and one whose process died is
resumed where its runs were left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import optuna

from ..errors import SpecError
from ..jobs.events import Display
from ..jobs.job import job_line
from ..jobs.plan import prepare_data
from ..jobs.signals import Stop
from ..store import files
from ..store.files import store_errors
from ..store.records import Table
from ..training.ranks import Ranks, uses_cuda
from .file import read_search
from .search import Search
from .storage import open_storage, storage_mark
from .trial import TrialRun
from .trials import Trials


@dataclass(frozen=True)
class SearchJob:
    """The work of a search."""

    search: Search

    @property
    def store(self) -> Path:
        """The folder that keeps the runs."""
        return self.search.store

    @property
    def threads(self) -> int:
        """How many threads a run wants."""
        return self.search.threads

    def prepare(self, retry: bool = False) -> None:
        """Make folder and storage, see to the data; with ``retry``, let failed trials try again."""
        prepare_data([self.search.example])
        with store_errors(self.store):
            self.store.mkdir(parents=True, exist_ok=True)
        storage = open_storage(self.search.storage)
        told, mark = self.store / "search" / "storage", storage_mark(self.search.storage)
        with store_errors(told):
            told.parent.mkdir(exist_ok=True)
        if files.read(told) not in (b"", mark):
            raise SpecError(f"--storage: the trials of {self.store} are kept in another one")
        files.write(told, mark)
        for candidate in self.search.candidates if retry else ():
            Trials(self.search, candidate, storage).retry()

    @property
    def gpus(self) -> int:
        """How many GPUs of CUDA's a run wants."""
        return int(uses_cuda(self.search.example.train.device))

    @property
    def keys(self) -> tuple[str, ...]:
        """No run is known before it is drawn."""
        return ()

    def parts(self) -> list[SearchJob]:
        """Return a search for each trial that is not over, one of each optimizer's at a time."""
        storage = open_storage(self.search.storage)
        left = [
            Trials(self.search, candidate, storage).left for candidate in self.search.candidates
        ]
        return [
            SearchJob(replace(self.search, candidates=(candidate,), limit=1))
            for index in range(max(left))
            for candidate, count in zip(self.search.candidates, left, strict=True)
            if index < count
        ]

    def as_json(self) -> str:
        """Return the search as a line for a worker."""
        return job_line(
            "sgdf.bench.search.job:read_search_job",
            {
                "document": self.search.document(),
                "store": str(self.store.absolute()),
                "storage": self.search.storage,
                "checkpoint_every": self.search.checkpoint_every,
                "limit": None if math.isinf(self.search.limit) else self.search.limit,
            },
        )

    def work(self, display: Display, stop: Stop) -> None:
        """Take part in trials until none is left: one of each optimizer's after the other."""
        storage, ranks = open_storage(self.search.storage), Ranks(alone=True)
        left, open_trials = (
            self.search.limit,
            [Trials(self.search, candidate, storage) for candidate in self.search.candidates],
        )
        while open_trials:
            for trials in list(open_trials):
                if left <= 0 or stop.is_set():
                    return
                left -= 1
                with trials.next() as trial:
                    if not (trial and TrialRun(trials, trial, display, stop, ranks).go()):
                        open_trials.remove(trials)


def read_search_job(content: Table) -> SearchJob:
    """Return the job that a line for a worker holds."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # its log is for what goes wrong
    return SearchJob(
        read_search(
            content["document"],
            anywhere=True,
            store=Path(content["store"]),
            storage=content["storage"],
            checkpoint_every=content["checkpoint_every"],
            limit=content["limit"] or math.inf,
        )
    )
