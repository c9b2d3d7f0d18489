"""The main program of a worker process: it reads a job from standard input and works on it.

It writes its events to standard output, each as a line of JSON. Standard input stays open for as
long as the parent process lives. When it closes, the worker ends at once, so that no worker
outlives its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import NoReturn

from ..errors import SpecError
from .events import Event
from .freed_memory import keep_freed_memory
from .job import read_job
from .signals import stop_on_signals


def main() -> None:
    """Work on the job in the first line of standard input."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a task prints goes to the log, not between the events
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    keep_freed_memory()

    def send(run: str, event: Event) -> None:
        try:
            events.write(json.dumps({"run": run, **event}) + "\n")
            events.flush()
        except BrokenPipeError:  # the parent has died, which is no failure of the run
            _end()

    try:
        job = read_job(line)
    except SpecError as error:
        send("", {"event": "refused", "line": str(error)})
        return
    with stop_on_signals() as stop:
        job.work(send, stop)


def _end_with_parent() -> None:
    """End once standard input is closed."""
    # Not sys.stdin.read(), which holds a lock: a child forked meanwhile would wait for it forever.
    while os.read(0, 4096):
        pass
    _end()


def _end() -> NoReturn:
    """End at once, together with all children, such as the workers of a DataLoader."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
