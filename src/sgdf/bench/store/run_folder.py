"""The folder of a run, in which every file is either complete or absent.

::

    DIR/runs/KEY/spec.toml        the table of the run; KEY is its digest
                 environment.json the machine and versions of each attempt
                 metrics.jsonl    one row for each reading and each epoch
                 probes.jsonl     the rows of probes, if there are any
                 STEP-SUM.pt      the last two checkpoints, with a checksum in the name
                 evaluation-STEP-PART-SUM.pt  what an unfinished evaluation has kept
                 pictures/SERIES-EPOCH.png    what the evaluations have shown
                 result.json      only once the run is finished or diverged
                 failure.json     the error and traceback of a failed run
                 tensorboard/     the same metrics for TensorBoard
                 lock             held by the process that trains the run
    DIR/experiments.json          what the experiments that made the runs say about themselves
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ..errors import DamagedError, StoreError
from . import failure_file, files, lock, spec_file, summed_files
from .conform import MismatchError, conform
from .identity import digest
from .kept_evaluations import KeptEvaluations
from .pictures import Pictures
from .record_files import (
    naming_file,
    read_record,
    read_result,
    read_rows,
    to_json,
    to_lines,
    with_digest,
)
from .records import Environments, ProbeRow, Result, Row, RunTable, Table

CHECKPOINT = re.compile(r"(\d{12})-([0-9a-f]{16})\.pt")
KEPT_CHECKPOINTS = 2
PROBE_ROWS = "probes.jsonl"
RECORDS = (
    *("spec.toml", "environment.json", "metrics.jsonl", PROBE_ROWS, "result.json", "failure.json"),
)
EXPERIMENTS = "experiments.json"


class State(Enum):
    """The state of a run."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"

    @property
    def has_result(self) -> bool:
        """Whether the run needs no more training: it is finished, or it diverged."""
        return self in (State.FINISHED, State.DIVERGED)


