"""Everything that a run at work can report, in one place: each event is a plain JSON object.

A process that works on runs sends events; the terminal shows them, and the parent of workers
counts by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NotRequired, Protocol, TypedDict

from ..store.records import Row


class Begin(TypedDict):
    """A process has begun or resumed a run."""

    event: Literal["begin"]
    process: int
    name: NotRequired[str]
    """What the run is called, if that is not known from the plan."""


class Progress(TypedDict):
    """How far a run is, and its newest row of metrics if there is one."""

    event: Literal["progress"]
    step: int
    steps: int | None
    """How many there will be; None if only the training function knows."""
    row: Row | None


class Evaluating(TypedDict):
    """How far a part of a long evaluation is."""

    event: Literal["evaluating"]
    what: str
    """The name of the part, as the task calls it."""
    done: int
    total: int


class Saved(TypedDict):
    """A checkpoint has been written, or what an evaluation has got to."""

    event: Literal["saved"]
    step: int


class Notice(TypedDict):
    """Something that a person should know, in one line."""

    event: Literal["notice"]
    line: str


class End(TypedDict):
    """A process leaves a run: its state is then that of the run, and the line says why."""

    event: Literal["end"]
    state: str
    line: str
    quiet: NotRequired[bool]
    """Not to be shown: the end of the trial that the run belongs to will be."""


class TrialEnd(TypedDict):
    """A trial of a search is finished, pruned, diverged or failed."""

    event: Literal["over"]
    name: str
    line: str


class Refused(TypedDict):
    """A worker cannot begin: it does not find the task, for example. Others would not either."""

    event: Literal["refused"]
    line: str


Event = Begin | Progress | Evaluating | Saved | Notice | End | TrialEnd | Refused

Tell = Callable[[Event], None]
"""Receives the events of one run."""


class Display(Protocol):
    """Shows people what happens."""

    def __call__(self, run: str, event: Event) -> None:
        """Show an event of a run, given by its key."""
