"""What the commands of ``sgdf analyze`` share: which runs they mean, and how they end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...present.words import listed, plural
from ..conclude import leave_stopped
from ..console import make_console, refusing, say, show
from ..options import out_option
from ..places import RESULTS, find_stores

if TYPE_CHECKING:
    from ...analysis.conduct import Analysis, Measured, Watcher
    from ...analysis.runs import AnalysedRun
    from ...bench.store.run_folder import RunFolder

MOST_NAMED = 6
"""Settings that are named in a sentence; beyond this they are counted."""
TrainedRuns = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="Folders of finished runs, as in results/digits/runs/KEY, or of all runs of an "
        "experiment, as in results/digits or just digits.",
    ),
]
Experiments = Annotated[
    list[str],
    typer.Argument(
        metavar="EXPERIMENT",
        help="Bundled experiments (see sgdf experiments), TOML files, or folders of runs: the "
        "analysis trains each of their runs from its beginning.",
    ),
]
OnlyTasks = Annotated[
    list[str] | None,
    typer.Option(
        "--task",
        metavar="NAME",
        help="Only runs of this task, by its name, or with the options that the page shows. May "
        "be repeated.",
    ),
]
OnlyOptimizers = Annotated[
    list[str] | None,
    typer.Option(
        "--optimizer", metavar="NAME", help="Only runs of this optimizer. May be repeated."
    ),
]
OnlySeeds = Annotated[
    list[int] | None,
    typer.Option("--seed", metavar="SEED", help="Only runs with this seed. May be repeated."),
]
Examples = Annotated[
    int, typer.Option(min=1, help="How many training examples the loss is taken over.")
]
TrainingThreads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        help="How many threads each run trains with. Default: what the file says, else 1. The "
        "number is part of a run, because its last digits may differ with another.",
    ),
]
Out = Annotated[
    str | None,
    out_option(
        "Folder to write to. Default: analysis/NAME in the folder of the runs; of several folders, "
        "in the first. A page that is there already is replaced."
    ),
]


def conduct(
    analysis: Analysis, runs: Sequence[AnalysedRun], folder: Path, threads: int | None
) -> None:
    """Measure the runs, write the page, and show its main tables."""
    import torch

    from ...analysis.conduct import measure_runs
    from ...analysis.page import write_analysis
    from ..show.analysis import terminal_table

    if threads:
        torch.set_num_threads(threads)
    console = make_console()
    count = len({run.run.key for run in runs})  # what lies between two runs is no third one
    say(console, f"{analysis.title}: {plural(count, 'run')}, in {folder}")
    with refusing(), _progress(len(runs)) as watch:
        try:
            measured = measure_runs(analysis, runs, folder, watch)
        except KeyboardInterrupt:
            raise leave_stopped(console) from None
    if not measured:
        say(console, "Another process measures them all; run the same command when it has ended.")
        raise typer.Exit(1)
    say(make_console(stderr=True), "Making tables and figures …")  # signals take half a minute
    with refusing():
        document = write_analysis(analysis, measured, _command(), folder)
    for line in document.summary:
        say(console, line)
    main = {table.section: table for table in reversed(document.tables)}  # the first of each
    for section in document.sections:
        if section in main:
            show(console, ("", terminal_table(main[section])))
    console.print()
    finished = {one.run.key for one in measured}
    left = [run.name for run in runs if run.key not in finished]
    if left:
        names = listed(left, most=3)
        say(console, f"Another process still measures {names}; the page does not show it yet.")
    say(console, f"Page: {folder / 'index.html'}")
    say(console, "The same beside it: report.md, tables.tex, results.json, tables/, figures/")
    say(console, _what_the_page_shows(measured))


def _what_the_page_shows(measured: Sequence[Measured]) -> str:
    """Return in sentences which runs are on a page, and how to keep it."""
    keys = {one.run.run.key for one in measured}
    settings = list(dict.fromkeys(one.run.setting for one in measured))
    return (
        f"The page shows {plural(len(keys), 'run')} of {listed(settings, most=MOST_NAMED)}. With "
        "other options this command replaces it, unless --out names another folder."
    )


def find_trained(
    places: Sequence[Path],
    tasks: Sequence[str] | None,
    optimizers: Sequence[str] | None,
    seeds: Sequence[int] | None,
) -> tuple[list[AnalysedRun], Path]:
    """Return the finished runs at some places, and the folder that an analysis is written to."""
    from ...analysis.runs import trained_runs
    from ...bench.store.run_folder import RunFolder, Store, is_run_folder

    folders: list[RunFolder] = []
    stores: list[Path] = []
    for place in places:
        if is_run_folder(place):
            folders.append(RunFolder(place.absolute()))
            stores.append(place.absolute().parents[1])
        else:
            found = find_stores(place)
            stores += found
            folders += [folder for store in found for folder in Store(store).folders()]
    unique = {folder.path.resolve(): folder for folder in folders}
    runs = trained_runs(list(unique.values()), optimizers or (), seeds or (), tasks or ())
    return runs, stores[0]


def find_to_train(
    sources: Sequence[str],
    changes: dict[str, Any],
    tasks: Sequence[str] | None,
    optimizers: Sequence[str] | None,
    seeds: Sequence[int] | None,
) -> tuple[list[AnalysedRun], Path]:
    """Return the runs that some experiments name, and the folder that an analysis is written to."""
    from ...analysis.runs import experiment_runs
    from ...bench.spec.bundled import bundled_experiments
    from ...bench.store.run_folder import is_run_folder, store_of

    documents: list[str] = []
    for source in sources:
        path = Path(source)
        if is_run_folder(path):
            documents.append(str(path / "spec.toml"))
        elif source in bundled_experiments() or path.suffix == ".toml":
            documents.append(source)
        else:
            documents += [
                str(run / "spec.toml")
                for store in find_stores(path)
                for run in sorted((store / "runs").iterdir())
                if is_run_folder(run)
            ]
    runs = experiment_runs(documents, changes, optimizers or (), seeds or (), tasks or ())
    return runs, store_of(documents[0]) or RESULTS / Path(documents[0]).stem


def _command() -> str:
    return shlex.join(["sgdf", *sys.argv[1:]])


@contextmanager
def _progress(count: int) -> Iterator[Watcher]:
    """Show how far the measurements are; yield what they report to."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

    from ..progress import PlainColumn

    console = make_console(stderr=True)
    columns = (
        PlainColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("", total=float(count))
        finished = 0

        def watch(run: AnalysedRun, share: float) -> None:
            nonlocal finished
            finished += share == 1.0
            done = finished if share == 1.0 else finished + share
            progress.update(bar, completed=done, description=run.name)
            if share == 1.0 and not console.is_terminal:
                say(console, f"measured {run.name}")

        yield watch
