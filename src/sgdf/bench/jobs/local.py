"""Worker processes on this machine that share a job; those that die are replaced."""

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

from ..errors import SpecError, StoreError
from ..store.files import open_to_append, read, store_errors
from .events import Display, Event
from .job import MAX_DEATHS, Job, repeated_deaths
from .run_one import mark_failed
from .signals import Stop


@dataclass
class Worker:
    """A worker process.

    Attributes:
        process: the process.
        run: the key of the run that it is training.
        unread: the beginning of a line that has not arrived as a whole.
    """

    process: subprocess.Popen[bytes]
    run: str | None = None
    unread: bytes = b""

    def events(self, chunk: bytes) -> list[tuple[str, Event]]:
        """Return the events that are complete once these bytes have arrived."""
        *lines, self.unread = (self.unread + chunk).split(b"\n")
        return [_event(line) for line in lines]


def _event(line: bytes) -> tuple[str, Event]:
    """Return the run and the event in a line of a worker's output."""
    content = json.loads(line)
    return content.pop("run"), cast("Event", content)


class Workers:
    """Shares one job among worker processes, and replaces those that die.

    A worker works on the store like any other process: locks decide who does which run.

    Args:
        job: the work.
        count: how many workers.
        display: receives all events.
    """

    def __init__(self, job: Job, count: int, display: Display) -> None:
        self.job, self.count, self.display = job, count, display
        self.selector = selectors.DefaultSelector()
        self.deaths: Counter[str] = Counter()
        self.deaths_at_start = 0
        self.log_path = job.store / "workers.log"

    def work(self, stop: Stop) -> None:
        """Return when nothing is left to do, or when all workers have saved and stopped."""
        with store_errors(self.log_path):
            log = open_to_append(self.log_path)
        with log:
            try:
                for _ in range(self.count):
                    self._start(log)
                self._watch(stop, log)
            finally:
                self._kill_all()

    def _watch(self, stop: Stop, log: IO[bytes]) -> None:
        """Pass on the events of the workers until all have ended; replace those that die."""
        terminated = False
        while self.selector.get_map():
            if stop.is_set() and not terminated:
                terminated = True
                for worker in self._workers():
                    worker.process.terminate()
            for key, _ in self.selector.select(timeout=0.2):
                chunk = os.read(key.fd, 1 << 16)
                for run, event in key.data.events(chunk):
                    self.receive(key.data, run, event)
                if not chunk and self._needs_replacement(key.data, stop):
                    self._start(log)

    def _start(self, log: IO[bytes]) -> None:
        threads = self.job.threads
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "sgdf.bench.jobs.worker_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)} if threads else None,
            start_new_session=True,  # so that Ctrl-C reaches this process alone, which passes it on
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once, which _watch() will notice
            process.stdin.write(self.job.as_json().encode() + b"\n")
            process.stdin.flush()
        self.selector.register(process.stdout, selectors.EVENT_READ, Worker(process))

    def receive(self, worker: Worker, run: str, event: Event) -> None:
        """Show an event, and note what it says about the worker and its run.

        Raises:
            SpecError: if the worker cannot begin; a replacement could not either.
        """
        if event["event"] == "refused":
            raise SpecError(event["line"])
        if event["event"] in ("begin", "saved", "end"):
            self.deaths_at_start = 0
            worker.run = None if event["event"] == "end" else run
        if event["event"] == "saved":
            self.deaths[run] = 0
        self.display(run, event)

    def _needs_replacement(self, worker: Worker, stop: Stop) -> bool:
        """Wait for a worker whose output is closed; return whether it died and must be replaced."""
        process = worker.process
        assert process.stdin is not None
        assert process.stdout is not None
        self.selector.unregister(process.stdout)
        process.stdout.close()
        code = process.wait()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # not earlier: a worker whose input is closed ends at once
        if code == 0 or stop.is_set():
            return False
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        if worker.run is None:
            self.deaths_at_start += 1
            if self.deaths_at_start >= MAX_DEATHS:
                raise StoreError(
                    f"workers keep dying {how} at their start; {self.log_path} ends with: "
                    f"{self._last_words()}"
                )
            return True
        self.deaths[worker.run] += 1
        deaths, line = self.deaths[worker.run], f"its worker died {how}"
        if deaths < MAX_DEATHS:
            line += (
                f"; another worker resumes it (death {deaths} without a new checkpoint; after "
                f"{MAX_DEATHS} it fails)"
            )
            self.display(worker.run, {"event": "notice", "line": line})
        else:
            line = repeated_deaths(line, deaths, str(self.log_path))
            mark_failed(self.job.store, worker.run, line, self.display)
        return True

    def _last_words(self) -> str:
        """Return the last line of the workers' log, which is usually an error."""
        lines = read(self.log_path).decode(errors="replace").splitlines()
        return lines[-1] if lines else "nothing"

    def _workers(self) -> list[Worker]:
        return [key.data for key in self.selector.get_map().values()]

    def _kill_all(self) -> None:
        """Kill the workers that are left, after an error."""
        for worker in self._workers():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.process.pid, signal.SIGKILL)  # its children too
            worker.process.wait()
