"""What people should know once the runs of a plan have ended: failures and divergence, grouped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...present.words import plural
from ..store.equal_failures import equal_failures
from ..store.records import Result, divergence_in_words
from ..store.run_folder import State, Store
from .conduct import Conduct

REMEDIES = {
    "input": "Check the data for NaN and infinity.",
    "parameter": "Its gradient was not finite, or the step was too large: try a smaller lr, or "
    "clip gradients with train.clip_norm.",
    "loss": "Try a smaller lr, and check the loss for logarithms of 0 and divisions by 0.",
    "metric": "Try a smaller lr, and check how the metric is computed.",
    "": "Try a smaller lr; train.diverges_at says how far a loss may grow.",
}
"""What to try, by what was the first number that is not finite; empty if that is not known."""


def failures_in_words(store: Store, states: Mapping[str, State]) -> list[str]:
    """Return a line for each failure, with the number of runs that failed alike."""
    failed = [store.folder(key) for key, state in states.items() if state is State.FAILED]
    return [
        f"{plural(len(runs), 'run')} failed{' alike' if len(runs) > 1 else ''}: {line}"
        for line, runs in equal_failures(failed).items()
    ]


def early_stop_in_words(conduct: Conduct, states: Mapping[str, State], way_out: str) -> list[str]:
    """Return a line about runs that were not begun, if there are any.

    Args:
        conduct: the plan and its runs.
        states: the states of the runs now.
        way_out: how the user has them tried all the same.
    """
    if State.FAILED not in states.values():
        return []
    count = conduct.runs_not_begun(states)
    if not count:
        return []
    return [
        f"The first runs of all optimizers failed alike, so {plural(count, 'other run')} "
        f"{'was' if count == 1 else 'were'} not begun; {way_out} tries them too."
    ]


def divergence_of_all(store: Store, states: Mapping[str, State]) -> list[str]:
    """Return lines about why every run diverged, and what to try; none if not every run did."""
    if set(states.values()) != {State.DIVERGED}:
        return []
    return ["Every run diverged.", *_causes(store.folder(key).result() for key in states)]


def _causes(results: Iterable[Result | None]) -> Iterator[str]:
    by_cause: dict[str, list[Result]] = {}
    for result in filter(None, results):
        first = result.get("first_nonfinite")
        by_cause.setdefault(first["what"] if first else "", []).append(result)
    for cause, group in by_cause.items():
        earliest = min(group, key=lambda result: result["diverged_at_step"] or 0)
        where = f"{plural(len(group), 'run')}, the first {divergence_in_words(earliest)}"
        yield f"{where}. {REMEDIES[cause]}"
