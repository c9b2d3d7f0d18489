"""Short names of runs for people: only values in which the runs differ are named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Table = Mapping[str, Any]


class Labels:
    """The names of runs among all runs that are shown together.

    What differs is found once, in one pass over all tables.

    Args:
        tables: the tables of all runs.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self._firsts: dict[tuple[str, str], Table] = {}
        self._differing: dict[tuple[str, str], set[str]] = {}
        self._protocols: set[Any] = set()
        for table in tables:
            self._protocols.add(table.get("protocol"))
            for kind in ("task", "optimizer"):  # held against others of the same name
                self._compare((kind, table[kind]["name"]), table[kind])
            for kind in ("schedule", "train"):
                self._compare((kind, ""), table.get(kind, {}))

    def _compare(self, group: tuple[str, str], part: Table) -> None:
        """Note in which keys a part of a table differs from the first of its group."""
        first = self._firsts.setdefault(group, part)
        if part is first and group in self._differing:
            return  # runs of a grid share most parts
        self._differing.setdefault(group, set()).update(
            key for key in {**first, **part} if part.get(key) != first.get(key)
        )

    def setting(self, table: Table) -> list[str]:
        """Return the parts of a setting's name: task, optimizer, and what else differs."""
        parts = []
        for kind in ("task", "optimizer"):
            name = table[kind]["name"]
            options = self._differing_items((kind, name), table[kind])
            parts.append(" ".join([name, *(f"{key}={_text(value)}" for key, value in options)]))
        for kind in ("schedule", "train"):
            options = self._differing_items((kind, ""), table.get(kind, {}))
            parts += [f"{kind}.{key}={value}" for key, value in options]
        if len(self._protocols) > 1:
            parts.append(f"{table['protocol']} protocol")
        return parts

    def _differing_items(self, group: tuple[str, str], part: Table) -> list[tuple[str, Any]]:
        differing = self._differing[group]
        return [item for item in part.items() if item[0] in differing] if differing else []

    def run(self, table: Table) -> str:
        """Return the name of a run: that of its setting, and its seed."""
        return ", ".join([*self.setting(table), f"seed {table['seed']}"])


def labels(tables: Mapping[str, Table]) -> dict[str, str]:
    """Return the name of each run by key, given the tables of all runs by key.

    >>> sgd = {"seed": 0, "task": {"name": "digits"}, "optimizer": {"name": "sgd", "lr": 0.1}}
    >>> labels({"a": sgd, "b": {**sgd, "optimizer": {"name": "sgd", "lr": 0.2}}})
    {'a': 'digits, sgd lr=0.1, seed 0', 'b': 'digits, sgd lr=0.2, seed 0'}
    """
    names = Labels(tables.values())
    return {key: names.run(table) for key, table in tables.items()}


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


def _text(value: Any) -> str:
    return str(value[0]) if isinstance(value, list) and len(value) == 1 else str(value)
