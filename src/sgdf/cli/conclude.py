"""How commands that train end: what they say last, and their exit codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ..present.words import plural
from .console import say

if TYPE_CHECKING:
    from rich.console import Console

    from ..bench.jobs.conduct import Conduct
    from ..bench.spec.run import Run
    from ..bench.store.run_folder import Store


def mention_other_sources(console: Console, store: Store, runs: Sequence[Run]) -> None:
    """Say how many of these runs, which have a result, were made with another source than now."""
    from ..bench.jobs.conduct import count_other_sources

    changed = count_other_sources(store, runs)
    if changed:
        say(
            console,
            f"{changed} of the runs done had another version of their task's or optimizer's "
            "source; choose another folder with --out to compare like with like.",
        )


def mention_changed_sources(console: Console, conduct: Conduct) -> None:
    """Say how many failed runs are tried again because their source has changed."""
    count = len(conduct.changed)
    if count:
        say(
            console,
            f"{plural(count, 'failed run')} will be tried again: the source of the task or "
            "optimizer has changed.",
        )


def mention_missing_probes(console: Console, conduct: Conduct) -> None:
    """Say which probes of an experiment have looked at no step of runs that have their result."""
    from ..bench.errors import StoreError

    missing: Counter[str] = Counter()
    for run in conduct.with_result if conduct.plan.probes else ():
        folder = conduct.store.folder(run.key)
        try:
            rows, (_, result) = folder.probe_rows(), folder.state_and_result()
        except StoreError:  # which the report says
            continue
        seen = {row.get("probe") for row in rows}
        steps = result["step"] if result else 0
        # Any other looks at no step of the run, even if it was there from the start.
        due = {one.name for one in conduct.plan.probes if one.every_epochs or one.every <= steps}
        missing.update(due - seen)
    for name, count in missing.items():
        say(
            console,
            f"{plural(count, 'run')} with a result {'has' if count == 1 else 'have'} no numbers of "
            f"the probe {name}: no run is trained again for a probe. --out names a new folder.",
        )


def conclude(console: Console, conduct: Conduct, stopped: bool, may_diverge: bool = False) -> None:
    """Say how the runs of a plan ended, and leave with an exit code that says so too.

    Args:
        console: where it is said.
        conduct: the plan and its runs.
        stopped: whether Ctrl-C or a signal ended the work.
        may_diverge: whether it is in order that every run has diverged.
    """
    from ..bench.jobs.outcome import divergence_of_all, early_stop_in_words, failures_in_words
    from ..bench.store.run_folder import State

    states = conduct.states_now()
    count = Counter(states.values())
    counts = ", ".join(f"{count[state]} {state.value}" for state in State if count[state])
    say(console, f"{counts}. sgdf status {conduct.plan.store} shows more.")
    failures = failures_in_words(conduct.store, states)
    for line in failures:
        say(console, line)
    if stopped:
        raise leave_stopped(console)
    for line in early_stop_in_words(conduct, states, "--keep-going"):
        say(console, line)
    if failures:
        say(
            console,
            "Correct the source and run the same command again: failed runs are tried again once "
            "their source has changed. With --retry they are tried again in any case.",
        )
    if any(not state.has_result and state is not State.RUNNING for state in count):
        raise typer.Exit(1)
    lines = [] if may_diverge else divergence_of_all(conduct.store, states)
    for line in lines:
        say(console, line)
    if lines:
        raise typer.Exit(1)


def leave_stopped(console: Console) -> typer.Exit:
    """Say how to resume; return what is to be raised after Ctrl-C, to leave with exit code 130."""
    say(console, "Stopped; run the same command again to resume.")
    return typer.Exit(130)
