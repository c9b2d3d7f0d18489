"""``sgdf tune --range-test``: one run of each optimizer whose learning rate rises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..bench.errors import naming
from ..bench.jobs.conduct import Conduct, Crew
from ..bench.jobs.plan import Plan
from ..bench.jobs.signals import stop_on_signals
from ..bench.report.range_test import write_range_tests
from ..bench.search.range_test import range_run, range_tests
from ..bench.spec.labels import labels
from .conclude import conclude
from .console import make_console, say
from .progress import display
from .show.search import range_table, space_table
from .show.status import tables_of

if TYPE_CHECKING:
    from ..bench.jobs.events import Event
    from ..bench.search.search import Search


def do_range_tests(experiment: str, search: Search, crew: Crew, retry: bool, dry_run: bool) -> None:
    """Do the range tests, write down the losses, and show where they fall the fastest.

    Args:
        experiment: the name to begin error messages with.
        search: what is trained, and which rates of each optimizer.
        crew: the processes that share the runs.
        retry: try failed runs again.
        dry_run: show the rates alone.
    """
    console = make_console()
    with naming(experiment):
        runs = tuple(range_run(search, candidate) for candidate in search.candidates)
    if dry_run:
        console.print(space_table(search))
        return
    conduct = Conduct(Plan(runs, search.store, search.checkpoint_every))
    conduct.prepare(retry)
    names = labels(tables_of(runs))
    with stop_on_signals() as stop, display(console, names, len(runs), 0) as screen:

        def tell(run: str, event: Event) -> None:
            if event["event"] == "end" and event["state"] == "finished":
                event = {**event, "line": "all learning rates have been tried"}
            screen(run, event)

        conduct.work(crew, tell, stop)
    tests = range_tests(search, runs)
    console.print(range_table(tests))
    for path in write_range_tests(tests, search.store):
        say(console, f"wrote {path}")
    conclude(console, conduct, stop.is_set(), may_diverge=True)  # the rate rises until it does
