"""A digest of what a training function does: its code, and what it uses of its own module.

The file that defines the function is no measure of that. A script also has the call that compares,
where another optimizer changes nothing about the training; and a notebook has no file.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from ..store.identity import digest


def function_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function, of the functions and classes that it uses, and of constants.

    What it imports from other modules is not part of it. It is empty for other callables.
    """
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType):
        return ""
    return digest("\n".join(_describe(plain, set())).encode())


def _describe(target: Any, seen: set[int]) -> Iterator[str]:
    """Yield texts that change if a function or class, or what it uses of its module, changes."""
    if id(target) in seen:
        return
    seen.add(id(target))
    if isinstance(target, type):
        for name, member in sorted(vars(target).items()):
            inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
            if isinstance(inner, FunctionType):
                yield name
                yield from _describe(inner, seen)
            elif _is_plain(inner) and not name.startswith("__"):
                yield f"{name} = {inner!r}"
        for base in target.__bases__:
            if base.__module__ == target.__module__:
                yield from _describe(base, seen)
        return
    yield f"{_plain(target.__defaults__)} {_plain(target.__kwdefaults__)}"
    names: set[str] = set()
    yield from _describe_code(target.__code__, names)
    for name in sorted(names & target.__globals__.keys()):
        value = target.__globals__[name]
        if isinstance(value, FunctionType | type) and value.__module__ == target.__module__:
            yield name
            yield from _describe(value, seen)
        elif _is_plain(value) and not name.startswith("__"):
            yield f"{name} = {value!r}"


def _describe_code(code: CodeType, names: set[str]) -> Iterator[str]:
    """Yield the instructions and constants of code, and add the names that it looks up."""
    names.update(code.co_names)
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _describe_code(constant, names)
        else:
            yield _plain(constant)


def _plain(value: Any) -> str:
    """Return a text of a constant; that of a set would depend on the process."""
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)
