"""What a function depends on, as a text: its code, and the values that it carries along."""

from __future__ import annotations

import functools
import hashlib
import pickle
from types import CodeType, FunctionType
from typing import Any


def function_text(value: Any) -> str:
    """Return a text that differs for functions that do different things.

    It has the qualified name and the instructions, default values and variables of outer functions.
    Of the global names that a function uses it has the names alone. The text may also differ for
    functions that do the same, as under another version of Python.

    Args:
        value: a function, anything else that can be called, or a value that one carries along.

    >>> function_text(lambda number: number + 1) == function_text(lambda number: number + 2)
    False
    """
    if isinstance(value, FunctionType):
        outer = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [value.__code__, value.__defaults__, value.__kwdefaults__, outer]
        return f"{value.__module__}.{value.__qualname__} {function_text(parts)}"
    if isinstance(value, functools.partial):
        return f"partial {function_text([value.func, value.args, value.keywords])}"
    if isinstance(value, CodeType):
        return f"{value.co_code.hex()} {value.co_names} {function_text(value.co_consts)}"
    if isinstance(value, tuple | list):
        return str([function_text(part) for part in value])
    if isinstance(value, frozenset):  # its order would depend on the process
        return str(sorted(map(function_text, value)))
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # which depends on what the value consists of
        return f"{type(value).__module__}.{type(value).__qualname__}"