@dataclass
class RunFolder:
    """The folder of one run.

    Attributes:
        path: the folder.
        notices: lines about damage that was found, and what was done about it.
    """

    path: Path

    def __post_init__(self) -> None:
        self.notices: list[str] = []

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.path.name

    @property
    def evaluations(self) -> KeptEvaluations:
        """What unfinished evaluations have kept."""
        return KeptEvaluations(self.path, self.notices)

    @property
    def pictures(self) -> Pictures:
        """What evaluations have shown."""
        return Pictures(self.path / "pictures")

    def prepare(self, table: RunTable) -> None:
        """Make the folder and write the run's table, unless it is there already.

        Thousands of runs are prepared before the first one begins: the table of each is synced
        when its training begins, and written again if it is lost before. Processes that write it
        at the same time write the same.
        """
        path, content = self.path / "spec.toml", spec_file.encode(table)
        with contextlib.suppress(DamagedError):
            if files.read(path) == content:
                return
        with files.store_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if self.table() is not None:
            return
        try:
            files.write(path, content, sync=False)
        except StoreError:
            # Another process wrote it, claimed the run and removed unfinished files; or a folder
            # has its name, which a claim puts aside.
            with self.claim() as ours:
                if ours and self.table() is None:
                    files.write(path, content, sync=False)

    def sync_table(self) -> None:
        """Make the folder and the table, which ``prepare`` wrote, survive a loss of power."""
        with files.store_errors(self.path):
            files.sync(self.path / "spec.toml")
            for folder in list(self.path.absolute().parents)[:3]:  # runs, the store, and above it
                with contextlib.suppress(PermissionError):  # to be read, which a sync needs
                    files.sync_folder(folder)

    def table(self) -> RunTable | None:
        """Return the run's table, or None if it is missing or damaged."""
        with contextlib.suppress(DamagedError):
            return self.read_table()
        return None

    def read_table(self) -> RunTable:
        """Return the run's table.

        Raises:
            DamagedError: if it is missing, or not that of the run with this key.
        """
        path = self.path / "spec.toml"
        with naming_file(path):
            content = files.read(path)
            if not content:
                raise MismatchError("is missing or empty")
            return conform(RunTable, spec_file.parse(content, self.key))

    def state(self) -> State:
        """Return the state of the run; it is running while a process holds its lock."""
        return self.state_and_result()[0]

    def state_and_result(self) -> tuple[State, Result | None]:
        """Return the state of the run and, if it is finished or diverged, its result."""
        state, result = self._look()
        if state.has_result:  # and no lock is asked for, which takes its time on a network disk
            return state, result
        if self.owner():
            return State.RUNNING, None
        # Its process may have written the result, and released the lock, since the first look.
        return self._look()

    def _look(self) -> tuple[State, Result | None]:
        try:
            return self._judge()
        except DamagedError:
            return State.DAMAGED, None
        except StoreError:
            return State.UNREADABLE, None

    def progress(self) -> State:
        """Return the state by the files alone, whether or not a process holds the lock.

        Raises:
            StoreError: if the files cannot be read, which says nothing about their content.
        """
        try:
            return self._judge()[0]
        except DamagedError:
            return State.DAMAGED

    def damage(self) -> str:
        """Return in one line what is wrong with the files of a damaged or unreadable run."""
        try:
            self._judge()
        except StoreError as error:
            return str(error)
        return ""

    def _judge(self) -> tuple[State, Result | None]:
        """Return the state by the files alone, and the result if there is one.

        Raises:
            DamagedError: if the result, or the metrics that belong to it, are not as written.
            StoreError: if the files cannot be read.
        """
        result = read_result(self.path / "result.json")
        if result is not None:
            path = self.path / "metrics.jsonl"
            if result["metrics"] != digest(files.read(path)):
                raise DamagedError(f"{path} has other rows than those that the result is about")
            return State(result["outcome"]), result
        if os.path.lexists(self.path / "failure.json"):
            return State.FAILED, None
        return State.PAUSED if self._checkpoints() else State.WAITING, None

    def owner(self) -> str | None:
        """Return the process that trains the run, or None."""
        return lock.owner(self.path / "lock")

    @contextlib.contextmanager
    def claim(self) -> Iterator[bool]:
        """Hold the run's lock within the block; yield False if another process has it."""
        with lock.hold(self.path / "lock") as ours:
            if ours:
                files.remove_leftovers(self.path)
                self.pictures.remove_leftovers()
                self._put_folders_aside()
            yield ours

    def _put_folders_aside(self) -> None:
        """Rename folders that have the name of a file: all else is replaced when it is written."""
        for path in (self.path / name for name in RECORDS):
            if path.is_dir() and not path.is_symlink():
                files.put_aside(path)
                self.notices.append(f"its {path.name} was a folder, which was put aside")

    def add_environment(self, environment: dict[str, Any]) -> None:
        """Add the environment of a new attempt."""
        entries = [*self.environments(), environment]
        files.write(self.path / "environment.json", to_json(entries))

    def environments(self) -> Environments:
        """Return the environment of each attempt, the latest last; none if they are damaged."""
        with contextlib.suppress(DamagedError):
            return read_record(self.path / "environment.json", Environments) or []
        return []

    def append(self, rows: list[Row]) -> None:
        """Append rows of metrics."""
        files.append(self.path / "metrics.jsonl", to_lines(rows))

    def write_rows(self, rows: list[Row]) -> None:
        """Replace all rows of metrics."""
        files.write(self.path / "metrics.jsonl", to_lines(rows))

    def rows(self) -> list[Row]:
        """Return the rows of metrics up to the first incomplete one."""
        return read_rows(self.path / "metrics.jsonl", Row)

    def append_probe_rows(self, rows: list[Table]) -> None:
        """Append rows of probes."""
        files.append(self.path / PROBE_ROWS, to_lines(rows))

    def probe_rows(self) -> list[Table]:
        """Return the rows of probes up to the first incomplete one."""
        return [*map(dict, read_rows(self.path / PROBE_ROWS, ProbeRow))]

    def drop_probe_rows(self, after: int) -> None:
        """Remove rows of steps that will be taken again, and a last line that was cut short."""
        if os.path.lexists(self.path / PROBE_ROWS):
            kept = to_lines(row for row in self.probe_rows() if row["step"] <= after)
            files.write(self.path / PROBE_ROWS, kept)

    def save(self, content: bytes, step: int) -> None:
        """Write a checkpoint, and keep the one of an earlier step."""
        if os.path.lexists(self.path / PROBE_ROWS):  # a run resumed from here adds later rows only
            with files.store_errors(self.path / PROBE_ROWS):
                files.sync(self.path / PROBE_ROWS)
        # Others of the same step are as of before an evaluation.
        path = summed_files.write(self.path, f"{step:012}", content)
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            if old != path:
                files.remove(old)

    def saved(self) -> int:
        """Return the step of the last checkpoint, 0 if there is none."""
        return max((int(path.name.partition("-")[0]) for path in self._checkpoints()), default=0)

    def whole_checkpoints(self) -> Iterator[tuple[Path, bytes]]:
        """Yield the checkpoints that are as written, the latest first; others are put aside."""
        for path in reversed(self._checkpoints()):
            content = summed_files.read(path)
            if content is None:
                self.put_checkpoint_aside(path, "is damaged")
            else:
                yield path, content

    def put_checkpoint_aside(self, path: Path, reason: str) -> None:
        """Rename a checkpoint that cannot be resumed from, and notice it."""
        summed_files.put_aside(path)
        self.notices.append(f"its checkpoint {path.name} {reason} and was put aside")

    def finish(self, outcome: State, result: Result, rows: list[Row]) -> None:
        """Write metrics and result; from then on the run is finished or diverged."""
        self.write_rows(rows)
        content = {"outcome": outcome.value, **result, "metrics": digest(to_lines(rows))}
        files.write(self.path / "result.json", with_digest(content))
        self.clear_failure()
        self.evaluations.drop()
        for old in self._checkpoints()[:-1]:
            files.remove(old)

    def result(self) -> Result | None:
        """Return the result, or None if it is missing or damaged."""
        with contextlib.suppress(DamagedError):
            return read_result(self.path / "result.json")
        return None

    def fail(self, error: BaseException | str, sources: Mapping[str, str] | None = None) -> None:
        """Record a failure.

        Args:
            error: the exception, or what happened in one line.
            sources: digests of the source that failed.
        """
        failure_file.write(self._failure, error, sources)

    def failure(self) -> str | None:
        """Return the error of a failed run, and where it was raised, in one line."""
        return failure_file.in_one_line(self._failure)

    def failed_sources(self) -> dict[str, Any]:
        """Return digests of the source that a failed run had, as far as they are recorded."""
        with contextlib.suppress(StoreError):
            failure = failure_file.read(self._failure)
            if failure and "sources" in failure:
                return failure["sources"]
            # Of a run whose process died, or of an earlier version.
            return next(reversed(self.environments()), {})
        return {}

    def traceback(self) -> str:
        """Return the traceback of a failed run; empty if it has not failed."""
        return failure_file.traceback_of(self._failure)

    def clear_failure(self) -> None:
        """Remove the record of a failure, so that the run is tried again."""
        files.remove(self._failure)

    @property
    def _failure(self) -> Path:
        return self.path / "failure.json"

    def _checkpoints(self) -> list[Path]:
        paths = [path for path in self.path.glob("*.pt") if CHECKPOINT.fullmatch(path.name)]
        return sorted(paths, key=lambda path: path.name)


