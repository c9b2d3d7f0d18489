"""A worker process: reads its job from standard input, and works on it.

It writes what happens to standard output, an event in JSON to the line. Standard input
stays open as long as the process that started it lives; when it closes, the worker ends
at once, so that no worker is left behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import NoReturn

from .events import Event
from .job import read_job
from .signals import stop_on_signals


def main() -> None:
    """Work on the job that the first line of standard input gives."""
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a task prints goes to the log
    job = read_job(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(run: str, event: Event) -> None:
        try:
            events.write(json.dumps({"run": run, **event}) + "\n")
            events.flush()
        except BrokenPipeError:  # nobody is left to tell, which is no failure of the run
            _end()

    with stop_on_signals() as stop:
        job.work(tell, stop)


def _end_with_parent() -> None:
    """End once standard input is closed."""
    # Not sys.stdin.read(): a child forked meanwhile would inherit its lock, and wait for ever.
    while os.read(0, 4096):
        pass
    _end()


def _end() -> NoReturn:
    """End at once, with all children, such as those that load data."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
