"""How commands that train end: what they say last, and their exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

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


def conclude(console: Console, conduct: Conduct, stopped: bool) -> None:
    """Say how the runs of a plan ended, and leave with an exit code that says so too."""
    from ..bench.store.run_folder import State

    states = conduct.count_states()
    counts = ", ".join(f"{states[state]} {state.value}" for state in State if states[state])
    say(console, f"{counts}. sgdf status {conduct.plan.store} shows more.")
    if stopped:
        raise leave_stopped(console)
    if states[State.FAILED]:
        say(console, "Run the same command with --retry to try the failed runs again.")
    if any(not state.has_result and state is not State.RUNNING for state in states):
        raise typer.Exit(1)


def leave_stopped(console: Console) -> typer.Exit:
    """Say how to resume; return what is to be raised after Ctrl-C, to leave with exit code 130."""
    say(console, "Stopped; run the same command again to resume.")
    return typer.Exit(130)
