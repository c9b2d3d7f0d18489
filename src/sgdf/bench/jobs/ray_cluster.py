"""A job on a Ray cluster: each of its parts is a task there, on the same store.

Ray finds a machine for each task and begins it again when its worker or machine dies; the
store knows where the run was left. So every machine needs the store's disk.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import SpecError, StoreError, first_line
from ..store.run_folder import RunFolder, Store
from .events import Display, Event
from .job import MAX_DEATHS, TO_DO, Job, read_job
from .run_one import mark_failed
from .signals import Stop, stop_on_signals

REACH_SECONDS = 10.0
"""How long to try to reach a cluster; Ray itself would try for minutes."""

LINGER_SECONDS = 120.0
"""How long a lock may outlive its machine: file servers wait for it to come back (NFS 90 s)."""

LOOK_SECONDS = 0.2
"""How often to look whether tasks are done, locks are free, and an end was asked for."""


@dataclass
class Part:
    """A part of the job, and what is known of it.

    Attributes:
        job: what is to be done.
        saved: the steps that were saved when it was handed to Ray.
        tries: how often it was handed to Ray since it got on last.
        until: when to stop waiting for its lock.
    """

    job: Job
    saved: int = -1
    tries: int = 0
    until: float = 0.0

    def steps(self) -> int:
        """Return how many steps of its runs are saved."""
        return sum(self._folder(key).saved() for key in self.job.keys)

    def unfinished(self) -> list[str]:
        """Return which of its runs are to be done yet, whoever may be at them."""
        return [key for key in self.job.keys if self._folder(key).progress() in TO_DO]

    def is_held(self) -> bool:
        """Return whether somebody is at one of them."""
        return any(self._folder(key).owner() for key in self.unfinished())

    def _folder(self, key: str) -> RunFolder:
        return Store(self.job.store).folder(key)


class RayWorkers:
    """A Ray cluster over one job.

    Args:
        job: what to do.
        address: where the cluster is, as ``ray.init`` takes it.
        display: is told of what becomes of each run, when its task is done.
    """

    def __init__(self, job: Job, address: str, display: Display) -> None:
        self.job, self.address, self.display = job, address, display
        self.running: dict[Any, Part] = {}
        self.held: list[Part] = []
        self.trouble: str | None = None
        self.lost = 0

    def work(self, stop: Stop) -> None:
        """Return when nothing is left to do, or when an end was asked for and reached.

        Raises:
            SpecError: if there is no such cluster.
            StoreError: if one of its machines has not what it needs.
        """
        with connected(self.address):
            parts = [Part(part) for part in self.job.parts()]
            parts = [part for part in parts if not part.job.keys or part.unfinished()]
            self._tell_of_what_must_wait(parts)
            until = time.monotonic() + LINGER_SECONDS
            while parts and time.monotonic() < until:
                for part in parts:
                    self._submit(part)
                self._attend(stop)
                if self.trouble or stop.is_set():
                    break
                # What was to be drawn may be held by a machine that died, or a part has taken up
                # what that had left and leaves another in its place.
                before, parts = len(parts), [Part(p) for p in self.job.parts() if not p.keys]
                if len(parts) < before:
                    until = time.monotonic() + LINGER_SECONDS
                elif parts:
                    time.sleep(5 * LOOK_SECONDS)
        if self.trouble:
            raise StoreError(self.trouble)
        if self.lost:
            raise StoreError(f"{self.lost} tasks died {MAX_DEATHS} times before they could save")

    def _attend(self, stop: Stop) -> None:
        import ray

        asked = False
        while self.running or self.held:
            if not asked and (self.trouble or stop.is_set()):
                asked = True
                self.held.clear()
                for task in self.running:
                    ray.cancel(task)  # one that runs gets a SIGINT, and saves
            if self.running:
                done, _ = ray.wait(list(self.running), timeout=LOOK_SECONDS)
            else:
                done = []
                time.sleep(LOOK_SECONDS)
            for task in done:
                self._take(task, self.running.pop(task), asked)
            if not asked:
                self._look_again()

    def _submit(self, part: Part) -> None:
        import ray

        steps = part.steps()
        part.tries = 1 if steps > part.saved else part.tries + 1
        part.saved = steps
        task = ray.remote(do_part).options(**request(part.job))
        arguments = part.job.as_json(), str(part.job.store.absolute()), part.job.threads
        self.running[task.remote(*arguments)] = part

    def _take(self, task: Any, part: Part, asked: bool) -> None:
        """Take what came of a task."""
        import ray
        from ray import exceptions

        deaths = (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.OutOfMemoryError,
        )
        try:
            events, stopped = ray.get(task)
        except deaths as error:
            if not asked:
                self._died(part, type(error).__name__)
        except exceptions.RayError as error:
            if not asked:  # else it was cancelled before it had begun
                self.trouble = _line(error)
        else:
            for run, event in events:
                self.display(run, event)
            ended = {run for run, event in events if event["event"] == "end"}
            # Its lock was held, by somebody else or still by a machine that died with it; or
            # its machine was told to stop, not we.
            if not asked and set(part.unfinished()) - (set() if stopped else ended):
                part.until = time.monotonic() + LINGER_SECONDS
                self.held.append(part)

    def _died(self, part: Part, how: str) -> None:
        """Begin a part again that Ray has given up, if it got on; else give it up too."""
        if part.steps() > part.saved:
            self._submit(part)
            return
        line = f"its worker died, {MAX_DEATHS} times in a row before it could save: {how}"
        for key in part.unfinished():
            mark_failed(self.job.store, key, line, self.display)
        self.lost += not part.job.keys

    def _look_again(self) -> None:
        """Hand those to Ray again whose lock is free by now, and leave those whose is not."""
        for part in self.held[:]:
            free = not part.is_held()
            if free or time.monotonic() > part.until:
                self.held.remove(part)
            if free and part.unfinished() and part.tries < MAX_DEATHS:
                self._submit(part)

    def _tell_of_what_must_wait(self, parts: list[Part]) -> None:
        """Tell of what no machine has: Ray waits for one, which may never come."""
        import ray

        there = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]  # Ray's
        for part in parts:
            cpus, gpus = max(1, part.job.threads), part.job.gpus
            if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in there):
                line = f"waits for a machine with {cpus} CPUs and {gpus} GPUs to join the cluster"
                for key in part.job.keys or ("",):
                    self.display(key, {"event": "notice", "line": line})
                if not part.job.keys:
                    break  # the others are like it


def request(job: Job) -> dict[str, Any]:
    """Return what a task asks of Ray."""
    return {
        "num_cpus": max(1, job.threads),
        "num_gpus": job.gpus,
        # If the runs are not known, a last try is needed to write down that they failed.
        "max_retries": MAX_DEATHS - 1 if job.keys else MAX_DEATHS,
        "name": " ".join(["sgdf", *job.keys]),
    }


def do_part(line: str, store: str, threads: int) -> tuple[list[tuple[str, Event]], bool]:
    """Do a part of a job, as a task on some machine.

    Returns:
        What happened, and whether an end was asked for before it was through.
    """
    if not os.path.isdir(store):
        raise StoreError(f"{socket.gethostname()} has no {store}: it must be on a disk of all")
    os.environ["OMP_NUM_THREADS"] = str(threads)  # Ray leaves one that its machine has
    events: list[tuple[str, Event]] = []

    def tell(run: str, event: Event) -> None:
        if event["event"] in ("begin", "notice", "end", "over"):
            events.append((run, event))

    with stop_on_signals() as stop:
        read_job(line).work(tell, stop)
    return events, stop.is_set()


def check(address: str) -> None:
    """Refuse an address where no cluster can be.

    Raises:
        SpecError: says why.
    """
    try:
        import ray  # noqa: F401  # only whether it is there
    except ModuleNotFoundError:
        raise SpecError("--ray: needs ray: pip install 'sgdf[ray]'") from None
    if address.startswith("ray://"):
        raise SpecError(f"--ray {address}: give the command on a machine of the cluster, with auto")
    if address == "auto":
        address = _nearest()
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise SpecError(f"--ray {address}: must be auto, local or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SpecError(f"--ray {address}: cannot be reached: {error}") from error


def _nearest() -> str:
    """Return where Ray's ``auto`` leads, which may be where a cluster was long ago."""
    try:
        from ray._private.services import get_ray_address_from_environment
    except ImportError:  # it promises nothing; then Ray finds it itself
        return "auto"
    try:
        return str(get_ray_address_from_environment("auto", None))
    except ConnectionError:
        raise SpecError("--ray auto: no cluster runs on this machine") from None


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Be a driver of the cluster meanwhile."""
    check(address)
    # Nothing is sent anywhere unasked, and a task without a GPU is no reason for advice.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    try:
        with _handlers_kept():
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if address == "local" else None,
            )
    except Exception as error:  # Ray promises no kind of it
        raise SpecError(f"--ray {address}: {first_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _handlers_kept() -> Iterator[None]:
    """Keep what SIGTERM does, which Ray changes to an end without saving."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _line(error: Exception) -> str:
    """Return in a line what kept a task from its runs."""
    cause = getattr(error, "cause", None) or error
    return (
        str(cause) if isinstance(cause, StoreError) else f"a Ray task failed: {first_line(cause)}"
    )
