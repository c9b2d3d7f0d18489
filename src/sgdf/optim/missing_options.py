"""Options of torch's optimizers that ours do not have: refused, with what to write instead.

Most people who change one line keep the rest of it. Python would only say that ``momentum`` is
unexpected, and torch would accept it in a group and ignore it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

Arguments = ParamSpec("Arguments")

MISSING = ("momentum", "dampening", "nesterov", "amsgrad")


def advice(optimizer_class: Any, options: Mapping[str, Any]) -> str:
    """Return what to write instead of options that the class does not have; "" if it has all.

    Args:
        optimizer_class: the class that the options are given to; if it is not one of this
            package, there is no advice.
        options: all options, so that the advice can compute with those that are given.
    """
    if options.keys().isdisjoint(MISSING) or not hasattr(optimizer_class, "_instead_of"):
        return ""
    known = inspect.signature(optimizer_class).parameters  # a subclass may have options of its own
    names = [name for name in MISSING if name in options and name not in known]
    if not names:
        return ""
    # A default is not SGD's, so nothing is computed from it.
    given = {
        name: value
        for name, value in options.items()
        if name not in known or number(value) is None or number(value) != known[name].default
    }
    instead = optimizer_class._instead_of(given)
    return f"{optimizer_class.__name__} has no {' and no '.join(names)}: {instead}"


def advises(
    constructor: Callable[Concatenate[Any, Arguments], None],
) -> Callable[Concatenate[Any, Arguments], None]:
    """Return the constructor with advice in its error about a missing option.

    The options need not be named in the signature for that.
    """
    names = list(inspect.signature(constructor).parameters)[1:]

    @functools.wraps(constructor)
    def construct(self: Any, /, *args: Arguments.args, **options: Arguments.kwargs) -> None:
        if not options.keys().isdisjoint(MISSING):
            positional = dict(zip(names, args, strict=False))
            if text := advice(type(self), {**positional, **options}):
                raise TypeError(text)
        constructor(self, *args, **options)

    return construct


def without_switched_off(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options without those that are missing here and switched off.

    The groups of torch's optimizers have all options. Momentum stays, also if it is 0: what
    replaces it has another value then.
    """
    return {
        name: value
        for name, value in options.items()
        if name == "momentum" or name not in MISSING or value
    }


def number(value: Any) -> float | None:
    """Return an option as a number, or None if it is none: the advice then does without it."""
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None  # RuntimeError: a tensor of several elements


def dampening_fault(options: Mapping[str, Any]) -> str:
    """Return why nothing here stands for SGD with this dampening; "" if something does.

    Without momentum SGD ignores its dampening.
    """
    momentum, dampening = number(options["momentum"]), number(options.get("dampening"))
    if momentum == 0.0 or dampening is None or dampening < 1.0:
        return ""
    return (
        f"SGD with dampening={options['dampening']} does not descend, so nothing here stands for "
        "it: dampening has to be below 1"
    )


def show_number(value: float) -> str:
    """Return a number as code, without the last digits, in which 0.1 / (1 - 0.9) is not 1."""
    return repr(float(f"{value:.6g}"))
