"""The command line: ``sgdf --help``. It needs the ``bench`` extra.

It is long for the help of its options; what the commands do is elsewhere.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.progress import Progress
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"The sgdf command needs {missing.name}, which is not installed: pip install 'sgdf[bench]'"
    ) from None

import sgdf

if TYPE_CHECKING:
    from ..bench.jobs.events import Display, Event
    from ..bench.jobs.job import Job
    from ..bench.jobs.plan import Plan
    from ..bench.jobs.signals import Stop
    from ..bench.spec.run import Run
    from ..bench.store.run_folder import Store

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(sgdf.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Compare optimizers, and measure what a step of SGDF costs. Begin with sgdf quickstart."""


def _folder(text: str | None) -> str | None:
    if text == "":
        raise typer.BadParameter("a folder needs a name")
    return text


@app.command()
def quickstart(
    out: Annotated[
        str, typer.Option("--out", "-o", callback=_folder, help="Folder that keeps the runs.")
    ] = "results/quickstart",
) -> None:
    """See SGDF beside SGD, Adam, AdamW and RAdam on small images, in a minute or two.

    A small network learns scikit-learn's digits, three seeds each, at learning rates that an
    equal search found best on validation data (sgdf experiments digits-search). What is
    done already is not done again.
    """
    run("quickstart", out=out, workers=min(2, os.cpu_count() or 1), checkpoint_every=60.0)
    _report([Path(out)], None, {})
    console = _console()
    _say(console, "\nNext: sgdf experiments digits > mine.toml, change it, sgdf run mine.toml,")
    _say(console, "or compare them on a model of your own: docs/compare.md takes ten minutes.")


def _problems(names: list[str] | None) -> list[str]:
    from ..analysis.cost.measure import DEFAULT_PROBLEMS, PROBLEMS

    for name in names or ():
        if name not in PROBLEMS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(PROBLEMS)}")
    return names or list(DEFAULT_PROBLEMS)


def _plot(path: Path | None) -> Path | None:
    from ..analysis.cost.report import PLOT_FORMATS

    if path and path.suffix not in PLOT_FORMATS:
        raise typer.BadParameter(f"{path} does not end in {', '.join(PLOT_FORMATS)}")
    return _file(path)


def _file(path: Path | None) -> Path | None:
    """Refuse a path that cannot be written to before minutes are spent."""
    if path:
        nearest = path
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        possible = nearest.is_file() if nearest == path else nearest.is_dir()
        if not possible or not os.access(nearest, os.W_OK):
            raise typer.BadParameter(f"cannot write {path}")
    return path


@app.command()
def cost(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            callback=_problems,
            help="Parameters to step on: resnet18, densenet121, vgg11, flat (one tensor of 40 "
            "million) and gpt2 by default; vgg13, resnet101 and densenet161 add the paper's "
            "runtime table. vgg11, vgg13 and gpt2 take 12 GB of memory.",
            show_default=False,
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="How often each implementation takes its turn.")
    ] = 10,
    batch: Annotated[
        int, typer.Option(min=2, help="Images in the batch of forward and backward.")
    ] = 4,
    resolution: Annotated[int, typer.Option(min=32, help="Their height and width.")] = 64,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads that torch may use; its own choice if absent."),
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Measure torch.compile(SGDF.step) too; building it takes minutes."
        ),
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", callback=_file, help="Write everything to this file."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(callback=_plot, help="Draw a bar chart into this file (png, pdf or svg)."),
    ] = None,
) -> None:
    """Measure what a step of SGDF costs on this machine's CPU, beside other optimizers.

    Time per step, bytes of state, peak memory and the share of a whole training step, for
    every implementation of SGDF, torch's SGD (momentum 0.9), Adam and AdamW, and a few
    of pytorch-optimizer's if that is installed. They take turns, so that the ratios hold
    even where the times do not. The limit is a step that reads and writes the same bytes
    by the same route and computes nothing.

    Run it when nothing else runs.
    """
    # The profiler that finds the peak memory would announce each of its runs.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    import torch

    from ..analysis.cost.measure import make_problem, measure
    from ..analysis.cost.operations import operation_table
    from ..analysis.cost.report import Report, draw
    from ..environment import environment

    if threads:
        torch.set_num_threads(threads)
    names = problems or []
    results = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=len(names) * (rounds + 1))
        for name in names:
            progress.update(bar, description=f"{name}: preparing")
            problem = make_problem(name, batch, resolution)

            def advance(_: int, name: str = name) -> None:
                progress.update(bar, advance=1, description=name)

            training = f"batch {batch} at {resolution} × {resolution} pixels"
            results.append(measure(problem, rounds, compiled, training=training, progress=advance))
    report = Report(environment(), rounds, results, operation_table())

    console = Console()
    console.print(", ".join(f"{key} {value}" for key, value in report.environment.items()))
    for table in report.tables():
        console.print()
        console.print(table)
    if json_file:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    if plot:
        draw(report, plot)
    for path in filter(None, (json_file, plot)):
        console.print(f"wrote {path}", highlight=False)


