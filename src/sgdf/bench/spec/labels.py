"""Short names of runs for people: only values in which the runs differ are named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Table = Mapping[str, Any]


def labels(tables: Mapping[str, Table]) -> dict[str, str]:
    """Return the name of each run by key, given the tables of all runs by key.

    >>> sgd = {"seed": 0, "task": {"name": "digits"}, "optimizer": {"name": "sgd", "lr": 0.1}}
    >>> labels({"a": sgd, "b": {**sgd, "optimizer": {"name": "sgd", "lr": 0.2}}})
    {'a': 'digits, sgd lr=0.1, seed 0', 'b': 'digits, sgd lr=0.2, seed 0'}
    """
    return {
        key: ", ".join([*settings_label(table, tables), f"seed {table['seed']}"])
        for key, table in tables.items()
    }


def settings_label(table: Table, tables: Mapping[str, Table]) -> list[str]:
    """Return the parts of a setting's name: task, optimizer, and what else differs among runs."""
    parts = [_part_label(table, tables, kind) for kind in ("task", "optimizer")]
    for kind in ("schedule", "train"):
        differing = _differing(table, list(tables.values()), kind)
        parts += [f"{kind}.{key}={value}" for key, value in differing.items()]
    if len({other.get("protocol") for other in tables.values()}) > 1:
        parts.append(f"{table['protocol']} protocol")
    return parts


def order(table: Table) -> list[tuple[int, float, str]]:
    """Return a key to sort settings by: the task, the optimizer and its options, then the rest."""
    parts = [table["task"], table["optimizer"], table["schedule"], table["train"]]
    values = (value for part in parts for _, value in sorted(part.items(), key=_name_first))
    return [
        (0, value, "") if type(value) in (int, float) else (1, 0, str(value)) for value in values
    ]


def setting_text(options: Table) -> str:
    """Return options as one line.

    >>> setting_text({"lr": 0.1, "nesterov": True})
    'lr=0.1 nesterov=True'
    """
    return " ".join(f"{option}={value}" for option, value in options.items())


def _name_first(item: tuple[str, Any]) -> tuple[bool, str]:
    return item[0] != "name", item[0]


def _part_label(table: Table, tables: Mapping[str, Table], kind: str) -> str:
    """Return the name of a run's task or optimizer, and the options in which others differ."""
    name = table[kind]["name"]
    alike = [other for other in tables.values() if other[kind]["name"] == name]
    options = [f"{key}={_text(value)}" for key, value in _differing(table, alike, kind).items()]
    return " ".join([name, *options])


def _differing(table: Table, others: list[Table], kind: str) -> dict[str, Any]:
    """Return the values of a run's part, ``"train"`` for example, that not all others have."""
    return {
        key: value
        for key, value in table.get(kind, {}).items()
        if any(other.get(kind, {}).get(key) != value for other in others)
    }


def _text(value: Any) -> str:
    return str(value[0]) if isinstance(value, list) and len(value) == 1 else str(value)
