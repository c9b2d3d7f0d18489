"""The options that the paper gives each optimizer, and the values to search: settings.toml."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from ..catalog.optimizers import optimizer_options, optimizer_preset

Options = dict[str, Any]


@cache
def _document() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("settings.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def published_settings(name: str) -> dict[str, Options]:
    """Return an optimizer's options in the paper by task, under the names that its class uses.

    >>> published_settings("sgd")["vit"]
    {'lr': 0.03, 'momentum': 0.9, 'weight_decay': 0.0}
    """
    return {
        task: _class_options(name, table["optimizers"][name])
        for table in _document()["setting"]
        for task in table["tasks"]
        if name in table["optimizers"]
    }


def search_space(name: str, task: str = "") -> dict[str, list[Any]]:
    """Return the values that the paper tried for each option of an optimizer.

    Args:
        name: the optimizer.
        task: the task that they were tried for alone; without it, those for all other tasks.

    >>> search_space("sgdf")
    {'lr': [10.0, 1.0, 0.5, 0.1, 0.01, 0.001]}
    >>> search_space("sgd", "vit")
    {'lr': [0.03, 0.01, 0.003, 0.001]}
    """
    space: dict[str, list[Any]] = {}
    for search in _document()["search"]:
        if name in search["optimizers"] and task == search.get("task", ""):
            for values in itertools.product(*search["space"].values()):
                printed = dict(zip(search["space"], values, strict=True))
                for key, value in _class_options(name, printed).items():
                    tried = space.setdefault(key, [])
                    if value not in tried:
                        tried.append(value)
    return space


def searched_tasks(name: str) -> list[str]:
    """Return the tasks for which the paper searched an optimizer in a space of its own."""
    searches = [search for search in _document()["search"] if name in search["optimizers"]]
    return [search["task"] for search in searches if "task" in search]


def search_grid(name: str) -> dict[str, list[Any]]:
    """Return the grid on which an optimizer is searched.

    It is the paper's grid, or else the learning rates of a similar optimizer; it is empty for
    optimizers that are not bundled.

    >>> search_grid("sign-sgdf")
    {'lr': [0.001, 0.0001, 1e-05]}
    """
    like: dict[str, str] = _document()["like"]
    return {"lr": search_space(like[name])["lr"]} if name in like else search_space(name)


def rate_range(name: str) -> tuple[float, float] | None:
    """Return the lowest and highest learning rate to sample; None if it is not bundled.

    >>> rate_range("sgdf")
    (0.01, 100.0)
    """
    ranges = [table["range"] for table in _document()["rates"] if name in table["optimizers"]]
    return (ranges[0][0], ranges[0][1]) if ranges else None


def _class_options(name: str, printed: Mapping[str, float]) -> Options:
    """Return the options that a table prints, under the names that the optimizer's class uses."""
    known = optimizer_options(name, {"lr": 1.0})
    options: Options = {}
    for key, value in printed.items():
        if key in known:
            options[key] = value
        elif key in ("beta1", "beta2") and "betas" in known:
            betas = options.get("betas", known["betas"])
            options["betas"] = (value, betas[1]) if key == "beta1" else (betas[0], value)
        elif key == "beta1" and "beta" in known:
            options["beta"] = value
        # The momentum of RMSprop, which is not preset, is not a decay rate like beta1.
        elif key == "beta1" and "momentum" in optimizer_preset(name):
            options["momentum"] = value
    return options
