"""What the paper sets each optimizer to, and where one is searched: settings.toml."""

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
    """Return an optimizer's options in the paper, as its class takes them, by task.

    >>> published_settings("sgd")["vit"]
    {'lr': 0.03, 'momentum': 0.9, 'weight_decay': 0.0}
    """
    return {
        task: _as_taken(name, table["optimizers"][name])
        for table in _document()["setting"]
        for task in table["tasks"]
        if name in table["optimizers"]
    }


def search_space(name: str) -> dict[str, list[Any]]:
    """Return what the paper searched for an optimizer: each option with the values tried.

    >>> search_space("sgdf")
    {'lr': [10.0, 1.0, 0.5, 0.1, 0.01, 0.001]}
    """
    found: dict[str, list[Any]] = {}
    for search in _document()["search"]:
        if name in search["optimizers"]:
            for values in itertools.product(*search["space"].values()):
                taken = _as_taken(name, dict(zip(search["space"], values, strict=True)))
                for key, value in taken.items():
                    own = found.setdefault(key, [])
                    if value not in own:
                        own.append(value)
    return found


def search_grid(name: str) -> dict[str, list[Any]]:
    """Return the grid to search an optimizer on: the paper's, or else the rates of one like it.

    Empty for optimizers that are not bundled.

    >>> search_grid("sign-sgdf")
    {'lr': [0.001, 0.0001, 1e-05]}
    """
    like: dict[str, str] = _document()["like"]
    return {"lr": search_space(like[name])["lr"]} if name in like else search_space(name)


def rate_range(name: str) -> tuple[float, float] | None:
    """Return the lowest and highest rate for a sampler to draw; None if it is not bundled.

    >>> rate_range("sgdf")
    (0.01, 100.0)
    """
    found = [table["range"] for table in _document()["rates"] if name in table["optimizers"]]
    return (found[0][0], found[0][1]) if found else None


def _as_taken(name: str, printed: Mapping[str, float]) -> Options:
    """Return what a table gives an optimizer in the words of its class."""
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
        elif key == "beta1" and "momentum" in optimizer_preset(
            name
        ):  # not RMSprop's, another thing
            options["momentum"] = value
    return options
