"""Experiments as TOML: what a file may say, and the runs that it stands for.

A file describes one run; wherever a value is a list, it describes one run for each
item, and several lists give all combinations. An array of tables (``[[optimizer]]``) is
such a list too. A value that is itself a list stands in a list of its own:
``betas = [[0.9, 0.999]]``.

The file is long because every rule about what a file may say is in it, and nowhere else.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from .grid import Table, change, empty_list, grid, grid_size, misfit, quoted
from .objects import SpecError, importable_from, options_of, suggestion
from .optimizers import Observer, optimizer_maker, optimizer_options
from .parts import choice, read_part, rule, unknown_key, whole
from .schedule import make_scheduler, schedule_options, waits_for_plateau
from .tasks import find_task

MAX_RUNS = 100_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
PROTOCOLS = ("validation", "paper")
PRECISIONS = ("float32", "bfloat16", "float16")
SEARCH = "-search"
DEFAULT_SCHEDULE = {"name": "ConstantLR", "factor": 1.0}

T = TypeVar("T")


def _is_device(value: str) -> bool:
    try:
        torch.device(value)
    except RuntimeError:
        return False
    return True


@dataclass(frozen=True)
class Named:
    """An object by its name in a spec, with all of its options."""

    name: str
    options: Table


@dataclass(frozen=True)
class Schedule(Named):
    """How the learning rate goes; epochs or steps are the unit of all its numbers."""

    every: str = choice("epoch", ("epoch", "step"))
    warmup: int = whole(0, least=0)


@dataclass(frozen=True)
class Training:
    """How a run trains, and all of the machine that its numbers depend on."""

    epochs: int = whole(10)
    batch_size: int = whole(64)
    accumulate: int = whole(1)
    clip_norm: float = rule(math.inf, "a number above 0; inf for none", lambda value: value > 0)
    ema_decay: float = rule(
        0.0, "a number of at least 0 and below 1; 0 for none", lambda value: 0 <= value < 1
    )
    evaluate_every: int = whole(1)
    log_every: int = whole(50)
    diverges_at: float = rule(
        1000.0, "a number above 1, in units of the first loss", lambda value: value > 1
    )
    precision: str = choice("float32", PRECISIONS)
    device: str = rule(
        "auto", 'a device of torch\'s, or "auto"', lambda v: _is_device(v) or v == "auto"
    )
    compile: bool = False
    threads: int = rule(0, "a whole number; 0 for a share of the machine", lambda value: value >= 0)
    processes: int = rule(
        0, "a whole number; 0 for as many as torchrun started", lambda value: value >= 0
    )


@dataclass(frozen=True)
class Run:
    """One training, with nothing left to a default."""

    task: Named
    optimizer: Named
    schedule: Schedule
    train: Training
    protocol: str
    seed: int

    def as_table(self) -> Table:
        """Return the run as an experiment that stands for this run alone."""
        return {
            "seed": self.seed,
            "protocol": self.protocol,
            "task": {"name": self.task.name, **quoted(self.task.options)},
            "optimizer": {"name": self.optimizer.name, **quoted(self.optimizer.options)},
            "schedule": {
                "name": self.schedule.name,
                "every": self.schedule.every,
                "warmup": self.schedule.warmup,
                **quoted(self.schedule.options),
            },
            "train": dataclasses.asdict(self.train),
        }

    @cached_property
    def key(self) -> str:
        """The run's name: a hash of all of it."""
        return run_key(self.as_table())


