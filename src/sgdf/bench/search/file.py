"""What the file of a search may say, and the search that it stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from ..catalog.optimizers import find_optimizer, optimizer_options
from ..errors import SpecError
from ..spec.fields import read_table, unknown_key
from ..spec.grid import as_list, grid, quoted
from ..spec.machine import automatic_device, resolve_machine
from ..spec.read import read
from ..store import files
from ..store.records import Table
from .search import Candidate, Method, Search
from .space import Choices, Range, Space, default_space, fill_grid, read_space
from .storage import absolute_url


def read_search(
    document: Table, *, threads: int = 1, anywhere: bool = False, **options: Any
) -> Search:
    """Return the search that a parsed TOML document describes.

    Args:
        document: an experiment, whose optimizers may have tables of what to search.
        threads: of a run, if the document does not say.
        anywhere: let runs train on devices that this machine has not.
        options: the attributes of a search that the document does not say.
    """
    document = dict(document)
    tables, table = document.pop("optimizer", None), document.pop("search", {})
    seeds = document.pop("seed", 0)
    seeds = tuple(as_list(seeds))
    if not seeds:
        raise SpecError("seed = []: needs an item at least")
    if not tables:
        raise SpecError("[optimizer]: missing")
    if document.get("protocol", "validation") != "validation":
        raise SpecError(
            'protocol = "paper": holds back no data to choose by; it must be "validation"'
        )
    problem, *others = grid(document)
    if others:
        raise SpecError(f"{_list_in(document)}: is a list, but a search is for one problem")
    method = _method(table, seeds)
    candidates = tuple(_candidates(tables, method))
    twice = {
        candidate.name
        for candidate in candidates
        if sum(candidate.name == other.name for other in candidates) > 1
    }
    if twice:
        raise SpecError(
            f"optimizer {', '.join(sorted(twice))}: is there more than once; what is to be tried "
            "of it belongs into one [optimizer.search]"
        )
    options["storage"] = absolute_url(options["storage"])
    search = Search(
        _on_this_machine(quoted(problem), threads), seeds, method, candidates, **options
    )
    _check(search, anywhere)
    return search


def select_optimizers(document: Table, names: Sequence[str]) -> Table:
    """Return a document with these optimizers, as it has them or else just by their name."""
    tables = document.get("optimizer", [])
    found: list[Table] = []
    for name in dict.fromkeys(names):
        own = [
            {**table, "name": name}
            for table in as_list(tables)
            if isinstance(table, dict) and name in _names(table)
        ]
        found += own or [{"name": name}]
    return {**document, "optimizer": found}


def rates_only(document: Table) -> Table:
    """Return a document in which nothing but learning rates is searched, and those in a range."""
    document = {**document, "search": {**document.get("search", {}), "sampler": "tpe"}}
    tables = document.get("optimizer", [])
    document["optimizer"] = [
        {**table, "search": {key: value for key, value in searched.items() if key == "lr"}}
        if isinstance(table, dict) and isinstance(searched := table.get("search"), dict)
        else table
        for table in as_list(tables)
    ]
    return document


def merge_with_record(search: Search) -> Search:
    """Return the search with the optimizers that the record in its store has besides.

    Raises:
        SpecError: if the record is of another search.
    """
    try:
        document = json.loads(files.read(search.store / "search.json"))["search"]
    except (ValueError, KeyError):  # no record yet
        return search
    here = search.document()
    told = {**document, "search": {**document["search"], "trials": search.method.trials}}
    for key in sorted((set(told) | set(here)) - {"optimizer", "about", "seed"}):
        for name, old, new in _differences(key, told.get(key), here.get(key)):
            raise SpecError(
                f"{search.store} holds a search with another {name}, {old!r} instead of {new!r}; "
                "--out another folder"
            )
    names = {candidate.name for candidate in search.candidates}
    others = [
        candidate
        for candidate in _candidates(document["optimizer"], search.method)
        if candidate.name not in names
    ]
    return replace(search, candidates=(*search.candidates, *others))


def _differences(key: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what differs, by dotted key."""
    if isinstance(old, dict) and isinstance(new, dict):
        for inner in sorted(set(old) | set(new)):
            yield from _differences(f"{key}.{inner}", old.get(inner), new.get(inner))
    elif old != new:
        yield key, old, new


