"""Small searches for tests, and the way to do them in this process."""

import os
import threading

from bench_tasks import Points
from sgdf.bench.search.file import read_search
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.results import SearchResult
from sgdf.bench.search.storage import journal_url, open_storage
from sgdf.bench.search.trials import Trials
from sgdf.bench.tasks import Metric

RANGE = {"lr": {"low": 0.01, "high": 10.0}}


class DeclaredMetric(Points):
    """Declares its metric, and cannot be made unless the environment allows it."""

    metric = Metric("loss")

    def __init__(self) -> None:
        if not os.environ.get("SGDF_TEST_DATA"):
            raise RuntimeError("the data are on another machine")
        super().__init__()


def document_of(trials=6, epochs=2, optimizer=None, search=(), **changes):
    """Return the document of a search: three steps an epoch, seeds 0 and 1 for the comparison."""
    return {
        "name": "points",
        "seed": [0, 1],
        "task": {"name": "bench_tasks:Points"},
        "train": {"epochs": epochs, "batch_size": 40, "threads": 1},
        "optimizer": optimizer or [{"name": "sgdf", "search": RANGE}, {"name": "adam"}],
        "search": {"trials": trials, **dict(search)},
        **changes,
    }


def search_of(store, storage=None, **changes):
    """Return a search in a store, ready to be worked on."""
    url = storage or journal_url(store / "search.journal")
    search = read_search(document_of(**changes), store=store, storage=url)
    SearchJob(search).prepare()
    return search


def silent(run, event):
    """Show nothing."""


def finish(search, display=silent):
    """Work on a search until no trial is left; return its results."""
    SearchJob(search).work(display, threading.Event())
    return SearchResult(search)


def results_of(result):
    """Return everything about the trials that must not depend on which process did them, or when.

    Args:
        result: that of a search.
    """
    return {optimizer.candidate.name: optimizer.trials for optimizer in result.optimizers}


def first_trials(search):
    """Return the trials of the first optimizer, as a process of its own would open them."""
    return Trials(search, search.candidates[0], open_storage(search.storage))
