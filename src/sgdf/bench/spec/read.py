"""From a document to its runs: every rule about what an experiment may say.

A document describes one run; wherever a value is a list, it describes one run for each
item, and several lists give all combinations. An array of tables (``[[optimizer]]``) is
such a list too. A value that is itself a list stands in a list of its own:
``betas = [[0.9, 0.999]]``. With ``[[part]]`` a document stands for several grids.

Keys and names are checked first and need no torch, which takes a second to import. Options
need the class that they are for; last, each optimizer and schedule is made once.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from ..catalog.lookup import check_name, find, options_of
from ..catalog.optimizers import OPTIMIZERS, optimizer_options
from ..catalog.probes import PROBES
from ..catalog.schedules import SCHEDULERS, schedule_options, waits_for_plateau
from ..errors import SpecError, first_line, naming
from ..store.records import Table
from ..tasks import TASKS, find_trained
from ..tasks.function import HANDED_OVER, TrainingFunction
from ..tasks.metric import Metric
from .document import apply_changes, load_document, parts_of
from .fields import read_table, unknown_key
from .grid import as_list, empty_list, find_misfit, find_repetition, grid, grid_size
from .protocol import PROTOCOLS
from .run import (
    OF_FUNCTIONS,
    PURE_BFLOAT16,
    Experiment,
    Named,
    ProbeSpec,
    Run,
    Schedule,
    Training,
)

MAX_RUNS = 100_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEFAULT_SCHEDULE = {"name": "ConstantLR", "factor": 1.0}
KEYS = ("seed", "protocol", "task", "optimizer", "schedule", "train")
KINDS = {
    "optimizer": {name: entry.path for name, entry in OPTIMIZERS.items()},
    "task": TASKS,
    "schedule": SCHEDULERS,
}
"""The names that each table with a name can have."""

T = TypeVar("T")


def load(source: str | Path, changes: Table | None = None) -> Experiment:
    """Read an experiment.

    Args:
        source: the name of a bundled experiment, or the path of a file.
        changes: values that take the place of the file's, by dotted key.

    Raises:
        SpecError: with file, key, value and what is allowed, if anything is wrong.
    """
    with naming(source):
        return read(apply_changes(load_document(source), changes or {}))


def read(document: Table, build: bool = True) -> Experiment:
    """Return the experiment that a parsed TOML document describes.

    Args:
        document: as ``load_document`` returns it.
        build: make every optimizer, schedule and probe once, to see that they can be made.
    """
    document = dict(document)
    name, about = document.pop("name", "experiment"), document.pop("about", "")
    for key, value in (("name", name), ("about", about)):
        if not isinstance(value, str):
            raise SpecError(f"{key} = {value!r}: must be a string")
    if not NAME.fullmatch(name) or ".." in name:
        raise SpecError(
            f"name = {name!r}: names a folder, so it must consist of letters, digits, '.', '_' "
            "and '-', begin with a letter or digit, and hold no '..'; it is the file's name unless "
            'the file says name = "…"'
        )
    wrong = find_misfit(document)
    if wrong:
        raise SpecError(f"{wrong}: must be a string, a number, true or false, or a list or table")
    probe_tables = as_list(document.pop("probe", []))
    parts = parts_of(document)
    for part_name, part in parts.items():
        with naming(part_name):
            parts[part_name] = _checked_part(part)
    size = sum(map(grid_size, parts.values()))
    if size > MAX_RUNS:
        raise SpecError(f"stands for {size:,} runs; at most {MAX_RUNS:,} are allowed")
    once, of_parts = _Once(), {part_name: list(grid(part)) for part_name, part in parts.items()}
    _check_tables(of_parts, document, once)
    probes = tuple(_probe(table, build) for table in probe_tables)
    made: dict[tuple[int, ...], Run] = {}
    for part_name, tables in of_parts.items():
        with naming(part_name):
            for setting, table in _first_of_each_setting(tables).items():
                made[setting] = _run(table, build, once)
    if probes and any(run.train.by_function for run in made.values()):
        raise SpecError("[[probe]]: the task is a function that trains by itself: use sgdf.monitor")
    runs: dict[tuple[int, str], Run] = {}
    for table in itertools.chain(*of_parts.values()):
        run, seed = made[_setting_of(table)], table.get("seed", 0)
        # Two settings may be one, once every option is filled in: then they have the same key.
        runs.setdefault((seed, run.key), dataclasses.replace(run, seed=seed))
    # Sorted, so that a part of the grid compares all optimizers.
    return Experiment(name, about, tuple(sorted(runs.values(), key=lambda run: run.seed)), probes)


def read_runs(tables: Iterable[Table]) -> tuple[Run, ...]:
    """Return the runs whose tables these are, as ``Run.as_table`` returned them."""
    once = _Once()
    return tuple(_run(table, False, once) for own in tables for table in grid(own))


def check_names(document: Table) -> None:
    """Raise if a key or a name of an experiment or a search is wrong, without importing torch."""
    aside = ("name", "about", "probe", "search")
    rest = {key: document[key] for key in document if key not in aside}
    of_parts: dict[str, list[Table]] = {}
    for name, part in parts_of(rest).items():
        with naming(name):
            if "optimizer" in part:
                part["optimizer"] = [
                    {key: value for key, value in table.items() if key != "search"}
                    if isinstance(table, dict)
                    else table
                    for table in as_list(part["optimizer"])
                ]
            _refuse_repetitions(part)
            if grid_size(part) <= MAX_RUNS:
                of_parts[name] = list(grid(part))
    _check_tables(of_parts, rest, _Once())


def _checked_part(part: Table) -> Table:
    """Return a part without its tables for ``sgdf tune``, whose lists can be a grid."""
    part = _without_search(part)
    empty = empty_list(part)
    if empty:
        raise SpecError(f"{empty} = []: stands for no run; it needs an item at least")
    _refuse_repetitions(part)
    return part


def _check_tables(of_parts: dict[str, list[Table]], document: Table, once: _Once) -> None:
    """Raise if a name or a value is wrong that can be judged without torch.

    Args:
        of_parts: the tables of each part's grid.
        document: may have values that every part replaces, which are in none of these tables.
        once: remembers what was checked.
    """
    for name, tables in of_parts.items():
        with naming(name):
            for table in _first_of_each_setting(tables).values():
                _check_run_names(table, once)
            for table in tables:
                _check_seed(table)
    outside = [key for key in KEYS if key in document] if "part" in document else []
    for key in outside:
        if grid_size(document[key]) <= MAX_RUNS:
            for value in grid(document[key]):
                _check_alone(key, value, once)


def _check_alone(key: str, value: Any, once: _Once) -> None:
    """Raise if the value of a key is wrong, whatever the others are."""
    if key == "seed":
        _check_seed({key: value})
    elif key == "protocol":
        _check_protocol(value)
    elif key == "train":
        once(read_table, Training, _table({key: value}, key), key)
    elif "name" in _table({key: value}, key):
        once(_check_name, value, key)


def _first_of_each_setting(tables: list[Table]) -> dict[tuple[int, ...], Table]:
    """Return a table of each setting: those of a grid that differ in the seed alone are one."""
    settings: dict[tuple[int, ...], Table] = {}
    for table in tables:
        settings.setdefault(_setting_of(table), table)
    return settings


def _setting_of(table: Table) -> tuple[int, ...]:
    """Return the identities of all values but the seed: the tables of a grid share the objects."""
    return tuple(id(value) for key, value in table.items() if key != "seed")


def _refuse_repetitions(document: Table) -> None:
    repetition = find_repetition(document)
    if repetition:
        raise SpecError(f"{repetition}; each item of a list is a run of its own, so give it once")


def _without_search(document: Table) -> Table:
    """Return a document without its tables for ``sgdf tune``.

    Raises:
        SpecError: if an option is only searched and not set, so that no run is defined.
    """
    document = dict(document)
    what = "is for sgdf tune, which writes an experiment of the best settings to be run"
    if "search" in document:
        raise SpecError(f"[search]: {what}")
    several = isinstance(document.get("optimizer"), list)
    tables = document["optimizer"] if several else [document.get("optimizer")]
    for index, table in enumerate(tables):
        if isinstance(table, dict) and isinstance(table.get("search"), dict):
            unset = [option for option in table["search"] if option not in table]
            if unset:
                raise SpecError(f"optimizer.search.{unset[0]}: {what}; or set {unset[0]} too")
            rest = {key: value for key, value in table.items() if key != "search"}
            tables = [*tables[:index], rest, *tables[index + 1 :]]
            document["optimizer"] = tables if several else rest
    return document


class _Once:
    """Calls a function once for equal arguments: a grid has few distinct tables."""

    def __init__(self) -> None:
        self.results: dict[str, Any] = {}

    def __call__(self, function: Callable[..., T], *arguments: Any) -> T:
        key = function.__name__ + repr(arguments)
        if key not in self.results:
            self.results[key] = function(*arguments)
        result: T = self.results[key]
        return result


def _check_run_names(table: Table, once: _Once) -> None:
    """Raise if a key, a name or a value is wrong that can be judged without torch."""
    for key, value in table.items():
        if key not in KEYS:
            raise SpecError(
                unknown_key(key, value, ("name", "about", "extends", "probe", "part", *KEYS))
            )
    _check_protocol(table.get("protocol", "validation"))
    once(read_table, Training, _training(table), "train")
    for kind in KINDS:
        default = DEFAULT_SCHEDULE if kind == "schedule" else None
        once(_check_name, _table(table, kind, default), kind)


def _check_protocol(protocol: Any) -> None:
    if protocol not in PROTOCOLS:
        raise SpecError(f"protocol = {protocol!r}: must be one of {', '.join(PROTOCOLS)}")


def _check_seed(table: Table) -> None:
    seed = table.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise SpecError(f"seed = {seed!r}: must be a whole number from 0 to 2^32 - 1")


def _check_name(table: Table, kind: str) -> None:
    name, _ = _named({**DEFAULT_SCHEDULE, **table} if kind == "schedule" else table, kind)
    with naming(f"{kind} {name!r}"):
        check_name(name, KINDS[kind], kind)


def _training(table: Table) -> Table:
    """Return the ``[train]`` of a run: an optimizer's own settings come first."""
    own = _table(_table(table, "optimizer"), "train", {})
    training = {**_table(table, "train", {}), **own}
    if type(training.get("steps")) is int and training["steps"] and "epochs" in training:
        raise SpecError(
            f"train.steps = {training['steps']!r}: give the length in steps or in epochs, not both"
        )
    if training.get("precision") == PURE_BFLOAT16 and training.get("ema_decay"):
        raise SpecError(
            f"train.ema_decay = {training['ema_decay']!r}: an average in bfloat16 would hardly "
            f'move; precision = "bfloat16" keeps weights and average in float32'
        )
    return training