class Store:
    """A folder of runs."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.runs = self.path / "runs"

    def folder(self, key: str) -> RunFolder:
        """Return the folder of a run, which need not exist yet."""
        return RunFolder(self.runs / key)

    def folders(self) -> list[RunFolder]:
        """Return the folders of all runs."""
        return [RunFolder(path) for path in sorted(self.runs.glob("*")) if path.is_dir()]

    def states(self, keys: Iterable[str]) -> dict[str, State]:
        """Return the state of each of these runs; a run that has no folder is waiting."""
        keys = list(keys)
        try:
            there = set(os.listdir(self.runs))
        except FileNotFoundError:
            there = set()
        except OSError:
            there = set(keys)  # the look into each folder says what is wrong
        return {key: self.folder(key).state() if key in there else State.WAITING for key in keys}

    def add_experiment(self, name: str, about: str) -> None:
        """Record what an experiment whose runs are kept here says about itself.

        One that says nothing leaves what an earlier one of its name said.
        """
        known = self.experiments()
        about = about or known.get(name, "")
        if known.get(name) != about:
            files.write(self.path / EXPERIMENTS, to_json({**known, name: about}))

    def experiments(self) -> dict[str, str]:
        """Return what experiments say about themselves, by name; empty if it is not recorded."""
        with contextlib.suppress(DamagedError):
            return read_record(self.path / EXPERIMENTS, dict[str, str]) or {}
        return {}


def is_run_folder(path: Path) -> bool:
    """Return whether a path is the folder of one run."""
    return (path / "spec.toml").exists()


def store_of(path: str | Path) -> Path | None:
    """Return the store that a run's ``spec.toml`` lies in, or None if it is any other file.

    >>> store_of("results/digits/runs/0123456789abcdef/spec.toml"), store_of("mine.toml")
    (PosixPath('results/digits'), None)
    """
    path = Path(path)
    is_spec = path.name == "spec.toml" and path.parts[-3:-2] == ("runs",)
    return path.parents[2] if is_spec else None


def stores_in(path: Path) -> list[Path]:
    """Return the store at a path, or else the stores right below it."""
    if (path / "runs").is_dir():
        return [path]
    return sorted(runs.parent for runs in path.glob("*/runs") if runs.is_dir())
