"""Worker processes that share a job, and what becomes of those that die."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import IO, cast

from ..errors import StoreError
from ..store.files import store_errors
from .events import Display, Event
from .job import MAX_DEATHS, Job
from .run_one import mark_failed
from .signals import Stop


@dataclass
class Worker:
    """A process that works on the job, and what is known of it."""

    process: subprocess.Popen[bytes]
    run: str | None = None
    unread: bytes = b""

    def lines(self, chunk: bytes) -> list[tuple[str, Event]]:
        """Return the events that are complete with these bytes."""
        *whole, self.unread = (self.unread + chunk).split(b"\n")
        return [_event(line) for line in whole]


def _event(line: bytes) -> tuple[str, Event]:
    """Return the run and the event that a line of a worker tells of."""
    content = json.loads(line)
    return content.pop("run"), cast("Event", content)


class Workers:
    """Worker processes over one job; those that die are replaced.

    Each is a process that works on the store like any other: the locks deal out the runs.

    Args:
        job: what to do.
        count: how many.
        display: is told of everything.
    """

    def __init__(self, job: Job, count: int, display: Display) -> None:
        self.job, self.count, self.display = job, count, display
        self.selector = selectors.DefaultSelector()
        self.deaths: Counter[str] = Counter()
        self.stillborn = 0
        self.log_path = job.store / "workers.log"

    def work(self, stop: Stop) -> None:
        """Return when nothing is left to do, or when an end was asked for and reached."""
        with store_errors(self.log_path):
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
                for run, event in key.data.lines(chunk):
                    self._hear(key.data, run, event)
                if not chunk and self._lost(key.data, stop):
                    self._start(log)

    def _start(self, log: IO[bytes]) -> None:
        threads = self.job.threads
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sgdf.bench.jobs.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)} if threads else None,
            start_new_session=True,  # Ctrl-C is for us; we pass it on
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once, as will be seen
            process.stdin.write(self.job.as_json().encode() + b"\n")
            process.stdin.flush()
        self.selector.register(process.stdout, selectors.EVENT_READ, Worker(process))

    def _hear(self, worker: Worker, run: str, event: Event) -> None:
        if event["event"] in ("begin", "saved", "end"):
            self.stillborn = 0
            worker.run = None if event["event"] == "end" else run
        if event["event"] == "saved":
            self.deaths[run] = 0
        self.display(run, event)

    def _lost(self, worker: Worker, stop: Stop) -> bool:
        """Take leave of a worker whose pipe is closed; return whether it needs replacing."""
        process = worker.process
        assert process.stdin is not None
        assert process.stdout is not None
        self.selector.unregister(process.stdout)
        process.stdout.close()
        code = process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # only now: a worker takes this for our end, and ends
        if code == 0 or stop.is_set():
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
            line += f", {MAX_DEATHS} times in a row before it could save"
            mark_failed(self.job.store, worker.run, line, self.display)
        return True

    def _workers(self) -> list[Worker]:
        return [key.data for key in self.selector.get_map().values()]

    def _end_all(self) -> None:
        """Leave no process behind, whatever happened."""
        for worker in self._workers():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.process.pid, signal.SIGKILL)  # its children too
            worker.process.wait()
