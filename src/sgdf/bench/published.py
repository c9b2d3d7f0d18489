"""The results printed in the paper: published.toml as objects."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from .grid import quoted
from .objects import options_of
from .optimizers import OPTIMIZERS, optimizer_options
from .settings import published_settings
from .tasks import TASKS, find_task


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

    def deviations(self, table: Mapping[str, Any]) -> list[str]:
        """Return in what the spec of a run is not what the paper says, in words.

        Options that the paper says nothing of have their defaults there.
        """
        own = table["task"]
        unsaid = {key: v for key, v in _full_size(self.task["name"]).items() if key in own}
        name = table["optimizer"]["name"]
        settings = published_settings(name).get(self.task["name"], {}) if name in OPTIMIZERS else {}
        options = quoted(optimizer_options(name, settings)) if settings else {}
        wanted = [
            (own, {**unsaid, **self.task}),
            (table["train"], self.train),
            (table["optimizer"], options),
        ]
        return [
            f"{key} {own.get(key, 'not set')} instead of {value}"
            for own, theirs in wanted
            for key, value in theirs.items()
            if own.get(key) != value
        ]


@cache
def published() -> tuple[Published, ...]:
    """Return all columns of all results tables."""
    text = resources.files("sgdf.bench").joinpath("published.toml").read_text(encoding="utf-8")
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


def _full_size(task: str) -> Mapping[str, Any]:
    """Return the options of a task that nothing else is said of; none if there is no such task."""
    return options_of(find_task(task), {}) if task in TASKS else {}


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
