"""Where runs are kept: one folder for each, in which nothing is ever half written.

::

    DIR/runs/KEY/spec.toml        what the run is; KEY is its hash
                 environment.json where and with what each attempt ran
                 metrics.jsonl    a row for each reading and each epoch
                 STEP-SUM.pt      the last two checkpoints, with a checksum in the name
                 result.json      only once the run is over
                 failure.json     what went wrong the last time, if it did
                 tensorboard/     the same metrics as events
                 lock             who is at work on it
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import tomli_w
import torch

from . import files, lock
from .grid import Table
from .spec import Run, run_key

CHECKPOINT = re.compile(r"(\d{12})-([0-9a-f]{16})\.pt")
KEPT_CHECKPOINTS = 2


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
    def over(self) -> bool:
        """Whether the run has its result."""
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

    def prepare(self, run: Run) -> None:
        """Make the folder and write what the run is, unless it is there already."""
        with files.kept(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if self.table() is None:
            with self.claimed() as ours:  # or else its owner writes it
                if ours:
                    files.write(self.path / "spec.toml", tomli_w.dumps(run.as_table()).encode())

    def table(self) -> Table | None:
        """Return the run's spec as written, or None if it is not what the hash was made of."""
        try:
            table = tomllib.loads(files.read(self.path / "spec.toml").decode())
        except ValueError:
            return None
        return table if run_key(table) == self.key else None

    def state(self) -> State:
        """Return how far the run is, and whether somebody is at it."""
        return State.RUNNING if self.owner() else self.progress()

    def progress(self) -> State:
        """Return how far the run is, by what is in the folder."""
        result = self.result()
        if result is not None:
            intact = result["metrics"] == _digest(files.read(self.path / "metrics.jsonl"))
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
        with lock.held(self.path / "lock") as ours:
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

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Add rows of metrics."""
        files.append(self.path / "metrics.jsonl", _lines(rows))

    def write_rows(self, rows: list[dict[str, Any]]) -> None:
        """Write all rows of metrics anew."""
        files.write(self.path / "metrics.jsonl", _lines(rows))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of metrics up to the first one that is not whole."""
        rows = []
        for line in files.read(self.path / "metrics.jsonl").split(b"\n"):
            try:
                rows.append(json.loads(line))
            except ValueError:
                break
        return rows

    def save(self, state: dict[str, Any], step: int) -> None:
        """Keep a checkpoint, and the one before it."""
        buffer = io.BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        name = f"{step:012}-{_digest(content)}.pt"
        if not self._checkpoints():
            _load(content)  # what cannot be loaded again should be known now
        files.write(self.path / name, content)
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            if old.name != name:
                files.remove(old)

    def saved(self) -> int:
        """Return the step of the last checkpoint, 0 if there is none."""
        return max((int(path.name.partition("-")[0]) for path in self._checkpoints()), default=0)

    def load(self) -> dict[str, Any] | None:
        """Return the last checkpoint that is whole, or None; damaged ones are put aside."""
        for path in reversed(self._checkpoints()):
            content = files.read(path)
            if path.stem.partition("-")[2] == _digest(content):
                return _load(content)
            with files.kept(path):
                path.rename(path.with_suffix(".damaged"))
            self.notices.append(f"its checkpoint {path.name} is damaged and was put aside")
        return None

    def finish(self, outcome: State, result: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        """Write metrics and result; from then on the run is over."""
        self.write_rows(rows)
        content = {"outcome": outcome.value, **result, "metrics": _digest(_lines(rows))}
        files.write(self.path / "result.json", _json({**content, "sum": _digest(_json(content))}))
        self.forgive()
        for old in self._checkpoints()[:-1]:
            files.remove(old)

    def result(self) -> dict[str, Any] | None:
        """Return the result, or None if there is none that is as it was written."""
        result = self._read_json("result.json")
        if not isinstance(result, dict):
            return None
        written = result.pop("sum", None)
        return result if written == _digest(_json(result)) else None

    def fail(self, error: BaseException | str) -> None:
        """Write down what went wrong."""
        text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
        files.write(self.path / "failure.json", _json({"error": brief(error), "traceback": text}))

    def failure(self) -> str | None:
        """Return what went wrong, in a line."""
        failure = self._read_json("failure.json")
        return str(failure.get("error")) if isinstance(failure, dict) else None

    def traceback(self) -> str:
        """Return all of what went wrong; empty if nothing did."""
        failure = self._read_json("failure.json")
        return str(failure.get("traceback")) if isinstance(failure, dict) else ""

    def forgive(self) -> None:
        """Forget a failure, so that the run is tried again."""
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

    def folder(self, run: Run | str) -> RunFolder:
        """Return the folder of a run, given whole or by its key, which need not exist yet."""
        return RunFolder(self.path / "runs" / (run if isinstance(run, str) else run.key))

    def folders(self) -> list[RunFolder]:
        """Return the folders of all runs that there are."""
        return [RunFolder(path) for path in sorted((self.path / "runs").glob("*")) if path.is_dir()]


def brief(error: BaseException | str) -> str:
    """Return an error in a line."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0]


def _load(content: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    return state


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()