def _list_in(document: Table) -> str:
    """Return the dotted key of a list that makes a document a grid."""
    for key, value in document.items():
        if isinstance(value, dict) and len(list(grid(value))) > 1:
            return f"{key}.{_list_in(value)}"
        if isinstance(value, list) and len(value) > 1:
            return key
    return ""


def _on_this_machine(problem: Table, threads: int) -> Table:
    """Return the problem with threads and device written down."""
    train = problem.get("train", {})
    if not isinstance(train, dict):
        raise SpecError(f"train = {train!r}: must be a table, [train]")
    told = train.get("device", "auto")
    device = automatic_device() if told == "auto" else told
    train = {**train, "threads": train.get("threads") or threads, "device": device}
    return {**problem, "train": train}


def _check(search: Search, anywhere: bool) -> None:
    """Find out whether what is to be tried can be, and whether all have as many epochs.

    Raises:
        SpecError: if an option is not known, or does not take one of the values.
    """
    epochs = {}
    for candidate in search.candidates:
        for option, tried in candidate.space.items():
            for value in tried.examples:
                others = {o: t.examples[0] for o, t in candidate.space.items()}
                runs = search.runs(candidate, {**others, option: value})
                epochs[candidate.name] = runs[0].train.epochs
    if len(set(epochs.values())) > 1:
        raise SpecError(f"train.epochs: must be the same for all optimizers, but is {epochs}")
    if not anywhere:
        resolve_machine(
            read({**search.problem, "optimizer": search.example.as_table()["optimizer"]}), 1
        )


def _method(table: Any, compared: tuple[int, ...]) -> Method:
    if not isinstance(table, dict):
        raise SpecError(f"search = {table!r}: must be a table, [search]")
    table = dict(table)
    allowed = (*(field.name for field in fields(Method)),)
    for key, value in table.items():
        if key not in allowed:
            raise SpecError(unknown_key(key, value, allowed, "search."))
    numbers = all(type(seed) is int for seed in compared)
    seeds = table.pop("seeds", [max(compared) + 1 if numbers else 0])
    whole = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise SpecError(f"search.seeds = {seeds!r}: must be a list of different whole numbers")
    if set(seeds) & set(compared):
        raise SpecError(
            f"search.seeds = {seeds!r}: must be none of those that are compared with, seed = "
            f"{list(compared)!r}"
        )
    return read_table(Method, table, "search", seeds=tuple(seeds))


def _candidates(tables: Any, method: Method) -> Iterator[Candidate]:
    """Yield the optimizers, what is set for options that are searched left out."""
    for table in as_list(tables):
        if not isinstance(table, dict):
            raise SpecError(f"optimizer = {table!r}: must be a table, [optimizer]")
        searched = table.get("search", {})
        if not isinstance(searched, dict):
            raise SpecError(f"optimizer.search = {searched!r}: must be a table, [optimizer.search]")
        for name in _names(table):
            if not isinstance(name, str):
                raise SpecError(f"optimizer.name = {name!r}: must be a string")
            try:
                find_optimizer(name)
                space = read_space(searched) if searched else default_space(name, method.sampler)
                if method.sampler == "grid":
                    space = fill_grid(space, method.trials)
                rest = {k: v for k, v in table.items() if k not in ("name", "search", *space)}
                fixed, *others = grid(rest)
                if others:
                    raise SpecError(f"{_list_in(rest)}: is a list; is it to be searched?")
                yield Candidate(name, {"name": name, **quoted(fixed)}, _fitted(name, fixed, space))
            except SpecError as error:
                raise SpecError(f"optimizer {name!r}: {error}") from error


def _names(table: Table) -> list[Any]:
    name = table.get("name")
    return as_list(name)


def _fitted(name: str, fixed: Table, space: Space) -> Space:
    """Return the space with numbers of the type that the options have: an lr from 1 is from 1.0."""
    examples = {option: tried.examples[0] for option, tried in space.items()}
    given = {key: value for key, value in fixed.items() if key != "train"}
    known = optimizer_options(name, {**given, **examples})

    def fit(option: str, tried: Range | Choices) -> Range | Choices:
        if isinstance(tried, Range) and isinstance(known[option], float):
            return replace(tried, low=float(tried.low), high=float(tried.high))
        return tried

    return {option: fit(option, tried) for option, tried in space.items()}
