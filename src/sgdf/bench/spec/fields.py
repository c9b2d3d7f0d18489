"""Tables of an experiment as dataclasses, each value checked by a rule of its field."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

from ..errors import SpecError, suggestion
from ..store.records import Table

T = TypeVar("T")


def rule(default: Any, allowed: str, check: Callable[[Any], bool]) -> Any:
    """Return a field whose value must pass a check; ``allowed`` describes the check in words."""
    return dataclasses.field(default=default, metadata={"allowed": allowed, "check": check})


def whole(default: int, least: int = 1) -> Any:
    """Return a field for a whole number."""
    return rule(default, f"a whole number of at least {least}", lambda value: value >= least)


def choice(default: str, allowed: tuple[str, ...]) -> Any:
    """Return a field for one of several words."""
    return rule(default, "one of " + ", ".join(allowed), lambda value: value in allowed)


def read_table(kind: type[T], table: Table, where: str, **rest: Any) -> T:
    """Return the dataclass made of a table, each value checked by its type and rule."""
    hints = get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.metadata or hints[f.name] is bool}  # type: ignore[arg-type]  # every kind is a dataclass
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise SpecError(unknown_key(key, value, tuple(fields), f"{where}."))
        own, wanted = fields[key].metadata, hints[key]
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not wanted or (own and not own["check"](value)):
            allowed = own["allowed"] if own else "true or false"
            raise SpecError(f"{where}.{key} = {value!r}: must be {allowed}")
        values[key] = value
    return kind(**values, **rest)


def unknown_key(key: str, value: Any, allowed: tuple[str, ...], where: str = "") -> str:
    """Return the error message for an unknown key."""
    hint = suggestion(key, allowed)
    return f"{where}{key} = {value!r}: no such key; allowed: {', '.join(allowed)}{hint}"
