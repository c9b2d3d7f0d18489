"""From the file of a search to the search: every rule about what the file may say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, TypedDict

from ..catalog.optimizers import find_optimizer, optimizer_options
from ..errors import DamagedError, SpecError, naming
from ..spec.fields import read_table, unknown_key
from ..spec.grid import as_list, grid, quote_lists
from ..spec.machine import automatic_device, resolve_machine
from ..spec.read import read
from ..store.record_files import read_record
from ..store.records import Table
from ..tasks import find_task
from .search import Candidate, Method, Search
from .space import Choices, Range, Space, default_space, fill_grid, read_space
from .storage import absolute_url


class _RecordedSearch(TypedDict):
    search: dict[str, Any]
    optimizer: list[dict[str, Any]]


class _SearchRecord(TypedDict):
    """What is read of ``search.json``, which has more."""

    search: _RecordedSearch


def read_search(
    document: Table, *, threads: int = 1, anywhere: bool = False, **options: Any
) -> Search:
    """Return the search that a parsed TOML document describes.

    Args:
        document: an experiment, whose optimizers may have tables of the values to search.
        threads: how many a run uses, unless the document sets it.
        anywhere: allow devices that this machine does not have.
        options: the attributes of ``Search`` that are not in the document.

    Raises:
        SpecError: with key, value and what is allowed, if anything is wrong.
    """
    document = dict(document)
    tables, method_table = document.pop("optimizer", None), document.pop("search", {})
    seeds = tuple(as_list(document.pop("seed", 0)))
    if not seeds:
        raise SpecError("seed = []: needs an item at least")
    if not tables:
        raise SpecError("[optimizer]: missing")
    if "probe" in document:
        raise SpecError("[[probe]]: is for sgdf run; a search records no probes")
    if document.get("protocol", "validation") != "validation":
        raise SpecError(
            f"protocol = {document['protocol']!r}: holds back no data to choose by; it must be "
            '"validation"'
        )
    problem, *others = grid(document)
    if others:
        raise SpecError(f"{_list_in(document)}: is a list, but a search is for one problem")
    method = _method(method_table, seeds)
    candidates = tuple(_candidates(tables, method))
    names = [candidate.name for candidate in candidates]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise SpecError(
            f"optimizer {', '.join(sorted(repeated))}: is there more than once; write all values "
            "to try for it into one [optimizer.search]"
        )
    options["storage"] = absolute_url(options["storage"])
    problem = _with_machine(quote_lists(problem), threads)
    search = Search(problem, seeds, method, candidates, **options)
    _check(search, anywhere)
    return search


def rates_only(document: Table) -> Table:
    """Return a document that searches nothing but learning rates, and those in a range."""
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
    """Return the search together with the other optimizers in the record of its store.

    Raises:
        SpecError: if the record is that of another search.
        DamagedError: if the record is none.
    """
    path = search.store / "search.json"
    try:
        record = read_record(path, _SearchRecord)
    except DamagedError as error:
        raise DamagedError(
            f"{error}. No trial is lost: rename the file, and search again all optimizers that it "
            "is to have; their trials are done"
        ) from error
    if record is None:
        return search
    recorded: Table = dict(record["search"])
    new = search.document()
    # The number of trials may change: a larger budget continues the search.
    old = {**recorded, "search": {**recorded["search"], "trials": search.method.trials}}
    for key in sorted((set(old) | set(new)) - {"optimizer", "about", "seed"}):
        for name, before, after in _differences(key, old.get(key), new.get(key)):
            raise SpecError(
                f"{search.store} holds a search with another {name}, {before!r} instead of "
                f"{after!r}; --out another folder"
            )
    names = {candidate.name for candidate in search.candidates}
    others = [
        candidate
        for candidate in _candidates(recorded["optimizer"], search.method)
        if candidate.name not in names
    ]
    return replace(search, candidates=(*search.candidates, *others))


def _differences(key: str, old: Any, new: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield each dotted key whose values differ, with the old and the new value."""
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


