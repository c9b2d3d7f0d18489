"""``sgdf run`` and ``sgdf quickstart``: do the runs of an experiment."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .conclude import (
    conclude,
    mention_changed_sources,
    mention_missing_probes,
    mention_other_sources,
)
from .console import make_console, refusing, say, say_all, show
from .options import (
    Changes,
    CheckpointEvery,
    Data,
    Device,
    DryRun,
    ExperimentName,
    Precision,
    RayAddress,
    Retry,
    Threads,
    Workers,
    out_option,
    parse_changes,
)

if TYPE_CHECKING:
    from ..bench.jobs.conduct import Conduct, Crew


def run(
    experiment: ExperimentName,
    out: Annotated[
        str | None,
        out_option("Folder that keeps the runs. Default: results/NAME of the experiment."),
    ] = None,
    workers: Workers = 1,
    ray: RayAddress = None,
    threads: Threads = None,
    data: Data = None,
    device: Device = None,
    precision: Precision = None,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the networks with torch.compile.")
    ] = False,
    changes: Changes = None,
    retry: Retry = False,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going",
            help="Try all runs, even if the first runs of all optimizers failed alike.",
        ),
    ] = False,
    dry_run: DryRun = False,
    checkpoint_every: CheckpointEvery = 60.0,
) -> None:
    """Do the runs of an experiment; a run that was interrupted resumes from its last checkpoint.

    Finished runs are not done again. You may interrupt the command with Ctrl-C, or kill it: run
    the same command again to resume. Run the same command in another terminal, or on another
    machine with the same disk, to share the runs between them.
    """
    settings = parse_changes(
        changes,
        train__threads=threads,
        train__device=device or None,
        train__precision=precision or None,
        train__compile=compiled or None,
    )
    _run(experiment, settings, out, workers, ray, retry, keep_going, dry_run, checkpoint_every)


def quickstart(
    out: Annotated[str, out_option("Folder that keeps the runs.")] = "results/quickstart",
) -> None:
    """See SGDF beside SGD, Adam, AdamW and RAdam on small images, in a minute or two.

    A small network learns scikit-learn's digits with three seeds for each optimizer, at learning
    rates that an equal search found best on validation data (see sgdf experiments
    digits-search). Runs that are finished are not done again.
    """
    from .report import write_report

    _run("quickstart", {}, out, workers=min(2, os.cpu_count() or 1))
    write_report([Path(out)])
    console = make_console()
    console.print()
    say(console, "Next: sgdf experiments digits > mine.toml, change it, sgdf run mine.toml,")
    say(console, "or compare them on a model of your own: docs/guide/compare.md takes ten minutes.")


def _run(
    experiment: str,
    settings: dict[str, Any],
    out: str | None,
    workers: int = 1,
    ray: str | None = None,
    retry: bool = False,
    keep_going: bool = False,
    dry_run: bool = False,
    checkpoint_every: float = 60.0,
) -> None:
    from ..bench.errors import naming
    from ..bench.spec.read import load
    from ..bench.store.run_folder import store_of

    with refusing():
        loaded = load(experiment, settings)  # first of all: it names mistakes without torch

        from ..bench.jobs.conduct import Conduct, Crew
        from ..bench.jobs.early_stop import first_runs
        from ..bench.jobs.freed_memory import keep_freed_memory
        from ..bench.jobs.plan import Plan
        from ..bench.spec.machine import resolve_machine
        from ..bench.spec.milestones import unreached_milestones
        from ..bench.training.ranks import Ranks

        keep_freed_memory()
        ranks, crew = Ranks(), Crew(workers, ray)
        crew.check(ranks)
        with naming(experiment):
            loaded = resolve_machine(loaded, crew.threads, ranks.count, anywhere=crew.is_elsewhere)
        origin = store_of(experiment)  # of a run that is given by its own spec.toml
        place = Path(out) if out else origin or Path("results") / loaded.name
        deciding = {} if keep_going else first_runs(loaded.runs)
        plan = Plan(loaded.runs, place, checkpoint_every, loaded.probes, deciding)
        conduct = Conduct(plan, None if origin else loaded)
        for line in unreached_milestones(loaded.runs) if ranks.rank == 0 else ():
            say(make_console(), f"Warning: {line}")
        if not dry_run:
            _do_runs(conduct, crew, retry, is_first=ranks.rank == 0)
        elif ranks.rank == 0:
            _show_plan(conduct, crew, retry)


def _show_plan(conduct: Conduct, crew: Crew, retry: bool) -> None:
    """Show the runs and an estimate of time; leave with exit code 1 if a run would fail."""
    from ..bench.jobs.estimate import estimate
    from ..bench.spec.labels import labels
    from .show.status import outlook, setting_tables, tables_of

    console, plan = make_console(), conduct.plan
    tables = tables_of(plan.runs)
    show(console, setting_tables(conduct.states, tables))
    times = estimate(conduct.to_do(retry), conduct.store, partial(say, console))
    done = f"{len(conduct.with_result)} of {len(plan.runs)} runs are done in {plan.store}"
    say_all(console, f"{done}; {outlook(times, labels(tables), crew.workers)}")
    if any(isinstance(time, str) for time in times.values()):
        raise typer.Exit(1)


def _do_runs(conduct: Conduct, crew: Crew, retry: bool, is_first: bool) -> None:
    """Do the runs of a plan; of several ranks, the first one alone prepares and speaks."""
    from ..bench.jobs.signals import stop_on_signals
    from ..bench.spec.labels import labels
    from ..present.words import plural
    from .progress import display
    from .show.status import tables_of

    console, runs, done = make_console(), conduct.plan.runs, len(conduct.with_result)
    if is_first:
        conduct.prepare(retry)
        say(console, f"{plural(len(runs), 'run')}, {done} done, in {conduct.plan.store}")
        mention_other_sources(console, conduct.store, conduct.with_result)
        mention_missing_probes(console, conduct)
        if not retry:
            mention_changed_sources(console, conduct)
    names = labels(tables_of(runs))
    shown = display(console, names, len(runs), done)
    with stop_on_signals(crew.stop_answer) as stop, shown as screen:
        conduct.work(crew, screen, stop)
    if is_first:
        conclude(console, conduct, stop.is_set())
