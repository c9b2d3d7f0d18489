"""Tables for the terminal: the tasks, optimizers and experiments that come with the package."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...bench.catalog.lookup import required
from ...bench.catalog.optimizers import (
    OPTIMIZERS,
    find_optimizer,
    optimizer_options,
    optimizer_preset,
)
from ...bench.errors import SpecError, suggestion
from ...bench.paper.settings import published_settings, search_space, searched_tasks
from ...bench.spec.bundled import bundled_experiments, bundled_searches
from ...bench.spec.document import load_document, parts_of
from ...bench.spec.grid import as_list, grid_size
from ...bench.tasks import TASKS
from ...present.terminal import Column, Table

NO_GRID = ("name", "about", "probe")
"""Keys of an experiment whose lists stand for no more runs."""


def task_table() -> Table:
    """Return the bundled tasks."""
    from ...bench.tasks import find_task  # which needs torch

    explained = "To see one with its options: sgdf tasks NAME"
    columns = (Column("task"), Column("what it trains", prose=True), Column("options", rank=2))
    result = Table(columns, caption=explained)
    for name in TASKS:
        task = find_task(name)
        result.add_row(name, _first_line(task), _options(task))
    return result


def optimizer_table() -> Table:
    """Return the bundled optimizers."""
    columns = (
        Column("optimizer"),
        Column("what it is", prose=True),
        Column("class", rank=3),
        Column("set beside its defaults", rank=2),
    )
    result = Table(columns, caption="To see all options of one: sgdf optimizers NAME")
    for name, entry in OPTIMIZERS.items():
        extra = ", ".join(f"{key}={value}" for key, value in entry.options.items())
        result.add_row(name, entry.about, entry.path, extra)
    return result


def experiment_table() -> Table:
    """Return the bundled experiments."""
    columns = (
        Column("experiment"),
        Column("what it compares", prose=True),
        Column("runs", "right"),
    )
    result = Table(columns, caption="To see the file of one: sgdf experiments NAME")
    for name in bundled_experiments():
        document = load_document(name)
        result.add_row(name, document["about"], str(count_runs(document)))
    for name in bundled_searches():
        document = load_document(name)
        result.add_row(name, document["about"], f"{document['search']['trials']} trials each")
    return result


def count_runs(document: Mapping[str, Any]) -> int:
    """Return how many runs an experiment stands for, without building them or importing torch."""
    rest = {key: document[key] for key in document if key not in NO_GRID}
    return sum(grid_size(_without_search(part)) for part in parts_of(rest).values())


def _without_search(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of an experiment without what is for ``sgdf tune`` alone."""
    optimizers = [
        {key: value for key, value in table.items() if key != "search"}
        for table in as_list(part["optimizer"])
    ]
    return {**part, "optimizer": optimizers}


def task_help(name: str) -> str:
    """Return the documentation of a task and its options."""
    from ...bench.tasks import find_task  # which needs torch

    task = find_task(name)
    text = inspect.cleandoc(task.__doc__ or "")
    maker = next(one for one in task.__mro__ if "__init__" in vars(one))
    explained = inspect.cleandoc(maker.__doc__ or "")
    if "\nArgs:" not in text and "\nArgs:" in explained:  # the constructor is a base class's
        text += "\n\n" + explained[explained.find("\nArgs:") + 1 :]
    return f"{name}({_options(task)})\n\n{text}"


def optimizer_help(name: str) -> str:
    """Return an optimizer's options as a spec has them."""
    needed = [key for key in required(find_optimizer(name)) if key not in optimizer_preset(name)]
    options = optimizer_options(name, dict.fromkeys(needed, 0.0))
    lines = [
        f"# {key} has no default" if key in needed else f"{key} = {_toml(value)}"
        for key, value in options.items()
    ]
    lines += _in_the_paper(name)
    return "\n".join(["[[optimizer]]", f'name = "{name}"', *lines])


def _in_the_paper(name: str) -> list[str]:
    """Return what the paper sets and searched for an optimizer, as comments of a spec."""
    lines = []
    settings = published_settings(name)
    if settings:
        lines += ["", "# In the paper, by task:"]
    for task, options in settings.items():
        values = (f"{key} = {_toml(value)}" for key, value in options.items())
        lines.append(f"# {task}: {', '.join(values)}")
    for task in ("", *searched_tasks(name)):
        if searched := search_space(name, task):
            lines += ["", f"# What the paper searched{task and f' for {task}'}:"]
        for key, tried in searched.items():
            # A tuple is a list within a list already.
            items = (_toml(i)[1:-1] if isinstance(i, tuple) else _toml(i) for i in tried)
            lines.append(f"# {key} = [{', '.join(items)}]")
    return lines


def experiment_text(name: str) -> str:
    """Return a bundled experiment's file."""
    bundled = {**bundled_experiments(), **bundled_searches()}
    if name not in bundled:
        raise SpecError(
            f"no such experiment; allowed: {', '.join(bundled)}{suggestion(name, bundled)}"
        )
    return Path(bundled[name]).read_text(encoding="utf-8")


def _first_line(target: Callable[..., Any]) -> str:
    return (inspect.getdoc(target) or "").partition("\n")[0]


def _options(target: Callable[..., Any]) -> str:
    parameters = inspect.signature(target).parameters.values()
    return ", ".join(
        p.name if p.default is p.empty else f"{p.name}={getattr(p.default, '__name__', p.default)}"
        for p in parameters
    )


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[[{', '.join(map(_toml, value))}]]"
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
