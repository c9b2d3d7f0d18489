"""The folder of a run, in which every file is either complete or absent.

::

    DIR/runs/KEY/spec.toml        the table of the run; KEY is its digest
                 environment.json the machine and versions of each attempt
                 metrics.jsonl    one row for each reading and each epoch
                 probes.jsonl     the rows of probes, if there are any
                 STEP-SUM.pt      the last two checkpoints, with a checksum in the name
                 result.json      only once the run is finished or diverged
                 failure.json     the error and traceback of a failed run
                 tensorboard/     the same metrics for TensorBoard
                 lock             held by the process that trains the run
    DIR/experiments.json          what the experiments that made the runs say about themselves
"""

from __future__ import annotations

import contextlib
import json
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

import tomli_w

from ..errors import first_line, place_of
from . import files, lock, spec_file
from .identity import digest
from .records import Result, Row, RunTable, Table

CHECKPOINT = re.compile(r"(\d{12})-([0-9a-f]{16})\.pt")
KEPT_CHECKPOINTS = 2
PROBE_ROWS = "probes.jsonl"
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

    def prepare(self, table: RunTable) -> None:
        """Make the folder and write the run's table, unless it is there already."""
        with files.store_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if self.table() is None:
            with self.claim() as ours:  # else the process that holds the lock writes it
                if ours:
                    files.write(self.path / "spec.toml", tomli_w.dumps(table).encode())

    def table(self) -> RunTable | None:
        """Return the run's table, or None if it is missing or does not match the key."""
        return spec_file.parse(files.read(self.path / "spec.toml"), self.key)

    def state(self) -> State:
        """Return the state of the run; it is running while a process holds its lock."""
        return State.RUNNING if self.owner() else self.progress()

    def progress(self) -> State:
        """Return the state by the files alone, whether or not a process holds the lock."""
        return self._progress(self.result())

    def state_and_result(self) -> tuple[State, Result | None]:
        """Return the state of the run and, if it is finished or diverged, its result."""
        if self.owner():  # asked first: a process writes the result before it releases the lock
            return State.RUNNING, None
        result = self.result()
        state = self._progress(result)
        return state, result if state.has_result else None

    def _progress(self, result: Result | None) -> State:
        if result is not None:
            intact = result["metrics"] == digest(files.read(self.path / "metrics.jsonl"))
            return State(result["outcome"]) if intact else State.DAMAGED
        if (self.path / "result.json").exists():
            return State.DAMAGED
        if (self.path / "failure.json").exists():
            return State.FAILED
        return State.PAUSED if self._checkpoints() else State.WAITING

    def owner(self) -> str | None:
        """Return the process that trains the run, or None."""
        return lock.owner(self.path / "lock")

    @contextlib.contextmanager
    def claim(self) -> Iterator[bool]:
        """Hold the run's lock within the block; yield False if another process has it."""
        with lock.hold(self.path / "lock") as ours:
            if ours:
                files.remove_leftovers(self.path)
            yield ours

    def add_environment(self, environment: dict[str, Any]) -> None:
        """Add the environment of a new attempt."""
        entries = [*self.environments(), environment]
        files.write(self.path / "environment.json", _json(entries))

    def environments(self) -> list[dict[str, Any]]:
        """Return the environment of each attempt, the latest last."""
        entries = self._read_json("environment.json")
        return entries if isinstance(entries, list) else []

    def append(self, rows: list[Row]) -> None:
        """Append rows of metrics."""
        files.append(self.path / "metrics.jsonl", _lines(rows))

    def write_rows(self, rows: list[Row]) -> None:
        """Replace all rows of metrics."""
        files.write(self.path / "metrics.jsonl", _lines(rows))

    def rows(self) -> list[Row]:
        """Return the rows of metrics up to the first incomplete one."""
        return _parse_lines(files.read(self.path / "metrics.jsonl"))

    def append_probe_rows(self, rows: list[Table]) -> None:
        """Append rows of probes."""
        files.append(self.path / PROBE_ROWS, _lines(rows))

    def probe_rows(self) -> list[Table]:
        """Return the rows of probes up to the first incomplete one."""
        return _parse_lines(files.read(self.path / PROBE_ROWS))

    def drop_probe_rows(self, after: int) -> None:
        """Remove rows of steps that will be taken again."""
        kept = _lines(row for row in self.probe_rows() if row["step"] <= after)
        if kept != files.read(self.path / PROBE_ROWS):  # a last line may be cut short, too
            files.write(self.path / PROBE_ROWS, kept)

    def save(self, content: bytes, step: int) -> None:
        """Write a checkpoint, and keep the one before it."""
        name = f"{step:012}-{digest(content)}.pt"
        files.write(self.path / name, content)
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            if old.name != name:
                files.remove(old)

    def saved(self) -> int:
        """Return the step of the last checkpoint, 0 if there is none."""
        return max((int(path.name.partition("-")[0]) for path in self._checkpoints()), default=0)

    def load(self) -> bytes | None:
        """Return the latest undamaged checkpoint, or None; damaged ones are renamed."""
        for path in reversed(self._checkpoints()):
            content = files.read(path)
            if path.stem.partition("-")[2] == digest(content):
                return content
            with files.store_errors(path):
                path.rename(path.with_suffix(".damaged"))
            self.notices.append(f"its checkpoint {path.name} is damaged and was put aside")
        return None

    def finish(self, outcome: State, result: Result, rows: list[Row]) -> None:
        """Write metrics and result; from then on the run is finished or diverged."""
        self.write_rows(rows)
        content = {"outcome": outcome.value, **result, "metrics": digest(_lines(rows))}
        files.write(self.path / "result.json", _json({**content, "sum": digest(_json(content))}))
        self.clear_failure()
        for old in self._checkpoints()[:-1]:
            files.remove(old)

    def result(self) -> Result | None:
        """Return the result, or None if it is missing or damaged."""
        content = files.read(self.path / "result.json")
        result = _parse(content)
        if not isinstance(result, dict):
            return None
        written = result.pop("sum", None)
        # Of a file as finish() left it, the bytes tell the digest, without encoding it once more.
        as_written = content.removesuffix(_end_with_sum(written)) + _END
        intact = written == digest(as_written) or written == digest(_json(result))
        return cast("Result", result) if intact else None

    def fail(self, error: BaseException | str, sources: Mapping[str, str] | None = None) -> None:
        """Record a failure.

        Args:
            error: the exception, or what happened in one line.
            sources: digests of the source that failed.
        """
        content: Table = {"error": first_line(error), "traceback": error}
        if isinstance(error, BaseException):
            content["place"] = place_of(error)
            content["traceback"] = "".join(traceback.format_exception(error))
        if sources:
            content["sources"] = dict(sources)
        files.write(self.path / "failure.json", _json(content))

    def failure(self) -> str | None:
        """Return the error of a failed run, and where it was raised, in one line."""
        failure = self._read_json("failure.json")
        if not isinstance(failure, dict):
            return None
        place = f" ({failure['place']})" if failure.get("place") else ""
        return f"{failure.get('error')}{place}"

    def failed_sources(self) -> dict[str, Any]:
        """Return digests of the source that a failed run had, as far as they are recorded."""
        failure = self._read_json("failure.json")
        sources = failure.get("sources") if isinstance(failure, dict) else None
        last = self.environments()[-1:]  # of a run whose process died, or of an earlier version
        return next((known for known in (sources, *last) if isinstance(known, dict)), {})

    def traceback(self) -> str:
        """Return the traceback of a failed run; empty if it has not failed."""
        failure = self._read_json("failure.json")
        return str(failure.get("traceback")) if isinstance(failure, dict) else ""

    def clear_failure(self) -> None:
        """Remove the record of a failure, so that the run is tried again."""
        files.remove(self.path / "failure.json")

    def _checkpoints(self) -> list[Path]:
        paths = [path for path in self.path.glob("*.pt") if CHECKPOINT.fullmatch(path.name)]
        return sorted(paths, key=lambda path: path.name)

    def _read_json(self, name: str) -> Any:
        return _parse(files.read(self.path / name))