def _with_machine(problem: Table, threads: int) -> Table:
    """Return the problem with the number of threads and the device filled in."""
    train = problem.get("train", {})
    if not isinstance(train, dict):
        raise SpecError(f"train = {train!r}: must be a table, [train]")
    device = train.get("device", "auto")
    if device == "auto":
        device = automatic_device()
    train = {**train, "threads": train.get("threads") or threads, "device": device}
    return {**problem, "train": train}


def _check(search: Search, anywhere: bool) -> None:
    """Make each optimizer once for every example value, and compare the lengths of their runs.

    The trials themselves build nothing before they train: this is where a wrong value is found.

    Raises:
        SpecError: if an option is unknown or refuses a value, or if the lengths differ.
    """
    task = search.problem.get("task")
    if isinstance(task, dict) and isinstance(task.get("name"), str):
        with naming(f"task {task['name']!r}"):
            find_task(task["name"])  # a training function has no epochs to prune by
    lengths = {}
    for candidate in search.candidates:
        for option, values in candidate.space.items():
            for value in values.examples:
                setting = {**candidate.example, option: value}
                experiment = read(search.experiment(candidate, setting), build=True)
                resolve_machine(experiment, 1, anywhere=True)
                lengths[candidate.name] = experiment.runs[0].train.length
    if len(set(lengths.values())) > 1:
        raise SpecError(
            "train.epochs, train.steps: must be the same for all optimizers, but the runs have "
            + ", ".join(f"{length} ({name})" for name, length in lengths.items())
        )
    if not anywhere:
        candidate = search.candidates[0]
        resolve_machine(read(search.experiment(candidate, candidate.example), build=False), 1)


def _method(table: Any, comparison_seeds: tuple[int, ...]) -> Method:
    if not isinstance(table, dict):
        raise SpecError(f"search = {table!r}: must be a table, [search]")
    table = dict(table)
    allowed = tuple(field.name for field in fields(Method))
    for key, value in table.items():
        if key not in allowed:
            raise SpecError(unknown_key(key, value, allowed, "search."))
    # Seeds that are no numbers are refused later, with the other rules for seeds.
    numbers = all(type(seed) is int for seed in comparison_seeds)
    seeds = table.pop("seeds", [max(comparison_seeds) + 1 if numbers else 0])
    whole = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if not whole or not seeds or len(set(seeds)) < len(seeds):
        raise SpecError(f"search.seeds = {seeds!r}: must be a list of different whole numbers")
    if set(seeds) & set(comparison_seeds):
        raise SpecError(
            f"search.seeds = {seeds!r}: must be none of those that are compared with, seed = "
            f"{list(comparison_seeds)!r}"
        )
    return read_table(Method, table, "search", seeds=tuple(seeds))


def _candidates(tables: Any, method: Method) -> Iterator[Candidate]:
    """Yield the optimizers; a value that is set for an option that is searched is ignored."""
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
                yield _candidate(name, table, searched, method)
            except SpecError as error:
                raise SpecError(f"optimizer {name!r}: {error}") from error


def _candidate(name: str, table: Table, searched: Table, method: Method) -> Candidate:
    find_optimizer(name)
    space = read_space(searched) if searched else default_space(name, method.sampler)
    if method.sampler == "grid":
        space = fill_grid(space, method.trials)
    rest = {key: value for key, value in table.items() if key not in ("name", "search", *space)}
    fixed, *others = grid(rest)
    if others:
        raise SpecError(f"{_list_in(rest)}: is a list; is it to be searched?")
    return Candidate(name, {"name": name, **quote_lists(fixed)}, _with_floats(name, fixed, space))


def _names(table: Table) -> list[Any]:
    return as_list(table.get("name"))


def _with_floats(name: str, fixed: Table, space: Space) -> Space:
    """Return the space with ranges of floats where the option is a float: ``lr`` from 1.0, not 1.

    A range between whole numbers would draw whole numbers only.
    """
    examples = {option: values.examples[0] for option, values in space.items()}
    given = {key: value for key, value in fixed.items() if key != "train"}
    known = optimizer_options(name, {**given, **examples})

    def convert(option: str, values: Range | Choices) -> Range | Choices:
        if isinstance(values, Range) and isinstance(known[option], float):
            return replace(values, low=float(values.low), high=float(values.high))
        return values

    return {option: convert(option, values) for option, values in space.items()}
