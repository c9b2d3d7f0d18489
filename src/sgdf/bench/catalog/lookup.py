"""Find the Python object that a spec names, and the keyword arguments it takes."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import SpecError, suggestion

PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
"""``package.module:attribute``"""


def check_name(name: str, bundled: Mapping[str, str], kind: str) -> str:
    """Return the import path of a bundled name, or the name if it is one itself.

    Nothing is imported.

    Raises:
        SpecError: if it is neither.
    """
    path = bundled.get(name, name)
    if not PATH.fullmatch(path):
        raise SpecError(
            f"no such {kind}; allowed: {', '.join(bundled)}, or an importable Python object as "
            f'"package.module:Name"{suggestion(name, bundled)}'
        )
    return path


def find(name: str, bundled: Mapping[str, str], kind: str) -> Callable[..., Any]:
    """Return the object that a bundled name or ``package.module:attribute`` stands for.

    Raises:
        SpecError: if there is no such object.
    """
    module, _, attributes = check_name(name, bundled, kind).partition(":")
    found: Any = None
    try:
        found = importlib.import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except AttributeError as error:
        hint = suggestion(attribute, vars(found)) if hasattr(found, "__dict__") else ""
        raise SpecError(f"cannot import this {kind}: {error}{hint}") from error
    except ImportError as error:
        beside = (path.stem for place in sys.path for path in Path(place or ".").glob("*.py"))
        hint = suggestion(module, beside) if getattr(error, "name", None) == module else ""
        raise SpecError(f"cannot import this {kind}: {error}{hint}") from error
    except Exception as error:  # whatever a user's module raises while it is imported
        raise SpecError(f"importing this {kind} raised {type(error).__name__}: {error}") from error
    if not callable(found):
        raise SpecError(f"this {kind} is a {type(found).__name__}, not a class or function")
    return found  # type: ignore[no-any-return]  # any callable will do


def options_of(
    target: Callable[..., Any], given: Mapping[str, Any], skip: int = 0, grid: bool = True
) -> dict[str, Any]:
    """Return all keyword arguments that calling ``target`` with ``given`` amounts to.

    Defaults that a TOML file cannot hold (None, functions, tensors) are left out.

    Args:
        target: a class or function.
        given: the arguments that the spec gives.
        skip: how many leading parameters are not the spec's to give.
        grid: whether a list of values stands for several runs.

    Raises:
        SpecError: if an argument is unknown, missing, or not of its default's type.
    """
    try:
        parameters = list(signature(target).parameters.values())[skip:]
    except ValueError as error:  # some classes of the interpreter's own
        raise SpecError(f"has no signature that says what it takes: {error}") from error
    known = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if takes_any and inspect.isclass(target):
        # **kwargs is usually passed to the base class, so the names of its arguments are accepted
        # too; any other name would be ignored in silence.
        for base in target.__mro__[1:]:
            constructor = vars(base).get("__init__", object.__init__)
            inherited = list(signature(constructor).parameters.values())[skip + 1 :]
            known = {p.name: p for p in inherited if p.default is not p.empty} | known
        takes_any = False
    options = {
        name: _fitted(name, p.default, p.default, p, grid)
        for name, p in known.items()
        if _is_plain(p.default)
    }
    for name, value in given.items():
        if name not in known and not takes_any:
            allowed = ", ".join(known) or "nothing"
            raise SpecError(
                f"{name} = {value!r}: no such option; allowed: {allowed}{suggestion(name, known)}"
            )
        options[name] = _fitted(name, value, options.get(name), known.get(name), grid)
    missing = [name for name in required(target, skip) if name not in given]
    if missing:
        raise SpecError(f"{', '.join(missing)}: missing, and without a default")
    return options


def signature(target: Callable[..., Any]) -> inspect.Signature:
    """Return the parameters of a class or function, which take a while to find out."""
    return _signature(target, getattr(target, "__init__", None))


@lru_cache
def _signature(target: Callable[..., Any], constructor: object) -> inspect.Signature:
    """Return a signature that is remembered for as long as a class has the same constructor."""
    return inspect.signature(target)


def required(target: Callable[..., Any], skip: int = 1) -> list[str]:
    """Return the keyword arguments of ``target`` that have no default."""
    parameters = list(signature(target).parameters.values())[skip:]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in kinds and p.default is p.empty]


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return isinstance(value, bool | int | float | str)


def _fitted(
    name: str, value: Any, default: Any, parameter: inspect.Parameter | None, grid: bool
) -> Any:
    """Return the value in its default's type: 1 for a float is 1.0, a list for a tuple a tuple."""
    if isinstance(default, tuple):
        if not isinstance(value, list | tuple):
            example = f"[{', '.join(map(repr, default))}]"
            hint = (
                f"; a list is a grid, so write them in a list of their own: {name} = [{example}]"
                if grid
                else f", as in {name} = {example}"
            )
            raise SpecError(f"{name} = {value!r}: takes several values at once{hint}")
        return tuple(value)
    wanted = type(default)
    is_float = parameter is not None and "float" in str(parameter.annotation)
    if is_float and (wanted is int or type(value) is int):
        wanted = float  # as in torch's ``momentum: float = 0``
    allowed, word = _PLAIN.get(wanted, ((type(value),), ""))
    if type(value) not in allowed:
        raise SpecError(f"{name} = {value!r}: must be {word}")
    return float(value) if wanted is float else value


_PLAIN: dict[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a string"),
}


def importable_from(folder: Path) -> None:
    """Make the modules in a user's folder importable, after everything that is installed."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def name_object(target: Any, kind: str) -> str:
    """Return the name by which an experiment finds a class or function: ``module:Name``.

    What a script defines is named by the script's file, so that other processes can import it.
    What a notebook defines is in ``__main__``, where only this process finds it.

    Raises:
        SpecError: if it is defined inside a function, where nothing could find it again.
    """
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not module or not name or "<" in name:
        raise SpecError(
            f"this {kind}, {target!r}, cannot be found by its name; define it with def or class at "
            "the top level of a script, module or notebook"
        )
    if module == "__main__":
        module = _name_script()
    parts = module.split(".")
    packages = (".".join(parts[: i + 1]) for i in range(len(parts)))
    # The shortest way to it, as people write it: torch.optim:NAdam, not torch.optim.nadam:NAdam.
    shown = (p for p in packages if getattr(sys.modules.get(p), name, None) is target)
    path = f"{next(shown, module)}:{name}"
    if find(path, {}, kind) is not target:
        raise SpecError(f"this {kind}: another object is at {path} by now")
    return path


def _name_script() -> str:
    """Return the name under which the script that runs can be imported, else ``__main__``."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)  # of a module that was started with python -m
    if spec is not None and spec.name != "__main__" and not spec.name.endswith(".__main__"):
        sys.modules.setdefault(spec.name, main)
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None:
        return "__main__"
    path = Path(file).absolute()
    importable_from(path.parent)
    if not PATH.fullmatch(f"{path.stem}:x"):
        return "__main__"
    spec = importlib.util.find_spec(path.stem) if path.stem not in sys.modules else None
    if spec is not None and spec.origin and Path(spec.origin).absolute() == path:
        sys.modules[path.stem] = main  # else the script would run a second time to be imported
    return path.stem if sys.modules.get(path.stem) is main else "__main__"
