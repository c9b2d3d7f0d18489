"""How a process is asked to stop: by Ctrl-C, by SIGTERM, or by another thread."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Protocol

from ..training.trainer import Stopped

AFTER_STEP = "Stopping after this step; press again to end at once."
OTHERS = "Stopping the processes that train, which save first; press again to end at once."
AFTER_EVALUATION = (
    "Saving after this evaluation; press again to end at once, and the run resumes from its last "
    "checkpoint."
)
AT_ONCE = "Stopping; the run resumes with this evaluation, from what was last kept of it."
SOON = "Stopping as soon as the evaluation has kept what it has; press again to end at once."


class Stop(Protocol):
    """Whether a stop was asked for; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Return whether it was."""


class StopRequest(threading.Event):
    """A stop that signals ask for; it can interrupt an evaluation.

    Args:
        answer: what is said to a signal.
    """

    def __init__(self, answer: str = AFTER_STEP) -> None:
        super().__init__()
        self.answer: Callable[[], str] = lambda: answer
        self.interrupted = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: ask to stop, or end the process if that was asked for before."""
        if self.is_set():
            raise KeyboardInterrupt
        self.set()
        answer = self.answer()
        os.write(2, f"\n{answer}\n".encode())
        if answer == AT_ONCE:
            self.interrupted = True
            raise Stopped

    @contextlib.contextmanager
    def during_evaluation(
        self, interrupt: bool, soon: Callable[[], bool] = lambda: False
    ) -> Iterator[None]:
        """Answer a signal within the block as fits an evaluation.

        Args:
            interrupt: raise ``Stopped`` at once. The block may catch that, or turn it into an
                error of its own: it is raised again at the end.
            soon: whether the block will soon see for itself that a stop was asked for.
        """
        before = self.answer
        self.answer = lambda: (SOON if soon() else AT_ONCE) if interrupt else AFTER_EVALUATION
        try:
            with stopped_if(lambda: self.interrupted):
                yield
        finally:
            self.answer = before


@contextlib.contextmanager
def stopped_if(interrupted: Callable[[], bool]) -> Iterator[None]:
    """Raise ``Stopped`` at the end of a block that was interrupted, whatever it made of that."""
    try:
        yield
    except Exception:
        if not interrupted():
            raise
    if interrupted():
        raise Stopped


@contextlib.contextmanager
def stop_on_signals(answer: str = AFTER_STEP) -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request to save and stop; a second one ends the process.

    Args:
        answer: what is said to the first one.
    """
    stop = StopRequest(answer)
    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, stop.ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
