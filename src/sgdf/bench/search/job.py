"""A search as a job: any number of processes share its trials."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from ..jobs.events import Display
from ..jobs.job import job_line
from ..jobs.plan import prepare_data
from ..jobs.signals import Stop
from ..store import files
from ..store.files import store_errors
from ..store.records import Table
from ..training.ranks import Ranks, uses_cuda
from .file import read_search
from .ownership import mark_storage, open_trials
from .search import Search
from .trial import TrialRun
from .trials import Trials


@dataclass(frozen=True)
class SearchJob:
    """The work of a search.

    Attributes:
        search: the search.
        limit: how many trials a process works on at most.
    """

    search: Search
    limit: float = math.inf

    @property
    def store(self) -> Path:
        """The folder that keeps the runs."""
        return self.search.store

    @property
    def threads(self) -> int:
        """How many threads a run uses."""
        return self.search.threads

    @property
    def gpus(self) -> int:
        """How many CUDA GPUs a run uses."""
        return int(uses_cuda(self.search.example.train.device))

    @property
    def keys(self) -> tuple[str, ...]:
        """No run is known before its trial is drawn."""
        return ()

    def prepare(self, retry: bool = False) -> None:
        """Make the folder and the storage, and fetch the data.

        Args:
            retry: add a new trial for each one that failed.

        Raises:
            SpecError: if the folder's trials are kept in another storage.
            DamagedError: if its files are not as written.
        """
        prepare_data([self.search.example])
        with store_errors(self.store):
            files.make_folder(self.store)
        storage = open_trials(self.search)
        for candidate in self.search.candidates:
            trials = Trials(self.search, candidate, storage)  # which makes its study
            if retry:
                trials.retry()
        mark_storage(self.search)

    def parts(self) -> list[SearchJob]:
        """Return a job for each trial that has not ended, with the optimizers taking turns."""
        storage = open_trials(self.search)
        left = [
            Trials(self.search, candidate, storage).left for candidate in self.search.candidates
        ]
        return [
            SearchJob(replace(self.search, candidates=(candidate,)), limit=1)
            for index in range(max(left))
            for candidate, count in zip(self.search.candidates, left, strict=True)
            if index < count
        ]

    def as_json(self) -> str:
        """Return the job as a line for a worker."""
        return job_line(
            "sgdf.bench.search.job:read_search_job",
            {
                "document": self.search.document(),
                "store": str(self.store.absolute()),
                "storage": self.search.storage,
                "checkpoint_every": self.search.checkpoint_every,
                "limit": None if math.isinf(self.limit) else self.limit,
            },
        )

    def work(self, display: Display, stop: Stop) -> None:
        """Work on trials until none is left for this process; the optimizers take turns."""
        storage, ranks = open_trials(self.search), Ranks(alone=True)
        with_trials = [
            Trials(self.search, candidate, storage) for candidate in self.search.candidates
        ]
        left = self.limit
        while with_trials:
            for trials in list(with_trials):
                if left <= 0 or stop.is_set():
                    return
                left -= 1
                with trials.next() as trial:
                    if not (trial and TrialRun(trials, trial, display, stop, ranks).work()):
                        with_trials.remove(trials)


def read_search_job(content: Table) -> SearchJob:
    """Return the job that a line for a worker holds."""
    search = read_search(
        content["document"],
        anywhere=True,
        store=Path(content["store"]),
        storage=content["storage"],
        checkpoint_every=content["checkpoint_every"],
    )
    return SearchJob(search, limit=content["limit"] or math.inf)
