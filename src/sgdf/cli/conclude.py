"""How commands that train end: what they say last, and their exit codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from ..present.words import plural
from .console import say

if TYPE_CHECKING:
    from rich.console import Console

    from ..bench.jobs.conduct import Conduct
    from ..bench.spec.run import Run
    from ..bench.store.records import Result
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


def conclude(console: Console, conduct: Conduct, stopped: bool, may_diverge: bool = False) -> None:
    """Say how the runs of a plan ended, and leave with an exit code that says so too.

    Args:
        console: where it is said.
        conduct: the plan and its runs.
        stopped: whether Ctrl-C or a signal ended the work.
        may_diverge: whether it is in order that every run has diverged.
    """
    from ..bench.store.equal_failures import equal_failures
    from ..bench.store.run_folder import State

    states = conduct.states_now()
    count = Counter(states.values())
    counts = ", ".join(f"{count[state]} {state.value}" for state in State if count[state])
    say(console, f"{counts}. sgdf status {conduct.plan.store} shows more.")
    failed = [key for key, state in states.items() if state is State.FAILED]
    for line, folders in equal_failures(map(conduct.store.folder, failed)).items():
        say(console, f"{plural(len(folders), 'run')} failed{_alike(folders)}: {line}")
    if stopped:
        raise leave_stopped(console)
    not_begun = conduct.runs_not_begun(states) if failed else 0
    if not_begun:
        say(
            console,
            f"The first runs of all optimizers failed alike, so {plural(not_begun, 'other run')} "
            f"{'was' if not_begun == 1 else 'were'} not begun; --keep-going tries them too.",
        )
    if failed:
        say(
            console,
            "Correct the source and run the same command again: failed runs are tried again once "
            "their source has changed. With --retry they are tried again in any case.",
        )
    if any(not state.has_result and state is not State.RUNNING for state in count):
        raise typer.Exit(1)
    if set(count) == {State.DIVERGED} and not may_diverge:
        _explain_divergence(console, [conduct.store.folder(key).result() for key in states])
        raise typer.Exit(1)


_REMEDIES = {
    "input": "Check the data for NaN and infinity.",
    "parameter": "Its gradient was not finite, or the step was too large: try a smaller lr, or "
    "clip gradients with train.clip_norm.",
    "loss": "Try a smaller lr, and check the loss for logarithms of 0 and divisions by 0.",
    "": "Try a smaller lr; train.diverges_at says how far a loss may grow.",
}
"""What to try, by what was the first number that is not finite; empty if that is not known."""


def _explain_divergence(console: Console, results: Iterable[Result | None]) -> None:
    """Say that every run diverged, why, and what to try."""
    from ..bench.store.records import divergence_in_words

    say(console, "Every run diverged.")
    by_cause: dict[str, list[Result]] = {}
    for result in filter(None, results):
        first = result.get("first_nonfinite")
        by_cause.setdefault(first["what"] if first else "", []).append(result)
    for cause, group in by_cause.items():
        earliest = min(group, key=lambda result: result["diverged_at_step"] or 0)
        where = f"{plural(len(group), 'run')}, the first {divergence_in_words(earliest)}"
        say(console, f"{where}. {_REMEDIES[cause]}")


def _alike(runs: Sequence[object]) -> str:
    return " alike" if len(runs) > 1 else ""


def leave_stopped(console: Console) -> typer.Exit:
    """Say how to resume; return what is to be raised after Ctrl-C, to leave with exit code 130."""
    say(console, "Stopped; run the same command again to resume.")
    return typer.Exit(130)