def _run(table: Table, build: bool, once: _Once) -> Run:
    train: Training = once(read_table, Training, _training(table), "train")
    options = {key: value for key, value in table["optimizer"].items() if key != "train"}
    optimizer = once(_optimizer, options, build)
    by_function = once(_is_function, table["task"])
    if by_function:
        train = _training_of_function(table)
        if table.get("protocol") == "paper":
            raise SpecError(
                'protocol = "paper": the task is a function that trains by itself, on whatever '
                'data it likes; "validation" and "last" are possible'
            )
    elif train.by_function:
        raise SpecError("train.by_function = true: the task is a class, not a function")
    protocol = table.get("protocol", "last" if by_function else "validation")
    schedule_table = table.get("schedule", DEFAULT_SCHEDULE)
    schedule = once(_schedule, schedule_table)
    if build:
        length = train.steps or train.epochs
        once(_check_schedule, schedule, schedule_table, optimizer, length)
    return Run(
        task=once(_task, table["task"], protocol),
        optimizer=optimizer,
        schedule=schedule,
        train=train,
        protocol=protocol,
        seed=table.get("seed", 0),
    )


def _table(table: Table, key: str, default: Table | None = None) -> Table:
    found = table.get(key, default)
    if found is None:
        raise SpecError(f"[{key}]: missing")
    if not isinstance(found, dict):
        raise SpecError(f"{key} = {found!r}: must be a table, [{key}], with its name as {key}.name")
    return found


