"""The results printed in the paper: published.toml as objects."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Published:
    """One column of a table of the paper: what optimizers came to on one problem.

    Attributes:
        label: the table's label in the paper.
        name: the column's.
        about: what the table shows.
        metric: what the numbers are.
        unit: theirs.
        seeds: those of each number, where they are given.
        runs: how many there were of each, where that is known.
        task: what the ``[task]`` of such a run would hold.
        train: its settings at full size, as far as they are given.
        note: what else one should know.
        values: mean, and standard deviation where there is one, by the paper's name.
        optimizers: our name of each of the paper's.
        quoted: whose numbers those are that the paper took from elsewhere.
    """

    label: str
    name: str
    about: str
    metric: str
    unit: str
    seeds: tuple[int, ...]
    runs: int | None
    task: Mapping[str, Any]
    train: Mapping[str, Any]
    note: str
    values: Mapping[str, tuple[float, ...]]
    optimizers: Mapping[str, str]
    quoted: Mapping[str, str]


@cache
def published() -> tuple[Published, ...]:
    """Return all columns of all results tables."""
    text = resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    return tuple(
        _column({**table, **column, "about": table["about"]}, document["optimizers"])
        for table in document["table"]
        for column in table["column"]
    )


def column(label: str, name: str) -> Published:
    """Return one column of one table."""
    (found,) = (one for one in published() if (one.label, one.name) == (label, name))
    return found


def _column(entry: Mapping[str, Any], optimizers: Mapping[str, str]) -> Published:
    names = {**optimizers, **entry.get("names", {})}
    return Published(
        label=entry["label"],
        name=entry["name"],
        about=entry["about"],
        metric=entry["metric"],
        unit=entry["unit"],
        seeds=tuple(entry["seeds"]),
        runs=entry.get("runs") or len(entry["seeds"]) or None,
        task=entry.get("task", {}),
        train=entry["train"],
        note=entry.get("note", ""),
        values={name: tuple(value) for name, value in entry["values"].items()},
        optimizers={name: names[name] for name in entry["values"]},
        quoted=entry.get("quoted", {}),
    )
