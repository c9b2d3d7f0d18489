"""Published results of the paper's tables and figures, read from published.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Published:
    """One column of a table or figure of the paper: the results of optimizers on one problem.

    Attributes:
        label: the table's label in the paper.
        name: the column's name.
        about: what the table shows.
        metric: the metric of the numbers.
        unit: the unit of the numbers.
        larger_is_better: whether a larger value of the metric is better.
        seeds: the seeds of each number, where the paper gives them.
        runs: the number of runs behind each number, where it is known.
        task: the ``[task]`` that such a run would have.
        train: the ``[train]`` at full size, as far as the paper gives it.
        note: remarks on the numbers.
        values: mean, and standard deviation where there is one, by the paper's optimizer name.
        optimizers: the name in an experiment, by the paper's optimizer name.
        quoted: the source of numbers that the table quotes, by the paper's optimizer name.
        source: where the numbers are from, if the paper does not print them.
        free: the options of the task that change no result, such as names of folders.
        only_with: by option of the task, the values without which numbers cannot be compared.
        settings: the ``train`` and ``optimizer`` options of single optimizers, in place of
            ``train`` and of the paper's settings, by the paper's optimizer name.
    """

    label: str
    name: str
    about: str
    metric: str
    unit: str
    larger_is_better: bool
    seeds: tuple[int, ...]
    runs: int | None
    task: Mapping[str, Any]
    train: Mapping[str, Any]
    note: str
    values: Mapping[str, tuple[float, ...]]
    optimizers: Mapping[str, str]
    quoted: Mapping[str, str]
    source: str = ""
    free: tuple[str, ...] = ()
    only_with: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)


@cache
def published() -> tuple[Published, ...]:
    """Return all columns of all results tables."""
    text = resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    return tuple(
        _column(table, column, document["optimizers"])
        for table in document["table"]
        for column in table["column"]
    )


def column(label: str, name: str) -> Published:
    """Return one column of one table."""
    (match,) = (one for one in published() if (one.label, one.name) == (label, name))
    return match


def _column(
    table: Mapping[str, Any], column: Mapping[str, Any], optimizers: Mapping[str, str]
) -> Published:
    entry = {**table, **column}
    names = {**optimizers, **entry.get("names", {})}
    return Published(
        label=entry["label"],
        name=entry["name"],
        about=entry["about"],
        metric=entry["metric"],
        unit=entry["unit"],
        larger_is_better=entry["larger_is_better"],
        seeds=tuple(entry["seeds"]),
        runs=entry.get("runs") or len(entry["seeds"]) or None,
        task=entry.get("task", {}),
        train=entry["train"],
        note=entry.get("note", ""),
        values={name: tuple(value) for name, value in entry["values"].items()},
        optimizers={name: names[name] for name in entry["values"]},
        quoted=entry.get("quoted", {}),
        source=entry.get("source", ""),
        free=tuple(entry.get("free", ())),
        only_with={key: tuple(values) for key, values in entry.get("only_with", {}).items()},
        settings={**table.get("settings", {}), **column.get("settings", {})},
    )