def _named(table: Table, kind: str) -> tuple[str, Table]:
    options = dict(table)
    if "name" not in options:
        given = ", ".join(options) or "nothing"
        raise SpecError(f"{kind}.name: missing; given: {given}")
    name = options.pop("name")
    if not isinstance(name, str):
        raise SpecError(f"{kind}.name = {name!r}: must be a string")
    return name, options


def _probe(table: Any, build: bool) -> ProbeSpec:
    if not isinstance(table, dict):
        raise SpecError(f"probe = {table!r}: must be a table, [[probe]]")
    name, options = _named(table, "probe")
    own: Table = {key: options.pop(key) for key in ("every", "every_epochs") if key in options}
    if len(own) > 1:
        raise SpecError(f"probe {name!r}: has every and every_epochs; give one of them")
    with naming(f"probe {name!r}"):
        check_name(name, PROBES, "probe")
        if build:
            from .build_check import check_probe  # which needs torch

            options = options_of(find(name, PROBES, "probe"), options, grid=False)
            check_probe(name, options)
    return read_table(ProbeSpec, own, "probe", name=name, options=options)


def _is_function(table: Table) -> bool:
    name, _ = _named(table, "task")
    with naming(f"task {name!r}"):
        return isinstance(find_trained(name), TrainingFunction)


