"""What a report says before its first table: what was compared, when, and on how much data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import sgdf

from ...present.document import Failure
from ...present.visible import visible
from ...present.words import listed, plural
from ..store.records import Result
from ..store.run_folder import State
from .findings import SPLITS, Findings, Problem

MOST_NAMED = 4
"""The most experiments that a title names."""


def title_of(stores: Sequence[Path], experiments: Mapping[str, str]) -> str:
    """Return the title of a report on these stores.

    Args:
        stores: the folders of the runs.
        experiments: what the experiments that were run there say about themselves, by name.
    """
    names = list(experiments) or [str(store) for store in stores]
    if len(names) > MOST_NAMED:
        return f"Report on {plural(len(names), 'experiment' if experiments else 'folder')}"
    return f"Report on {', '.join(names)}"


def about_lines(experiments: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the experiments say about themselves, a line for each that says something."""
    if len(experiments) == 1:
        return tuple(filter(None, experiments.values()))
    return tuple(f"{name}: {about}" for name, about in experiments.items() if about)


def origin_of(stores: Sequence[Path], findings: Findings) -> str:
    """Return when the runs were trained, where they are kept, and what made the report."""
    dates = sorted(
        {str(run.environment["date"]) for run in findings.runs if "date" in run.environment}
    )
    trained = ""
    if dates:
        span = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
        trained = f"Trained {span}. "
    places = listed([str(store) for store in stores[:MOST_NAMED]])
    if len(stores) > MOST_NAMED:
        places += f" and {len(stores) - MOST_NAMED} more folders"
    return f"{trained}The runs are in {places}; sgdf {sgdf.__version__} made this report."


def model_and_data(problem: Problem) -> str:
    """Return the size of the model and of each split of the data, as far as they are recorded."""
    results = [run.result for run in problem.runs if run.result]
    parts = []
    parameters = {result["parameters"] for result in results}
    if parameters:
        parts.append(f"The model has {_span(parameters)} parameters.")
    counts = list(map(_examples, results))
    splits = dict.fromkeys((*SPLITS, *(split for count in counts for split in count)))
    shown = [
        f"{_span(sizes)} {'training' if split == 'train' else split}"
        for split in splits
        if (sizes := {count[split] for count in counts if split in count})
    ]
    if shown:
        parts.append(f"There are {listed(shown)} examples.")
    return " ".join(parts)


def count_examples(problem: Problem, split: str) -> int | None:
    """Return the number of examples of a split; None if it is not recorded, or not always equal."""
    counts = {_examples(run.result).get(split) for run in problem.runs if run.result}
    return counts.pop() if len(counts) == 1 else None


def failures_of(findings: Findings) -> tuple[Failure, ...]:
    """Return the tracebacks of failed runs, equal ones once, the most frequent first."""
    runs_by: dict[tuple[str, str], list[str]] = {}
    for problem in findings.problems:
        for setting in problem.settings:
            for run in setting.runs:
                if run.state is State.FAILED:
                    name = f"{problem.name}: {setting.name}, seed {run.seed}"
                    text = "\n".join(map(visible, run.traceback.splitlines()))
                    runs_by.setdefault((run.failure, text), []).append(name)
    ordered = sorted(runs_by.items(), key=lambda item: -len(item[1]))
    return tuple(Failure(error, text, tuple(runs)) for (error, text), runs in ordered)


def _examples(result: Result) -> dict[str, int]:
    """Return the number of examples by split; older results do not have it."""
    counts = result.get("examples")
    if not isinstance(counts, dict):
        return {}
    return {split: count for split, count in counts.items() if isinstance(count, int)}


def _span(sizes: set[int]) -> str:
    """Return a number, or the smallest and the largest if they are not equal."""
    low, high = min(sizes), max(sizes)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
