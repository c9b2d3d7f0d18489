"""The records that a run leaves: its table, a row of metrics, its result. All are plain JSON.

The types are rules as well: ``conform.py`` holds what was read from a file against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

Table = dict[str, Any]
"""A table of a TOML file: anything that a user may have written."""

Figures = dict[str, float]
"""Numbers by the name of their metric."""


@dataclass(frozen=True)
class Rule:
    """What a value must be beside its type, in words and as a test."""

    allowed: str
    holds: Callable[[Any], bool]


PROTOCOL_NAMES = ("validation", "paper", "last")
MOST = 10**15
"""No count of anything here is larger: a step of a nanosecond, repeated for eleven days."""


def is_count(value: Any, least: int = 0) -> bool:
    """Return whether a value is a whole number that can count steps, epochs or parameters."""
    return type(value) is int and least <= value <= MOST


def _has_length(train: Table) -> bool:
    if train.get("by_function") is True:  # it has the length that the function has
        return True
    length = train.get("steps") or train.get("epochs")
    return is_count(length, least=1) and is_count(train.get("batch_size"), least=1)


Count = Annotated[int, Rule("a whole number from 0 to 10^15", is_count)]
Time = Annotated[float, Rule("a number from 0 to 10^15", lambda value: 0 <= value <= MOST)]
Named = Annotated[Table, Rule("a table with a name", lambda table: type(table.get("name")) is str)]


class RunTable(TypedDict):
    """A run as an experiment that stands for this run alone: ``spec.toml`` of its folder."""

    seed: Annotated[int, Rule("a whole number from 0 to 2^32 - 1", lambda n: 0 <= n < 2**32)]
    protocol: Annotated[str, Rule("one of validation, paper, last", PROTOCOL_NAMES.__contains__)]
    task: Named
    optimizer: Named
    schedule: Named
    train: Annotated[Table, Rule("a table with batch_size, and epochs or steps", _has_length)]


class Seconds(TypedDict):
    """The time that a run has spent so far, by kind of work."""

    step: Time
    data: Time
    evaluation: Time


class EpochFigures(TypedDict):
    """The figures of one epoch; one entry for each split that was evaluated."""

    epoch: Count
    step: Count
    train: Figures
    validation: NotRequired[Figures]
    test: NotRequired[Figures]


class Row(EpochFigures):
    """A row of ``metrics.jsonl``: a reading between two steps, or the end of an epoch."""

    kind: Literal["train", "epoch"]
    lr: float
    seconds: Seconds


class FirstNonfinite(TypedDict):
    """The first number of a diverged run that was not finite."""

    what: Literal["input", "parameter", "loss", "metric"]
    name: str
    """Which of them: a part of the batch, the parameter's name, or the name in the log.

    Of a function that trains by itself only the metric is known.
    """
    step: Count
    """The step whose batch or loss it is, or after which the parameter was not finite."""


class Result(TypedDict):
    """The result of a run that is finished or diverged: ``result.json`` of its folder."""

    outcome: NotRequired[Literal["finished", "diverged"]]
    metric: str
    largest: bool
    unit: NotRequired[str]
    """Only if the task's metric declares one that its name does not imply."""
    last: NotRequired[EpochFigures]
    selected: NotRequired[EpochFigures]
    """The best epoch on validation data, under the protocol of that name."""
    best_on_test: NotRequired[EpochFigures]
    """The best epoch on test data, under the paper's protocol."""
    step: Count
    epoch: Count
    diverged_at_step: Count | None
    first_nonfinite: NotRequired[FirstNonfinite]
    """Only if the run diverged with a loss that is not finite."""
    seconds: Seconds
    parameters: Count
    examples: NotRequired[dict[str, Count]]
    """How many examples each split has, as far as the task says."""
    state_bytes: Count
    weights: str
    metrics: NotRequired[str]
    """The digest of the rows that belong to it."""


class Failure(TypedDict):
    """What a failed run says: ``failure.json`` of its folder."""

    error: str
    traceback: str
    place: NotRequired[str]
    """The line of code that the error comes from."""
    sources: NotRequired[dict[str, Any]]
    """Digests of the source of task and optimizer."""


class ProbeRow(TypedDict):
    """A row of ``probes.jsonl``; what else it has depends on the probe."""

    step: Count


Environments = list[dict[str, Any]]
"""The environment of each attempt, the latest last: ``environment.json``."""

FURTHER_TABLES: dict[Any, Any] = {EpochFigures: Figures, Row: Figures}
"""Records with tables under further keys, and their type: a task may have splits of its own."""


def divergence_in_words(result: Result) -> str:
    """Return at which step a run diverged, and what was not finite first if that is recorded."""
    step = result["diverged_at_step"] or 0
    first = result.get("first_nonfinite")
    if first is None:
        return f"at step {step:,}"
    reasons = {
        "input": f"its input, {first['name']}, is not finite",
        "parameter": f"the parameter {first['name']} was not finite after step {first['step']:,}",
        "loss": f"the {first['name']} was the first number that was not finite",
        "metric": f"its {first['name']} ended as a value that is not finite",
    }
    return f"at step {step:,}: {reasons[first['what']]}"


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
