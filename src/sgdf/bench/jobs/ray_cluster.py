"""A job on a Ray cluster: each of its parts is a Ray task that works on the same store.

Ray chooses a machine for each task, and starts the task again when its worker or machine dies; the
task then resumes the run from the store. So every machine needs the disk with the store.
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
from .job import MAX_DEATHS, TO_DO, Job, read_job, repeated_deaths
from .run_one import mark_failed
from .signals import Stop, stop_on_signals

CONNECT_SECONDS = 10.0
"""How long to try to reach a cluster; Ray itself would try for minutes."""

LINGER_SECONDS = 120.0
"""How long a lock may outlive its machine: file servers wait for it to come back (NFS 90 s)."""

POLL_SECONDS = 0.2
"""Between two looks at the tasks, the locks and the request to stop."""


@dataclass
class Part:
    """A part of the job, with what is known about its tasks.

    Attributes:
        job: the work.
        saved_steps: how many steps were saved when it was submitted last.
        submissions: how often it was submitted since it last made progress.
        deadline: when to stop waiting for its lock.
    """

    job: Job
    saved_steps: int = -1
    submissions: int = 0
    deadline: float = 0.0

    def count_saved_steps(self) -> int:
        """Return how many steps of its runs are saved now."""
        return sum(self._folder(key).saved() for key in self.job.keys)

    def runs_to_do(self) -> list[str]:
        """Return the keys of its runs that have no result, even if a process is training them."""
        return [key for key in self.job.keys if self._folder(key).progress() in TO_DO]

    def is_locked(self) -> bool:
        """Return whether a process holds the lock of one of them."""
        return any(self._folder(key).owner() for key in self.runs_to_do())

    def _folder(self, key: str) -> RunFolder:
        return Store(self.job.store).folder(key)


class RayWorkers:
    """Shares one job among the machines of a Ray cluster.

    Args:
        job: the work.
        address: of the cluster, as ``ray.init`` takes it.
        display: receives the events of each run when its task is done.
    """

    def __init__(self, job: Job, address: str, display: Display) -> None:
        self.job, self.address, self.display = job, address, display
        self.running: dict[Any, Part] = {}
        self.locked: list[Part] = []
        self.error: str | None = None
        self.abandoned = 0

    def work(self, stop: Stop) -> None:
        """Return when nothing is left to do, or when all tasks have saved and stopped.

        Raises:
            SpecError: if there is no such cluster.
            StoreError: if one of its machines lacks something that a task needs.
        """
        with connected(self.address):
            parts = [Part(part) for part in self.job.parts()]
            parts = [part for part in parts if not part.job.keys or part.runs_to_do()]
            self._report_missing_resources(parts)
            deadline = time.monotonic() + LINGER_SECONDS
            while parts and time.monotonic() < deadline:
                for part in parts:
                    self._submit(part)
                self._wait_for_tasks(stop)
                if self.error or stop.is_set():
                    break
                # Trials of a search may be left: one may still be locked by a machine that died,
                # or a task resumed such a trial instead of the one that it was submitted for.
                before, parts = len(parts), [Part(p) for p in self.job.parts() if not p.keys]
                if len(parts) < before:
                    deadline = time.monotonic() + LINGER_SECONDS
                elif parts:
                    time.sleep(5 * POLL_SECONDS)
        if self.error:
            raise StoreError(self.error)
        if self.abandoned:
            raise StoreError(
                f"{self.abandoned} tasks died {MAX_DEATHS} times before they could save a "
                "checkpoint; Ray's logs of the workers may say why"
            )

    def _wait_for_tasks(self, stop: Stop) -> None:
        """Receive the results of all tasks; submit parts again when their locks are released."""
        import ray

        cancelled = False
        while self.running or self.locked:
            if not cancelled and (self.error or stop.is_set()):
                cancelled = True
                self.locked.clear()
                for task in self.running:
                    ray.cancel(task)  # a running task gets a SIGINT, and saves
            if self.running:
                done, _ = ray.wait(list(self.running), timeout=POLL_SECONDS)
            else:
                done = []
                time.sleep(POLL_SECONDS)
            for task in done:
                self._receive(task, self.running.pop(task), cancelled)
            if not cancelled:
                self._submit_unlocked()

    def _submit(self, part: Part) -> None:
        import ray

        steps = part.count_saved_steps()
        part.submissions = 1 if steps > part.saved_steps else part.submissions + 1
        part.saved_steps = steps
        task = ray.remote(work_on_part).options(**task_options(part.job))
        arguments = part.job.as_json(), str(part.job.store.absolute()), part.job.threads
        self.running[task.remote(*arguments)] = part

    def _receive(self, task: Any, part: Part, cancelled: bool) -> None:
        """Show the events of a task that is done, or handle its error."""
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
            if not cancelled:
                self._handle_death(part, type(error).__name__)
        except exceptions.RayError as error:
            if not cancelled:  # else the task was cancelled before it started
                self.error = _message(error)
        else:
            for run, event in events:
                self.display(run, event)
            ended = {run for run, event in events if event["event"] == "end"}
            # A run without an end was locked, by another process or still by a machine that died.
            # If the task was stopped by a signal to its machine, its runs did not end either.
            if not cancelled and set(part.runs_to_do()) - (set() if stopped else ended):
                part.deadline = time.monotonic() + LINGER_SECONDS
                self.locked.append(part)

    def _handle_death(self, part: Part, cause: str) -> None:
        """Submit a part again if it made progress before it died; else mark its runs as failed."""
        if part.count_saved_steps() > part.saved_steps:
            self._submit(part)
            return
        what, log = f"its worker died ({cause})", "Ray's log of the worker"
        line = repeated_deaths(what, MAX_DEATHS, log)
        for key in part.runs_to_do():
            mark_failed(self.job.store, key, line, self.display)
        self.abandoned += not part.job.keys

    def _submit_unlocked(self) -> None:
        """Submit the parts again whose locks were released, and drop those past their deadline."""
        for part in self.locked[:]:
            free = not part.is_locked()
            if free or time.monotonic() > part.deadline:
                self.locked.remove(part)
            if free and part.runs_to_do() and part.submissions < MAX_DEATHS:
                self._submit(part)

    def _report_missing_resources(self, parts: list[Part]) -> None:
        """Show which parts need more than any machine has: Ray waits until such a machine joins."""
        import ray

        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]  # Ray's
        for part in parts:
            cpus, gpus = max(1, part.job.threads), part.job.gpus
            if not any(has.get("CPU", 0) >= cpus and has.get("GPU", 0) >= gpus for has in machines):
                line = f"waits for a machine with {cpus} CPUs and {gpus} GPUs to join the cluster"
                for key in part.job.keys or ("",):
                    self.display(key, {"event": "notice", "line": line})
                if not part.job.keys:
                    break  # all trials of a search need the same


def task_options(job: Job) -> dict[str, Any]:
    """Return the options of the Ray task for a part: what it needs, and how often it is retried."""
    return {
        "num_cpus": max(1, job.threads),
        "num_gpus": job.gpus,
        # A trial's runs are not known to us, so its last try is needed to mark them as failed.
        "max_retries": MAX_DEATHS - 1 if job.keys else MAX_DEATHS,
        "name": " ".join(["sgdf", *job.keys]),
    }


def work_on_part(line: str, store: str, threads: int) -> tuple[list[tuple[str, Event]], bool]:
    """Work on a part of a job; this is the function of the Ray task.

    Args:
        line: the part, as ``Job.as_json`` returns it.
        store: the folder that keeps the runs.
        threads: how many a run uses.

    Returns:
        The events for the display, and whether a signal stopped the work.
    """
    if not os.path.isdir(store):
        raise StoreError(
            f"{socket.gethostname()} has no {store}: the store must be on a disk that all machines "
            "share"
        )
    os.environ["OMP_NUM_THREADS"] = str(threads)  # Ray would keep the value of its machine
    events: list[tuple[str, Event]] = []

    def collect(run: str, event: Event) -> None:
        if event["event"] in ("begin", "notice", "end", "over"):
            events.append((run, event))

    with stop_on_signals() as stop:
        read_job(line).work(collect, stop)
    return events, stop.is_set()


def check(address: str) -> None:
    """Refuse an address at which there can be no cluster.

    Raises:
        SpecError: names the address and the reason.
    """
    try:
        import ray  # noqa: F401  # only to see whether it is installed
    except ModuleNotFoundError:
        raise SpecError("--ray: needs ray: pip install 'sgdf[ray]'") from None
    if address.startswith("ray://"):
        raise SpecError(f"--ray {address}: give the command on a machine of the cluster, with auto")
    if address == "auto":
        address = _running_cluster()
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise SpecError(f"--ray {address}: must be auto, local or HOST:PORT")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise SpecError(f"--ray {address}: cannot be reached: {error}") from error


def _running_cluster() -> str:
    """Return the address that Ray's ``auto`` stands for; the cluster there may have ended."""
    try:
        from ray._private.services import get_ray_address_from_environment
    except ImportError:  # a private function, which a later Ray may not have; Ray finds it itself
        return "auto"
    try:
        return str(get_ray_address_from_environment("auto", None))
    except ConnectionError:
        raise SpecError("--ray auto: no cluster runs on this machine") from None


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Be connected to the cluster meanwhile.

    Raises:
        SpecError: if there is no such cluster.
    """
    check(address)
    # No usage statistics are sent without consent; and no warning about tasks without a GPU.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray

    try:
        with _keep_sigterm_handler():
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                include_dashboard=False if address == "local" else None,
            )
    except Exception as error:  # Ray does not document which
        raise SpecError(f"--ray {address}: {first_line(error)}") from error
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Restore the handler of SIGTERM afterwards: Ray's would end the process without saving."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _message(error: Exception) -> str:
    """Return in one line why a task could not work on its runs."""
    cause = getattr(error, "cause", None) or error
    return (
        str(cause) if isinstance(cause, StoreError) else f"a Ray task failed: {first_line(cause)}"
    )
