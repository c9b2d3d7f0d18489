"""How a process is asked to stop: by Ctrl-C, by SIGTERM, or by another thread."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol


class Stop(Protocol):
    """Whether a stop was asked for; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Return whether it was."""


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into a request to save and stop; a second one ends the process."""
    stop = threading.Event()
    before = {}

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        os.write(2, b"\nSaving after this step; press again to end at once.\n")

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
