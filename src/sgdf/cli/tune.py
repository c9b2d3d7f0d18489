"""``sgdf tune``: search for the best settings of each optimizer."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .conclude import leave_stopped, mention_other_sources
from .console import make_console, refusing, say, show
from .options import (
    Changes,
    CheckpointEvery,
    Data,
    Device,
    DryRun,
    ExperimentName,
    Optimizers,
    RayAddress,
    Retry,
    Threads,
    Workers,
    out_option,
    parse_changes,
)

if TYPE_CHECKING:
    from ..bench.jobs.conduct import Crew
    from ..bench.search.search import Search
    from ..bench.store.records import Table


def tune(
    experiment: ExperimentName,
    optimizers: Optimizers = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="How many settings are tried of each optimizer. Default: what the file says, "
            "else 12.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="tpe|random|grid",
            help="How settings are chosen: tpe learns from the trials before, random does not, "
            "grid tries the lists of the file or else of the paper. Default: what the file says, "
            "else tpe.",
        ),
    ] = None,
    pruning: Annotated[
        bool | None,
        typer.Option(
            "--prune/--no-prune",
            help="Prune a trial that is worse than the median of the finished trials at the same "
            "epoch. Default: what the file says, else yes; a grid is never pruned.",
        ),
    ] = None,
    range_test: Annotated[
        bool,
        typer.Option(
            "--range-test",
            help="Do a learning-rate range test instead of a search: one run of each optimizer, "
            "whose learning rate rises at each of some 300 steps, and a plot of the loss against "
            "the rate, in results/NAME-range.",
        ),
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where Optuna keeps the trials: journal:///PATH, sqlite:///PATH or a database "
            "server; an absolute path has four slashes. Default: a journal in the folder of the "
            "runs.",
        ),
    ] = None,
    out: Annotated[
        str | None, out_option("Folder that keeps the runs. Default: results/NAME-tune.")
    ] = None,
    workers: Workers = 1,
    ray: RayAddress = None,
    threads: Threads = None,
    data: Data = None,
    device: Device = None,
    changes: Changes = None,
    retry: Retry = False,
    dry_run: DryRun = False,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Search for the best settings of each optimizer, with the same budget for all.

    Each optimizer of the experiment gets the same number of trials of the same number of epochs.
    Trials are judged on validation data, with seeds that the experiment itself does not use. The
    learning rate is searched over four decades, unless [optimizer.search] in the file says what is
    searched; values that the file sets for searched options are ignored.

    The command writes an experiment of the best settings, a record of the whole search, and a plot
    of the result of each setting. You may interrupt it or kill it: run the same command again to
    resume. Run the same command in another terminal, or on another machine with the same disk, to
    share the trials between them.
    """
    settings = parse_changes(
        changes,
        train__threads=threads,
        train__device=device,
        search__trials=trials,
        search__sampler=sampler,
        search__prune=pruning,
    )
    with refusing():
        document = _document(experiment, settings, optimizers)

        from ..bench.errors import SpecError, naming
        from ..bench.jobs.conduct import Crew
        from ..bench.jobs.freed_memory import keep_freed_memory
        from ..bench.search.file import rates_only, read_search
        from ..bench.search.storage import journal_url
        from ..bench.training.ranks import Ranks

        keep_freed_memory()
        ranks, crew = Ranks(), Crew(workers, ray)
        if ranks.count > 1:
            raise SpecError("sgdf tune: cannot be started with torchrun")
        crew.check(ranks)
        kind = "range" if range_test else "tune"
        place = Path(out) if out else Path("results") / f"{document['name']}-{kind}"
        with naming(experiment):
            search = read_search(
                rates_only(document) if range_test else document,
                threads=crew.threads,
                anywhere=crew.is_elsewhere,
                store=place,
                storage=storage or journal_url(place / "search.journal"),
                checkpoint_every=checkpoint_every,
            )
        if range_test:
            from .range_test import do_range_tests

            do_range_tests(experiment, search, crew, retry, dry_run)
        elif dry_run:
            _show_search(search, crew)
        else:
            _do_search(search, crew, retry)


def _document(experiment: str, settings: dict[str, Any], optimizers: list[str] | None) -> Table:
    """Return what the file of a search says, with the changes of the command line."""
    from ..bench.errors import SpecError, naming
    from ..bench.spec.document import apply_changes, load_document, select_optimizers
    from ..bench.spec.read import check_names

    with naming(experiment):
        document = load_document(experiment)
        if "part" in document:
            raise SpecError("[[part]]: a search has one grid; give each part a file of its own")
        if optimizers:
            document = select_optimizers(document, optimizers)
        document = apply_changes(document, settings)
        check_names(document)  # first of all: it names mistakes without torch
        return document


def _show_search(search: Search, crew: Crew) -> None:
    """Show what would be tried, and an estimate of time."""
    from ..bench.errors import SpecError
    from ..bench.jobs.estimate import estimate
    from ..bench.search.file import merge_with_record
    from ..bench.search.results import SearchResult
    from ..bench.store.run_folder import Store
    from ..present.words import duration
    from .show.search import search_outlook, space_table

    merge_with_record(search)  # which refuses the folder of another search
    console = make_console()
    console.print(space_table(search))
    say(console, search_outlook(search))
    done, budget = 0, len(search.candidates) * search.method.trials
    if (search.store / "search").exists():  # else to open its results would begin it
        result = SearchResult(search)
        done, budget = result.spent, result.budget
    progress = f"{done} of {budget} trials are done in {search.store}"
    if done == budget:
        say(console, f"{progress}.")
        return
    times = estimate([search.example], Store(search.store), partial(say, console))
    time = times[search.example.key]
    if isinstance(time, str):
        raise SpecError(f"{search.example.optimizer.name} would fail: {time}")
    longest = duration((budget - done) * len(search.method.seeds) * time / crew.workers)
    say(console, f"{progress}; the others take up to about {longest}.")


def _do_search(search: Search, crew: Crew, retry: bool) -> None:
    """Do the trials of a search, write down their results, and show them."""
    from ..bench.errors import StoreError
    from ..bench.jobs.signals import stop_on_signals
    from ..bench.report.search import write_search
    from ..bench.search.file import merge_with_record
    from ..bench.search.job import SearchJob
    from ..bench.search.results import SearchResult
    from ..bench.store.run_folder import Store
    from .progress import display
    from .show.search import search_outlook, search_report

    console, job, trouble = make_console(), SearchJob(search), None
    whole = merge_with_record(search)  # with the optimizers that were searched before
    job.prepare(retry)
    before = SearchResult(search)
    say(console, search_outlook(search))
    say(console, f"{before.spent} of {before.budget} trials are done in {search.store}")
    mention_other_sources(console, Store(search.store), before.runs)
    shown = display(console, {}, before.budget, before.spent)
    with stop_on_signals(crew.stop_answer) as stop, shown as screen:
        try:
            crew.work(job, screen, stop)
        except StoreError as error:
            trouble = error  # raised below, after the results so far have been written
    result = SearchResult(whole)
    written = write_search(result, search.store)
    show(console, search_report(result))
    for path in written:
        say(console, f"wrote {path}")
    if trouble:
        raise trouble
    if stop.is_set():
        raise leave_stopped(console)
    if result.complete:
        best = shlex.quote(str(written[-1]))
        say(console, f"Next: sgdf run {best}, which compares the best settings on test data.")
    if result.left or any(one.failed for one in result.optimizers):
        raise typer.Exit(1)
