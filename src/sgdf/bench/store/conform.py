"""Whether what a file holds is what the type of a record says.

The types of ``records.py`` are the rules. What passes can be used without further questions; for
everything else the message names the key and what it must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from functools import cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from .records import FURTHER_TABLES, Rule

T = TypeVar("T")
Check = Callable[[Any], Any]

DEEPEST = 20
"""Tables and lists within each other; more would be nobody's settings."""
LARGEST_INTEGER = 2**63 - 1
LONGEST_KEY = 60
"""Characters of a key in a message."""
LARGEST_NUMBER = 1e100
"""A larger figure counts as infinite: its mean and its square could not be computed."""
_WORDS = {
    dict: "a table",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "nothing",
}


class MismatchError(ValueError):
    """A value is not what a record has in its place."""

    def __init__(self, what: str, key: str = "") -> None:
        super().__init__(f"{key}: {what}" if key else what)
        self.what, self.key = what, key

    def within(self, key: str) -> MismatchError:
        """Return the same about a table that has this one under a key."""
        key = key[:LONGEST_KEY]
        return MismatchError(self.what, f"{key}.{self.key}" if self.key else key)


def conform(kind: type[T], value: Any) -> T:
    """Return a value as a record of this kind.

    Args:
        kind: a type that consists of ``TypedDict``, ``dict``, ``list``, ``Literal``, ``Annotated``
            with a rule, texts, numbers and truth values; ``Any`` is any value of TOML but a date
            or NaN.
        value: what JSON or TOML made of a file.

    Raises:
        MismatchError: names the key and what it must be.
    """
    return cast("T", _check(cast("Hashable", kind))(value))


@cache
def _check(hint: Any) -> Check:
    """Return the function that checks values of a type, and returns them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return _check_plain
    if hint is float:
        return _check_number
    if origin is NotRequired:
        return _check(arguments[0])
    if origin is Annotated:
        return _check_rule(_check(arguments[0]), arguments[1])
    if origin is Literal:
        return _check_rule(
            _check(str), Rule("one of " + ", ".join(arguments), arguments.__contains__)
        )
    if origin in (Union, UnionType):
        (rest,) = (one for one in arguments if one is not NoneType)
        return lambda value: None if value is None else _check(rest)(value)
    if origin is dict:
        return _check_table(_check(arguments[1]))
    if origin is list:
        return _check_list(_check(arguments[0]))
    if is_typeddict(hint):
        return _check_record(hint)
    return _check_type(hint)


def _refuse(value: Any, allowed: str) -> MismatchError:
    """Return the error about a value; its text is not part of it, for it may be anything."""
    return MismatchError(
        f"must be {allowed}, not {_WORDS.get(type(value), 'a ' + type(value).__name__)}"
    )


def _check_type(kind: type) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not kind:  # true and false are whole numbers too, but not meant as such
            raise _refuse(value, _WORDS[kind])
        return value

    return check


def _check_number(value: Any) -> float:
    if type(value) is float and -LARGEST_NUMBER <= value <= LARGEST_NUMBER:  # nearly always
        return value
    if type(value) not in (int, float):
        raise _refuse(value, "a number")
    if value > LARGEST_NUMBER or value < -LARGEST_NUMBER:
        return math.inf if value > 0 else -math.inf
    return float(value)


def _check_plain(value: Any, depth: int = DEEPEST) -> Any:
    """Return a value that a user may have written, or refuse it."""
    kind = type(value)
    if kind is str or kind is bool:
        return value
    if kind is float or kind is int:
        if value != value or (kind is int and abs(value) > LARGEST_INTEGER):
            raise MismatchError("must be a number of 64 bits")
        return value
    if not depth:
        raise MismatchError("is nested too deeply")
    if kind is list:
        return [_check_plain(item, depth - 1) for item in value]
    if kind is not dict:
        raise _refuse(value, "a text, a number, true or false, a list or a table")
    return _check_values(value, lambda inner: _check_plain(inner, depth - 1))


def _check_rule(check: Check, rule: Rule) -> Check:
    def check_both(value: Any) -> Any:
        value = check(value)
        if not rule.holds(value):
            raise MismatchError(f"must be {rule.allowed}")
        return value

    return check_both


def _check_list(check: Check) -> Check:
    def check_items(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _refuse(value, "a list")
        return [check(item) for item in value]

    return check_items


def _check_table(check: Check) -> Check:
    def check_values(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _refuse(value, "a table")
        return _check_values(value, check)

    return check_values


def _check_values(table: dict[str, Any], check: Check) -> dict[str, Any]:
    checked, key = {}, ""
    try:
        for key, inner in table.items():
            checked[key] = check(inner)
    except MismatchError as mismatch:
        raise mismatch.within(key) from None
    return checked


def _check_record(kind: Any) -> Check:
    hints = get_type_hints(kind, include_extras=True)
    checks = {name: _check(hint) for name, hint in hints.items()}
    required = {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}
    further = _check(FURTHER_TABLES[kind]) if kind in FURTHER_TABLES else None

    def check(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _refuse(value, "a table")
        missing = required - value.keys()
        if missing:
            raise MismatchError("missing", min(missing))
        checked, key = {}, ""
        try:
            for key, inner in value.items():
                own = checks.get(key) or (further if type(inner) is dict else None)
                checked[key] = own(inner) if own else inner
        except MismatchError as mismatch:
            raise mismatch.within(key) from None
        return checked

    return check