def _setting(text: str) -> tuple[str, Any]:
    """Parse KEY=VALUE; what is no value of TOML's is a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, as in train.epochs=5")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def _settings(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        _setting(text)
    return texts


def _data(folder: str | None) -> str | None:
    """Let this process and its workers find the data sets there."""
    if _folder(folder):
        from ..bench.tasks.assets import DATA_VARIABLE

        os.environ[DATA_VARIABLE] = str(folder)
    return folder


ExperimentName = Annotated[
    str, typer.Argument(help="A bundled experiment (see sgdf experiments), or a TOML file.")
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, mps, … Default: the accelerator, if any.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Work on a Ray cluster: auto, HOST:6379 of one that this machine is part of, or "
        "local to start one here. All its machines need sgdf installed and the runs' folder on "
        "the same disk at the same path.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Threads of each run. Default: the file's, else the machine's over the workers, "
        "on Ray 1. With another number a run is another run: its last digits may differ.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        callback=_settings,
        help="Change a value of the file, as in --set train.epochs=5, --set 'seed=[0, 1]' or "
        "--set optimizer.lr=0.1, which holds for every [[optimizer]]. May be repeated.",
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        callback=_data,
        help="Folder that has the data sets, or that they are downloaded to. Default: SGDF_DATA, "
        "else ~/.cache/sgdf.",
    ),
]
CheckpointEvery = Annotated[
    float, typer.Option(min=0.0, metavar="SECONDS", help="Time between checkpoints.")
]


@app.command()
def run(
    experiment: ExperimentName,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            callback=_folder,
            help="Folder that keeps the runs. Default: results/NAME of the experiment.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, help="Processes that share the runs.")
    ] = 1,
    ray: RayAddress = None,
    threads: Threads = None,
    data: Data = None,
    device: Device = None,
    precision: Annotated[
        str | None,
        typer.Option(help="float32, or bfloat16 or float16 for mixed precision."),
    ] = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the networks with torch.compile.")
    ] = False,
    changes: Changes = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed runs again.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the runs and an estimate of time; train nothing."),
    ] = False,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Do the runs of an experiment, each where it was left.

    Finished runs are not done again. Interrupt it with Ctrl-C, or kill it: the same command
    goes on from the last checkpoints. The same command in another terminal, or on another
    machine with the same disk, takes its share of the runs.
    """
    from ..bench.errors import SpecError, StoreError
    from ..bench.jobs.estimate import estimate
    from ..bench.jobs.job import TO_DO
    from ..bench.jobs.plan import Plan
    from ..bench.jobs.signals import stop_on_signals
    from ..bench.spec.labels import labels
    from ..bench.spec.machine import resolve_machine
    from ..bench.spec.read import load
    from ..bench.store.run_folder import State, Store
    from ..bench.training.ranks import Ranks
    from .progress import display
    from .show import catalog

    console = _console()
    settings = dict(map(_setting, changes or ()))
    options = {"threads": threads, "device": device, "precision": precision, "compile": compiled}
    settings.update({f"train.{key}": value for key, value in options.items() if value})
    processes = Ranks()
    try:
        if processes.count > 1 and workers > 1:
            raise SpecError("--workers: must be 1 under torchrun")
        share = _share_of_threads(workers, ray)
        if ray and processes.count > 1:
            raise SpecError("--ray: cannot be started with torchrun")
        found = load(experiment, settings)
        try:
            found = resolve_machine(found, share, processes.count, anywhere=ray is not None)
        except SpecError as error:
            raise SpecError(f"{experiment}: {error}") from error
    except SpecError as error:
        raise _refused(error) from error

    kept = Path(experiment)
    own = kept.parents[2] if kept.name == "spec.toml" and kept.parts[-3:-2] == ("runs",) else None
    place = Path(out) if out else own or Path("results") / found.name
    store, tables = Store(place), catalog.plan_tables(found.runs)
    try:
        states = {run.key: store.folder(run.key).state() for run in found.runs}
        done = sum(state.has_result for state in states.values())
        if dry_run:
            if processes.rank == 0:
                console.print(catalog.grid_table(states, tables))
                to_do = [*TO_DO, *([State.FAILED] if retry else [])]
                left = [run for run in found.runs if states[run.key] in to_do]
                times = estimate(left, store)
                line = catalog.outlook(times, labels(tables), workers)
                _say(console, f"{done} of {len(found.runs)} runs are done in {place}; {line}")
                if any(isinstance(time, str) for time in times.values()):
                    raise typer.Exit(1)
            return
        plan = Plan(found.runs, place, checkpoint_every, found.probes)
        if processes.rank == 0:
            plan.prepare(retry)
            plural = "" if len(found.runs) == 1 else "s"
            _say(console, f"{len(found.runs)} run{plural}, {done} done, in {place}")
            _mention_other_sources(
                console, store, [run for run in found.runs if states[run.key].has_result]
            )
        names = labels(tables)
        with stop_on_signals() as stop, display(console, names, len(found.runs), done) as screen:
            _share(plan, workers, ray, screen, stop)
        if processes.rank == 0:
            _conclude(console, plan, stop.is_set())
    except (SpecError, StoreError) as error:
        raise _refused(error) from error


