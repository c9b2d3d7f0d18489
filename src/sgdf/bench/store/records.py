"""The records that a run leaves: its table, a row of metrics, its result. All are plain JSON."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict, cast

Table = dict[str, Any]
"""A table of a TOML file: anything that a user may have written."""

Figures = dict[str, float]
"""Numbers by the name of their metric."""


class RunTable(TypedDict):
    """A run as an experiment that stands for this run alone: ``spec.toml`` of its folder."""

    seed: int
    protocol: str
    task: Table
    optimizer: Table
    schedule: Table
    train: Table


class Seconds(TypedDict):
    """The time that a run has spent so far, by kind of work."""

    step: float
    data: float
    evaluation: float


class EpochFigures(TypedDict):
    """The figures of one epoch; one entry for each split that was evaluated."""

    epoch: int
    step: int
    train: Figures
    validation: NotRequired[Figures]
    test: NotRequired[Figures]


class Row(EpochFigures):
    """A row of ``metrics.jsonl``: a reading between two steps, or the end of an epoch."""

    kind: Literal["train", "epoch"]
    lr: float
    seconds: Seconds


class Result(TypedDict):
    """The result of a run that is finished or diverged: ``result.json`` of its folder."""

    outcome: NotRequired[str]
    metric: str
    largest: bool
    unit: NotRequired[str]
    """Only if the task's metric declares one that its name does not imply."""
    last: NotRequired[EpochFigures]
    selected: NotRequired[EpochFigures]
    """The best epoch on validation data, under the protocol of that name."""
    best_on_test: NotRequired[EpochFigures]
    """The best epoch on test data, under the paper's protocol."""
    step: int
    epoch: int
    diverged_at_step: int | None
    seconds: Seconds
    parameters: int
    examples: NotRequired[dict[str, int]]
    """How many examples each split has, as far as the task says."""
    state_bytes: int
    weights: str
    metrics: NotRequired[str]
    """The digest of the rows that belong to it."""


def figures_on(record: EpochFigures, split: str) -> Figures:
    """Return the figures of an epoch on a split, none if it was not evaluated there."""
    return cast("dict[str, Figures]", record).get(split, {})


def splits_in(record: EpochFigures) -> list[str]:
    """Return the splits that a record has figures of, those of training first.

    >>> splits_in({"epoch": 1, "step": 9, "train": {"loss": 0.5}, "test": {"loss": 0.7}})
    ['train', 'test']
    """
    return [key for key, value in record.items() if isinstance(value, dict) and key != "seconds"]


def is_chosen_on_test(result: Result) -> bool:
    """Return whether the epoch that counts was chosen by looking at the test data."""
    return "best_on_test" in result


def chosen_epoch(result: Result) -> EpochFigures | None:
    """Return the epoch whose figures count, by the protocol of the run.

    Under the protocol ``"last"`` nothing is chosen, and the last epoch counts.
    """
    return result.get("selected") or result.get("best_on_test") or result.get("last")