def _training_of_function(table: Table) -> Training:
    """Return the ``[train]`` of a function, which is asked only for what the bench decides.

    Raises:
        SpecError: if the experiment sets what only the function can decide.
    """
    given, schedule = _training(table), {**DEFAULT_SCHEDULE, **table.get("schedule", {})}
    decided = [f"train.{key} = {given[key]!r}" for key in given if key not in OF_FUNCTIONS]
    own = {key: schedule[key] for key in DEFAULT_SCHEDULE}
    if own != DEFAULT_SCHEDULE or schedule.get("warmup"):
        decided.append("[schedule]")
    if decided:
        raise SpecError(
            f"{decided[0]}: the task is a function that trains by itself, and decides this; make "
            "it an argument of the function and give it as an option of the task, in [task] or as "
            "options={…} of compare"
        )
    return read_table(Training, {**given, "by_function": True}, "train")


def _task(table: Table, protocol: str) -> Named:
    name, given = _named(table, "task")
    with naming(f"task {name!r}"):
        task = find_trained(name)
        if isinstance(task, TrainingFunction):
            return Named(name, options_of(task.call, given, skip=HANDED_OVER))

        from ..tasks.base import metric_of  # which needs torch, as the task does

        options = options_of(task, given)
        if isinstance(task.metric, Metric | str):
            metric_of(task)
        if inspect.ismethod(task.check):  # else the task has a method of its own by this name
            try:
                task.check(**options)
            except SpecError:
                raise
            except Exception as error:  # a user's task may raise anything
                raise SpecError(f"its check raised {first_line(error)}") from error
        PROTOCOLS[protocol].check(task, options)
        return Named(name, options)


def _optimizer(table: Table, build: bool) -> Named:
    name, given = _named(table, "optimizer")
    with naming(f"optimizer {name!r}"):
        options = optimizer_options(name, given)
        if build:
            from .build_check import check_optimizer  # which needs torch

            check_optimizer(name, options, given)
        return Named(name, options)


def _schedule(table: Table) -> Schedule:
    name, given = _named(table if "name" in table else {**DEFAULT_SCHEDULE, **table}, "schedule")
    own: Table = {key: given.pop(key) for key in ("every", "warmup") if key in given}
    with naming(f"schedule {name!r}"):
        options = schedule_options(name, given)
        schedule = read_table(Schedule, own, "schedule", name=name, options=options)
        if waits_for_plateau(name) and schedule.every == "step":
            raise SpecError('every = "step": it looks at each epoch\'s evaluation')
    return schedule


def _check_schedule(schedule: Schedule, table: Table, optimizer: Named, length: int) -> None:
    from .build_check import check_schedule  # which needs torch

    # In steps, the length is known when the data are there; any that is long enough will do.
    calls = length if schedule.every == "epoch" else 10 * (schedule.warmup + length)
    try:
        check_schedule(schedule, optimizer, calls)
    except Exception as error:
        given = {key: value for key, value in table.items() if key in schedule.options}
        raise SpecError(
            f"schedule {schedule.name!r} with {given or 'no options'}: {error}"
        ) from error
