"""Where runs are kept: one folder for each, in which nothing is ever half written.

::

    DIR/runs/KEY/spec.toml        what the run is; KEY is its hash
                 environment.json where and with what each attempt ran
                 metrics.jsonl    a row for each reading and each epoch
                 probes.jsonl     what probes saw, if there are any
                 STEP-SUM.pt      the last two checkpoints, with a checksum in the name
                 result.json      only once the run is over
                 failure.json     what went wrong the last time, if it did
                 tensorboard/     the same metrics as events
                 lock             who is at work on it
"""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

import tomli_w

from ..errors import first_line
from . import files, lock
from .identity import digest, run_key
from .records import Result, Row, RunTable, Table

CHECKPOINT = re.compile(r"(\d{12})-([0-9a-f]{16})\.pt")
KEPT_CHECKPOINTS = 2
PROBE_ROWS = "probes.jsonl"


class State(Enum):
    """How far a run is."""

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
        path: where it is.
        notices: what was found damaged, and what was done about it.
    """

    path: Path

    def __post_init__(self) -> None:
        self.notices: list[str] = []

    @property
    def key(self) -> str:
        """The hash of the run."""
        return self.path.name

    def prepare(self, table: RunTable) -> None:
        """Make the folder and write the run's table, unless it is there already."""
        with files.store_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if self.table() is None:
            with self.claimed() as ours:  # or else its owner writes it
                if ours:
                    files.write(self.path / "spec.toml", tomli_w.dumps(table).encode())

    def table(self) -> RunTable | None:
        """Return the run's table as written, or None if it is not what the key was made of."""
        try:
            table = tomllib.loads(files.read(self.path / "spec.toml").decode())
        except ValueError:
            return None
        return cast("RunTable", table) if run_key(table) == self.key else None

    def state(self) -> State:
        """Return how far the run is, and whether somebody is at it."""
        return State.RUNNING if self.owner() else self.progress()

    def progress(self) -> State:
        """Return how far the run is, by what is in the folder."""
        result = self.result()
        if result is not None:
            intact = result["metrics"] == digest(files.read(self.path / "metrics.jsonl"))
            return State(result["outcome"]) if intact else State.DAMAGED
        if (self.path / "result.json").exists():
            return State.DAMAGED
        if (self.path / "failure.json").exists():
            return State.FAILED
        return State.PAUSED if self._checkpoints() else State.WAITING

    def owner(self) -> str | None:
        """Return which process is at work on the run."""
        return lock.owner(self.path / "lock")

    @contextlib.contextmanager
    def claimed(self) -> Iterator[bool]:
        """Keep others from the run meanwhile; yields False if another is at it."""
        with lock.hold(self.path / "lock") as ours:
            if ours:
                files.remove_leftovers(self.path)
            yield ours

    def add_environment(self, environment: dict[str, Any]) -> None:
        """Add where the run is about to be done."""
        entries = [*self.environments(), environment]
        files.write(self.path / "environment.json", _json(entries))

    def environments(self) -> list[dict[str, Any]]:
        """Return where the run was done, the last attempt last."""
        entries = self._read_json("environment.json")
        return entries if isinstance(entries, list) else []

    def append(self, rows: list[Row]) -> None:
        """Add rows of metrics."""
        files.append(self.path / "metrics.jsonl", _lines(rows))

    def write_rows(self, rows: list[Row]) -> None:
        """Write all rows of metrics anew."""
        files.write(self.path / "metrics.jsonl", _lines(rows))

    def rows(self) -> list[Row]:
        """Return the rows of metrics up to the first one that is not whole."""
        return _parse_lines(files.read(self.path / "metrics.jsonl"))

    def append_probe_rows(self, rows: list[Table]) -> None:
        """Add rows of what probes saw."""
        files.append(self.path / PROBE_ROWS, _lines(rows))

    def probe_rows(self) -> list[Table]:
        """Return what probes saw, up to the first row that is not whole."""
        return _parse_lines(files.read(self.path / PROBE_ROWS))

    def drop_probe_rows(self, after: int) -> None:
        """Remove rows of steps that will be taken again."""
        rows = self.probe_rows()
        kept = [row for row in rows if row["step"] <= after]
        if len(kept) < len(rows):
            files.write(self.path / PROBE_ROWS, _lines(kept))

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
        """Return the last checkpoint that is whole, or None; damaged ones are put aside."""
        for path in reversed(self._checkpoints()):
            content = files.read(path)
            if path.stem.partition("-")[2] == digest(content):
                return content
            with files.store_errors(path):
                path.rename(path.with_suffix(".damaged"))
            self.notices.append(f"its checkpoint {path.name} is damaged and was put aside")
        return None

    def finish(self, outcome: State, result: Result, rows: list[Row]) -> None:
        """Write metrics and result; from then on the run is over."""
        self.write_rows(rows)
        content = {"outcome": outcome.value, **result, "metrics": digest(_lines(rows))}
        files.write(self.path / "result.json", _json({**content, "sum": digest(_json(content))}))
        self.clear_failure()
        for old in self._checkpoints()[:-1]:
            files.remove(old)

    def result(self) -> Result | None:
        """Return the result, or None if there is none that is as it was written."""
        result = self._read_json("result.json")
        if not isinstance(result, dict):
            return None
        written = result.pop("sum", None)
        return cast("Result", result) if written == digest(_json(result)) else None

    def fail(self, error: BaseException | str) -> None:
        """Write down what went wrong."""
        text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
        files.write(
            self.path / "failure.json", _json({"error": first_line(error), "traceback": text})
        )

    def failure(self) -> str | None:
        """Return what went wrong, in a line."""
        failure = self._read_json("failure.json")
        return str(failure.get("error")) if isinstance(failure, dict) else None

    def traceback(self) -> str:
        """Return all of what went wrong; empty if nothing did."""
        failure = self._read_json("failure.json")
        return str(failure.get("traceback")) if isinstance(failure, dict) else ""

    def clear_failure(self) -> None:
        """Remove the record of a failure, so that the run is tried again."""
        files.remove(self.path / "failure.json")

    def _checkpoints(self) -> list[Path]:
        found = [path for path in self.path.glob("*.pt") if CHECKPOINT.fullmatch(path.name)]
        return sorted(found, key=lambda path: path.name)

    def _read_json(self, name: str) -> Any:
        try:
            return json.loads(files.read(self.path / name))
        except ValueError:
            return None


class Store:
    """A folder of runs."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def folder(self, key: str) -> RunFolder:
        """Return the folder of a run, which need not exist yet."""
        return RunFolder(self.path / "runs" / key)

    def folders(self) -> list[RunFolder]:
        """Return the folders of all runs that there are."""
        return [RunFolder(path) for path in sorted((self.path / "runs").glob("*")) if path.is_dir()]


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _parse_lines(content: bytes) -> list[Any]:
    """Return the JSON of each line, up to the first that is not whole."""
    rows = []
    for line in content.split(b"\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
