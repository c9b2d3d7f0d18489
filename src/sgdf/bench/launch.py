"""Do the runs of an experiment: in this process, or over worker processes that share them."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any, Protocol

from .attempt import Stop, attempt
from .files import StoreError, kept
from .objects import importable_from
from .processes import Processes
from .spec import Run, Table, read
from .store import State, Store

TO_DO = (State.WAITING, State.PAUSED, State.DAMAGED)
MAX_DEATHS = 5
"""How often in a row a worker may die over a run, without a checkpoint between, until it failed."""


class Display(Protocol):
    """Shows people what happens."""

    def __call__(self, run: str, event: dict[str, Any]) -> None:
        """Take news of a run, by its key."""


@dataclass(frozen=True)
class Plan:
    """What to do and where.

    Attributes:
        runs: in the order in which they are begun.
        store: the folder that keeps them.
        folder: where modules of the user's may lie.
        checkpoint_every: seconds between checkpoints.
    """

    runs: tuple[Run, ...]
    store: Path
    folder: Path | None = None
    checkpoint_every: float = 60.0

    def prepare(self, retry: bool = False) -> None:
        """Make every run's folder; with ``retry``, let failed ones be tried again."""
        store = Store(self.store)
        for run in self.runs:
            folder = store.folder(run)
            folder.prepare(run)
            if retry:
                folder.forgive()

    def as_json(self) -> str:
        """Return the plan as a line for a worker."""
        return json.dumps(
            {
                "runs": [run.as_table() for run in self.runs],
                "store": str(self.store.absolute()),
                "folder": self.folder and str(self.folder),
                "checkpoint_every": self.checkpoint_every,
            }
        )

    @classmethod
    def from_json(cls, line: str) -> Plan:
        """Return the plan that such a line holds."""
        content: Table = json.loads(line)
        folder = content["folder"] and Path(content["folder"])
        if folder:
            importable_from(folder)
        runs = tuple(run for table in content["runs"] for run in read(table).runs)
        return cls(runs, Path(content["store"]), folder, content["checkpoint_every"])


def work(plan: Plan, display: Display, stop: Stop) -> None:
    """Do every run that is to be done and that nobody else is at, one after the other."""
    store = Store(plan.store)
    with Processes() as processes:
        for run in plan.runs:
            folder = store.folder(run)
            first = processes.rank == 0
            wanted = first and not stop.is_set() and folder.progress() in TO_DO
            with folder.claimed() if wanted else contextlib.nullcontext(False) as ours:
                # Another process may have finished it before the claim.
                if not processes.share(ours and folder.progress() in TO_DO):
                    continue

                def tell(event: dict[str, Any], run: Run = run, first: bool = first) -> None:
                    if first:
                        display(run.key, event)

                tell({"event": "begin", "process": os.getpid()})
                state, line = attempt(
                    run,
                    folder,
                    processes,
                    checkpoint_every=plan.checkpoint_every,
                    stop=stop,
                    tell=tell,
                )
                for notice in folder.notices:
                    tell({"event": "notice", "line": notice})
            tell({"event": "end", "state": state.value, "line": line})


@contextlib.contextmanager
def stopping() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into a request to save and stop; a second one ends at once."""
    stop = threading.Event()
    before = {}

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Worker:
    """A process that works on the plan, and what is known of it."""

    process: subprocess.Popen[bytes]
    run: str | None = None
    unread: bytes = b""

    def lines(self, chunk: bytes) -> list[dict[str, Any]]:
        """Return the events that are complete with these bytes."""
        *whole, self.unread = (self.unread + chunk).split(b"\n")
        return [json.loads(line) for line in whole]


class Workers:
    """Worker processes over one plan; those that die are replaced.

    Each is a process that works on the store like any other: the locks deal out the runs.

    Args:
        plan: what to do.
        count: how many.
        display: is told of everything.
    """

    def __init__(self, plan: Plan, count: int, display: Display) -> None:
        self.plan, self.count, self.display = plan, count, display
        self.selector = selectors.DefaultSelector()
        self.deaths: Counter[str] = Counter()
        self.stillborn = 0
        self.log_path = plan.store / "workers.log"

    def work(self, stop: Stop) -> None:
        """Return when nothing is left to do, or when an end was asked for and reached."""
        with kept(self.log_path):
            log = self.log_path.open("ab")
        with log:
            try:
                for _ in range(self.count):
                    self._start(log)
                self._attend(stop, log)
            finally:
                self._end_all()

    def _attend(self, stop: Stop, log: IO[bytes]) -> None:
        asked = False
        while self.selector.get_map():
            if stop.is_set() and not asked:
                asked = True
                for worker in self._workers():
                    worker.process.terminate()
            for key, _ in self.selector.select(timeout=0.2):
                chunk = os.read(key.fd, 1 << 16)
                for event in key.data.lines(chunk):
                    self._hear(key.data, event)
                if not chunk and self._lost(key.data) and not stop.is_set():
                    self._start(log)

    def _start(self, log: IO[bytes]) -> None:
        threads = max(run.train.threads for run in self.plan.runs)
        process = subprocess.Popen(
            [sys.executable, "-m", "sgdf.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)} if threads else None,
            start_new_session=True,  # Ctrl-C is for us; we pass it on
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once, as will be seen
            process.stdin.write(self.plan.as_json().encode() + b"\n")
            process.stdin.flush()
        self.selector.register(process.stdout, selectors.EVENT_READ, Worker(process))

    def _hear(self, worker: Worker, event: dict[str, Any]) -> None:
        run = event.pop("run")
        if event["event"] in ("begin", "saved", "end"):
            self.stillborn = 0
            worker.run = None if event["event"] == "end" else run
        if event["event"] == "saved":
            self.deaths[run] = 0
        self.display(run, event)

    def _lost(self, worker: Worker) -> bool:
        """Take leave of a worker whose pipe is closed; return whether it needs replacing."""
        process = worker.process
        assert process.stdin is not None
        assert process.stdout is not None
        self.selector.unregister(process.stdout)
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
        if code == 0:
            return False
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        if worker.run is None:
            self.stillborn += 1
            if self.stillborn >= MAX_DEATHS:
                raise StoreError(f"workers keep dying {how} at their start; see {self.log_path}")
            return True
        self.deaths[worker.run] += 1
        line = f"its worker died {how}"
        if self.deaths[worker.run] < MAX_DEATHS:
            self.display(
                worker.run, {"event": "notice", "line": f"{line}; another goes on with it"}
            )
        else:
            self._give_up(worker.run, f"{line}, {MAX_DEATHS} times in a row before it could save")
        return True

    def _give_up(self, key: str, line: str) -> None:
        run = next(run for run in self.plan.runs if run.key == key)
        folder = Store(self.plan.store).folder(run)
        with folder.claimed() as ours:
            if ours:
                folder.fail(line)
        self.display(key, {"event": "end", "state": State.FAILED.value, "line": line})

    def _workers(self) -> list[Worker]:
        return [key.data for key in self.selector.get_map().values()]

    def _end_all(self) -> None:
        """Leave no process behind, whatever happened."""
        for worker in self._workers():
            worker.process.kill()
            worker.process.wait()