class Store:
    """A folder of runs."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def folder(self, key: str) -> RunFolder:
        """Return the folder of a run, which need not exist yet."""
        return RunFolder(self.path / "runs" / key)

    def folders(self) -> list[RunFolder]:
        """Return the folders of all runs."""
        return [RunFolder(path) for path in sorted((self.path / "runs").glob("*")) if path.is_dir()]

    def add_experiment(self, name: str, about: str) -> None:
        """Record what an experiment whose runs are kept here says about itself."""
        known = self.experiments()
        if known.get(name) != about:
            files.write(self.path / EXPERIMENTS, _json({**known, name: about}))

    def experiments(self) -> dict[str, str]:
        """Return what experiments say about themselves, by name; empty if it is not recorded."""
        content = _parse(files.read(self.path / EXPERIMENTS))
        if not isinstance(content, dict):
            return {}
        return {name: about for name, about in content.items() if isinstance(about, str)}


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


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


_END = b"\n}\n"
"""The end of a table in the JSON of these files."""


def _end_with_sum(sum_: Any) -> bytes:
    """Return the end of a table whose last entry is the digest of the others."""
    return b',\n "sum": ' + json.dumps(sum_).encode() + _END


def _parse(content: bytes) -> Any:
    """Return the content of a JSON file; None if it is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _parse_lines(content: bytes) -> list[Any]:
    """Return the JSON of each line, up to the first incomplete one."""
    rows = []
    for line in content.split(b"\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