def run_key(table: Table) -> str:
    """Return the hash of a run's table."""
    text = json.dumps(table, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Experiment:
    """A named list of runs."""

    name: str
    about: str
    runs: tuple[Run, ...]


def bundled_experiments() -> dict[str, Path]:
    """Return the experiments that come with the package, by name."""
    return {name: path for name, path in _bundled().items() if not name.endswith(SEARCH)}


def bundled_searches() -> dict[str, Path]:
    """Return the searches that come with the package, for ``sgdf tune``, by name."""
    return {name: path for name, path in _bundled().items() if name.endswith(SEARCH)}


def _bundled() -> dict[str, Path]:
    folder = Path(str(resources.files("sgdf"))) / "experiments"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load(source: str | Path, changes: Table | None = None) -> Experiment:
    """Read an experiment.

    Args:
        source: the name of a bundled experiment, or the path of a file.
        changes: values that take the place of the file's, by dotted key.

    Raises:
        SpecError: with file, key, value and what is allowed, if anything is wrong.
    """
    with told_of(source):
        return read(changed(load_document(source), changes or {}))


@contextmanager
def told_of(source: str | Path) -> Iterator[None]:
    """Say of which file an error is."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from error.__cause__


def changed(document: Table, changes: Table) -> Table:
    """Return a document with values, by dotted key, in the place of its own."""
    document = copy.deepcopy(document)
    for key, value in changes.items():
        change(document, key, value)
        _prevail(document, key)
    return document


def load_document(source: str | Path) -> Table:
    """Return what an experiment's file says, with its name."""
    bundled = {**bundled_experiments(), **bundled_searches()}
    path = bundled.get(str(source), Path(source))
    if str(source) not in bundled:
        importable_from(path.absolute().parent)
    importable_from(Path.cwd())
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(
            f"no such file, nor a bundled experiment ({', '.join(bundled)})"
            + suggestion(str(source), bundled)
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(f"is not valid TOML: {error}") from error
    return {"name": path.stem, **document}


def automatic_device() -> str:
    """Return what ``device = "auto"`` stands for: the machine's accelerator, if it has one."""
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    return accelerator.type if accelerator else "cpu"


def settled(
    experiment: Experiment, threads: int, processes: int = 1, anywhere: bool = False
) -> Experiment:
    """Return the experiment with nothing about the machine left open.

    Args:
        experiment: as read.
        threads: what a run gets that does not say how many it wants.
        processes: how many train each run together.
        anywhere: let it name devices that this machine has not: others will do it.
    """
    there = automatic_device()
    runs = []
    for run in experiment.runs:
        train = run.train
        if train.processes not in (0, processes):
            raise SpecError(
                f"train.processes = {train.processes}: there are {processes}; start it with "
                f"torchrun --nproc-per-node {train.processes} -m sgdf run"
            )
        parts = processes * train.accumulate
        if train.batch_size % parts:
            raise SpecError(
                f"train.batch_size = {train.batch_size}: must be a multiple of {parts}, the parts "
                "that accumulate and the processes make of it"
            )
        device = there if train.device == "auto" else train.device
        if not anywhere and torch.device(device).type not in ("cpu", there):
            allowed = ", ".join(sorted({"cpu", there}))
            raise SpecError(f"train.device = {device!r}: not available; allowed here: {allowed}")
        if processes > 1 and torch.device(device).index is not None:
            raise SpecError(f"train.device = {device!r}: each process needs its own; leave out :N")
        train = dataclasses.replace(
            train, device=device, threads=train.threads or threads, processes=processes
        )
        runs.append(dataclasses.replace(run, train=train))
    return dataclasses.replace(experiment, runs=tuple({run.key: run for run in runs}.values()))


def read(document: Table) -> Experiment:
    """Return the experiment that a parsed TOML document describes."""
    document = _without_search(document)
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
    wrong = misfit(document)
    if wrong:
        raise SpecError(f"{wrong}: must be a string, a number, true or false, or a list or table")
    empty = empty_list(document)
    if empty:
        raise SpecError(f"{empty} = []: stands for no run; it needs an item at least")
    size = grid_size(document)
    if size > MAX_RUNS:
        raise SpecError(f"stands for {size:,} runs; at most {MAX_RUNS:,} are allowed")
    checked = _Checked()
    runs = [_run(table, checked) for table in grid(document)]
    runs.sort(key=lambda run: run.seed)  # so that a part of the grid compares all optimizers
    return Experiment(name, about, tuple({run.key: run for run in runs}.values()))


def _without_search(document: Table) -> Table:
    """Return a document without what is there for ``sgdf tune``, if that leaves nothing open."""
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


def _prevail(document: Table, key: str) -> None:
    """Let a changed setting hold for optimizers too that have one of their own."""
    table, _, setting = key.partition(".")
    optimizers = document.get("optimizer", []) if table == "train" else []
    for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
        if isinstance(optimizer, dict) and isinstance(optimizer.get("train"), dict):
            optimizer["train"].pop(setting, None)


class _Checked:
    """Parts that were found to be in order: a grid has few distinct ones."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def __call__(self, part: Callable[..., T], *arguments: Any) -> T:
        key = part.__name__ + repr(arguments)
        if key not in self.parts:
            self.parts[key] = part(*arguments)
        found: T = self.parts[key]
        return found


def _run(table: Table, checked: _Checked) -> Run:
    known = ("seed", "protocol", "task", "optimizer", "schedule", "train")
    for key, value in table.items():
        if key not in known:
            raise SpecError(unknown_key(key, value, ("name", "about", *known)))
    seed, protocol = table.get("seed", 0), table.get("protocol", PROTOCOLS[0])
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
        raise SpecError(f"seed = {seed!r}: must be a whole number from 0 to 2^32 - 1")
    if protocol not in PROTOCOLS:
        raise SpecError(f"protocol = {protocol!r}: must be one of {', '.join(PROTOCOLS)}")
    optimizer = dict(_table(table, "optimizer"))
    training = {**_table(table, "train", {}), **_table(optimizer, "train", {})}
    optimizer.pop("train", None)
    train: Training = checked(read_part, Training, training, "train")
    named = checked(_optimizer, optimizer)
    schedule = _table(table, "schedule", DEFAULT_SCHEDULE)
    return Run(
        task=checked(_task, _table(table, "task")),
        optimizer=named,
        schedule=checked(_schedule, schedule, named, train.epochs),
        train=train,
        protocol=protocol,
        seed=seed,
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


def _task(table: Table) -> Named:
    name, given = _named(table, "task")
    try:
        return Named(name, options_of(find_task(name), given))
    except SpecError as error:
        raise SpecError(f"task {name!r}: {error}") from error


def _optimizer(table: Table) -> Named:
    name, given = _named(table, "optimizer")
    try:
        options = optimizer_options(name, given)
        try:
            _on_trial(name, options)
        except Exception as error:
            raise SpecError(f"{_culprit(name, given)}{error}") from error
    except SpecError as error:
        raise SpecError(f"optimizer {name!r}: {error}") from error
    return Named(name, options)


def _on_trial(name: str, options: Table) -> torch.optim.Optimizer:
    """Return the optimizer after a step on nothing, as a sign that it can make one."""
    parameter = nn.Parameter(torch.zeros(2, 2))
    optimizer = optimizer_maker(name, options)([parameter])
    parameter.grad = torch.zeros(2, 2)
    if isinstance(optimizer, Observer):
        optimizer.predict()
        optimizer.observe(0.0)
    try:
        optimizer.step()
    except TypeError as error:
        if "closure" in str(error):
            raise SpecError("needs a closure, which the bench does not give") from error
        raise
    return optimizer


def _culprit(name: str, given: Table) -> str:
    """Return the option without which the optimizer would work, to begin a message with."""
    for key, value in given.items():
        try:
            rest = {other: given[other] for other in given if other != key}
            _on_trial(name, optimizer_options(name, rest))
        except Exception:  # it is not this one, or not this one alone
            continue
        return f"{key} = {value!r}: "
    return ""


def _schedule(table: Table, optimizer: Named, epochs: int) -> Schedule:
    name, given = _named(table if "name" in table else {**DEFAULT_SCHEDULE, **table}, "schedule")
    own: Table = {key: given.pop(key) for key in ("every", "warmup") if key in given}
    try:
        options = schedule_options(name, given)
        schedule = read_part(Schedule, own, "schedule", name=name, options=options)
        # In steps, the length is known when the data are there; any that is long enough will do.
        length = epochs if schedule.every == "epoch" else 10 * (schedule.warmup + epochs)
        make_scheduler(
            _on_trial(optimizer.name, optimizer.options), name, options, schedule.warmup, length
        )
    except SpecError as error:
        raise SpecError(f"schedule {name!r}: {error}") from error
    except Exception as error:
        raise SpecError(f"schedule {name!r} with {given or 'no options'}: {error}") from error
    if waits_for_plateau(name) and schedule.every == "step":
        raise SpecError(f'schedule {name!r}: every = "step": it looks at each epoch\'s evaluation')
    return schedule