def _optimizer_names(names: list[str] | None) -> list[str] | None:
    from ..bench.catalog.optimizers import OPTIMIZERS

    return list(OPTIMIZERS) if names and "all" in names else names


@app.command()
def tune(
    experiment: ExperimentName,
    optimizers: Annotated[
        list[str] | None,
        typer.Option(
            "--optimizer",
            metavar="NAME",
            callback=_optimizer_names,
            help="Search this one, in the file or not, instead of all that are in the file. May be "
            "repeated; all stands for every bundled optimizer.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Settings tried of each optimizer. Default: the file's, else 12."),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="tpe|random|grid",
            help="tpe goes by what was found so far, random does not; grid is the paper's, or the "
            "file's lists. Default: the file's, else tpe.",
        ),
    ] = None,
    pruning: Annotated[
        bool | None,
        typer.Option(
            "--prune/--no-prune",
            help="Give up a trial that is worse than the median of the finished ones at the same "
            "epoch. Default: the file's, else yes; never on a grid.",
        ),
    ] = None,
    range_test: Annotated[
        bool,
        typer.Option(
            "--range-test",
            help="Not a search: one run of each optimizer whose learning rate rises at each of "
            "some 300 steps, and a plot of the loss against it; in results/NAME-range.",
        ),
    ] = False,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where Optuna keeps the trials: journal:///PATH, sqlite:///PATH or a database "
            "server; a whole path has four slashes. Default: a journal in the folder of the runs.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            callback=_folder,
            help="Folder that keeps the runs. Default: results/NAME-tune.",
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", "-w", min=1, help="Processes that share the trials.")
    ] = 1,
    ray: RayAddress = None,
    threads: Threads = None,
    data: Data = None,
    device: Device = None,
    changes: Changes = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed trials again.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would be tried of each optimizer; train nothing."
        ),
    ] = False,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Search for the best settings of each optimizer, with the same budget for all.

    Each optimizer of the experiment gets as many trials as the others, of up to as many epochs,
    judged on validation data with seeds that the experiment itself does not use. What is tried is
    the learning rate over four decades, or what [optimizer.search] in the file says; what the
    file sets for it is set aside.

    It ends with an experiment of the best settings, a record of the whole search and a plot of what
    each setting came to. Interrupt it or kill it: the same command goes on. The same command in
    another terminal, or on another machine with the same disk, takes its share of the trials.
    """
    import optuna

    from ..bench.errors import SpecError, StoreError, naming
    from ..bench.jobs.estimate import estimate
    from ..bench.jobs.plan import Plan
    from ..bench.jobs.signals import stop_on_signals
    from ..bench.report.range_test import write_range_tests
    from ..bench.report.search import write_search
    from ..bench.search.file import merge_with_record, rates_only, read_search, select_optimizers
    from ..bench.search.job import SearchJob
    from ..bench.search.range_test import range_run, range_tests
    from ..bench.search.results import SearchResult
    from ..bench.search.storage import journal_url
    from ..bench.spec.document import apply_changes, load_document
    from ..bench.spec.labels import labels
    from ..bench.store.run_folder import Store
    from ..bench.training.ranks import Ranks
    from ..present.words import duration
    from .progress import display
    from .show.catalog import plan_tables
    from .show.search import range_table, search_outlook, search_report, space_table

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    console = _console()
    settings = dict(map(_setting, changes or ()))
    given = {"train.threads": threads, "train.device": device, "search.trials": trials}
    given |= {"search.sampler": sampler, "search.prune": pruning}
    settings |= {key: value for key, value in given.items() if value is not None}
    try:
        if Ranks().count > 1:
            raise SpecError("sgdf tune: cannot be started with torchrun")
        share = _share_of_threads(workers, ray)
        with naming(experiment):
            document = load_document(experiment)
            document = apply_changes(
                select_optimizers(document, optimizers) if optimizers else document, settings
            )
            kind = "range" if range_test else "tune"
            place = Path(out) if out else Path("results") / f"{document['name']}-{kind}"
            search = read_search(
                rates_only(document) if range_test else document,
                threads=share,
                anywhere=ray is not None,
                store=place,
                storage=storage or journal_url(place / "search.journal"),
                checkpoint_every=checkpoint_every,
            )
            runs = (
                tuple(range_run(search, candidate) for candidate in search.candidates)
                if range_test
                else ()
            )
        whole = search if range_test else merge_with_record(search)
    except (SpecError, StoreError) as error:
        raise _refused(error) from error

    if dry_run:
        console.print(space_table(search))
        if range_test:
            return
        _say(console, search_outlook(search))
        try:
            begun = (place / "search").exists()  # else to look would begin it
            spent = SearchResult(search).spent if begun else 0
            time = estimate([search.example], Store(place))[search.example.key]
        except (SpecError, StoreError) as error:
            raise _refused(error) from error
        left = len(search.candidates) * search.method.trials - spent
        if isinstance(time, str):
            raise _refused(SpecError(f"{search.example.optimizer.name} would fail: {time}"))
        longest = duration(left * len(search.method.seeds) * time / workers)
        line = f"the others take up to about {longest} of training"
        _say(console, f"{spent} trials are done in {place}; {line}.")
        return
    try:
        if range_test:
            plan = Plan(runs, place, checkpoint_every)
            plan.prepare(retry)
            names = labels(plan_tables(runs))
            with stop_on_signals() as stop, display(console, names, len(runs), 0) as screen:

                def show(run: str, event: Event) -> None:
                    if event["event"] == "end" and event["state"] == "finished":
                        event = {**event, "line": "all rates were gone through"}
                    screen(run, event)

                _share(plan, workers, ray, show, stop)
            tests = range_tests(search, runs)
            console.print(range_table(tests))
            for path in write_range_tests(tests, place):
                _say(console, f"wrote {path}")
            _conclude(console, plan, stop.is_set())
            return
        SearchJob(search).prepare(retry)
        tuned, trouble = SearchResult(search), None
        _say(console, search_outlook(search))
        _say(console, f"{tuned.spent} of {tuned.budget} trials are done in {place}")
        _mention_other_sources(console, Store(place), tuned.runs)
        with stop_on_signals() as stop, display(console, {}, tuned.budget, tuned.spent) as screen:
            try:
                _share(SearchJob(search), workers, ray, screen, stop)
            except StoreError as error:
                trouble = error  # after what was done has been written down
        tuned = SearchResult(whole)
        written = write_search(tuned, place)
    except (StoreError, SpecError) as error:
        raise _refused(error) from error
    for part in search_report(tuned):
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    for path in written:
        _say(console, f"wrote {path}")
    if trouble:
        raise _refused(trouble)
    if stop.is_set():
        _say(console, "Stopped; the same command goes on from here.")
        raise typer.Exit(130)
    if tuned.left or any(found.failed for found in tuned.found):
        raise typer.Exit(1)


def _mention_other_sources(console: Console, store: Store, runs: Iterable[Run]) -> None:
    """Say how many of these runs, which are over, were made with another source than there is."""
    from ..bench.jobs.provenance import differences, sources

    changed = [
        run for run in runs if differences(store.folder(run.key).environments(), sources(run))
    ]
    if changed:
        _say(
            console,
            f"{len(changed)} of the runs done had another version of their task's or optimizer's "
            "source; --out another folder compares like with like.",
        )


def _share_of_threads(workers: int, ray: str | None) -> int:
    """Return how many threads a run gets that does not say how many it wants."""
    import torch

    from ..bench.errors import SpecError
    from ..bench.jobs.ray_cluster import check

    if ray and workers > 1:
        raise SpecError("--ray: does not go with --workers")
    if ray:
        check(ray)
    return 1 if ray else max(1, torch.get_num_threads() // workers)


def _share(job: Job, workers: int, ray: str | None, screen: Display, stop: Stop) -> None:
    """Work on a job: alone, with worker processes, or on a Ray cluster."""
    from ..bench.jobs.local import Workers
    from ..bench.jobs.ray_cluster import RayWorkers

    if ray:
        RayWorkers(job, ray, screen).work(stop)
    elif workers > 1:
        Workers(job, workers, screen).work(stop)
    else:
        job.work(screen, stop)


def _console(stderr: bool = False) -> Console:
    return Console(stderr=stderr, emoji=False)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _refused(error: Exception) -> typer.Exit:
    _say(_console(stderr=True), f"sgdf: {error}")
    return typer.Exit(2)


def _conclude(console: Console, plan: Plan, stopped: bool) -> None:
    """Say how it ended, and leave with an exit code that says so too."""
    from ..bench.store.run_folder import State, Store

    states = Counter(Store(plan.store).folder(run.key).state() for run in plan.runs)
    counts = ", ".join(f"{states[state]} {state.value}" for state in State if states[state])
    _say(console, f"{counts}. sgdf status {plan.store} shows more.")
    if stopped:
        _say(console, "Stopped; the same command goes on from here.")
        raise typer.Exit(130)
    if states[State.FAILED]:
        _say(console, "With --retry the failed ones are tried again.")
    if any(not state.has_result and state is not State.RUNNING for state in states):
        raise typer.Exit(1)


@app.command()
def status(
    place: Annotated[
        Path,
        typer.Argument(
            help="results/digits, the folder of one run in it, results for all, or just digits."
        ),
    ] = Path("results"),
) -> None:
    """Show how far the runs in a folder are, and what went wrong."""
    from rich.markup import escape

    from ..bench.errors import StoreError
    from ..bench.store.run_folder import RunFolder, Store
    from .show.catalog import store_report

    console = _console()
    try:
        if (place / "spec.toml").exists():
            found = {place: [RunFolder(place.absolute())]}
        else:
            found = {path: Store(path).folders() for path in _stores(place)}
        for path, folders in found.items():
            console.rule(escape(str(path)), align="left")
            for part in store_report(folders):
                console.print(part, highlight=False, soft_wrap=isinstance(part, str))
        if (place / "spec.toml").exists():
            _say(console, RunFolder(place.absolute()).traceback())
    except StoreError as error:
        raise _refused(error) from error


def _stores(place: Path) -> list[Path]:
    """Return the stores that a path stands for: itself, all below it, or that of an experiment."""
    named = Path("results") / place.name.removesuffix(".toml")
    stores = [path for path in (place, named) if (path / "runs").is_dir()][:1]
    stores = stores or sorted(path.parent for path in place.glob("*/runs"))
    if not stores:
        what = "no runs there" if place.is_dir() else "no such folder"
        raise _refused(ValueError(f"{place}: {what}; sgdf run makes them in results/NAME"))
    return stores


def _target(text: str) -> tuple[str, float]:
    """Parse VALUE or TASK=VALUE."""
    problem, _, value = text.rpartition("=")
    try:
        return problem.strip(), float(value)
    except ValueError:
        wanted = "a number, or TASK=NUMBER as in digits-cnn=0.97"
        raise typer.BadParameter(f"{text!r} is not {wanted}") from None


def _targets(texts: list[str] | None) -> list[str] | None:
    for text in texts or ():
        _target(text)
    return texts


@app.command()
def report(
    place: Annotated[
        Path, typer.Argument(help="results/digits, results for all, or just digits.")
    ] = Path("results"),
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            callback=_folder,
            help="Folder to write to. Default: report in the folder of the runs.",
        ),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="[TASK=]VALUE",
            callback=_targets,
            help="The metric to be reached, as in 0.97, or digits-cnn=0.97 for one task or "
            "problem: how long does each optimizer take? Default: what three quarters of them "
            "reach with every seed. May be repeated.",
        ),
    ] = None,
) -> None:
    """Compare what the runs in a folder came to: a page, tables and figures.

    Writes index.html, which needs no other file and no network, the same as Markdown, LaTeX
    (booktabs), JSON and CSV, every run as a row of runs.csv, and the figures as PNG and PDF. Runs
    that are not over are listed, not counted: it can be made at any time.
    """
    _report(_stores(place), Path(out) if out else None, dict(map(_target, targets or ())))


def _report(stores: list[Path], out: Path | None, targets: dict[str, float]) -> None:
    from ..bench.errors import SpecError, StoreError
    from ..bench.report.write import Report
    from .show.catalog import results_in_brief

    console = _console()
    folder = out or (stores[0] if len(stores) == 1 else stores[0].parent) / "report"
    try:
        made = Report.of(stores, targets)
        page = made.write(folder)
    except (StoreError, SpecError) as error:
        raise _refused(error) from error
    for line in made.document.summary:
        _say(console, line)
    for part in results_in_brief(made.document, bool(targets)):
        console.print()
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))
    _say(console, f"\nReport: {page}")
    _say(
        console,
        "The same beside it: report.md, tables.tex, results.json, tables/, figures/, runs.csv",
    )


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(help="One of them, or module:Class.")] = None,
) -> None:
    """Show the tasks that an experiment can name, or what one of them is and takes."""
    from .show import catalog

    _catalogue(name, catalog.task_table, catalog.task_help)


@app.command()
def optimizers(
    name: Annotated[str | None, typer.Argument(help="One of them, or module:Class.")] = None,
) -> None:
    """Show the optimizers that an experiment can name, or the options of one of them."""
    from .show import catalog

    _catalogue(name, catalog.optimizer_table, catalog.optimizer_help)


@app.command()
def experiments(
    name: Annotated[str | None, typer.Argument(help="One of them: print its file.")] = None,
) -> None:
    """Show the bundled experiments, or the file of one, to copy and change.

    For example: sgdf experiments digits > mine.toml
    """
    from .show import catalog

    _catalogue(name, catalog.experiment_table, catalog.experiment_text)


def _catalogue(name: str | None, table: Callable[[], Any], detail: Callable[[str], str]) -> None:
    from ..bench.catalog.lookup import importable_from
    from ..bench.errors import SpecError

    importable_from(Path.cwd())
    try:
        if name is None:
            _console().print(table())
        else:
            print(detail(name).rstrip())
    except SpecError as error:
        raise _refused(SpecError(f"{name}: {error}" if name else str(error))) from error
