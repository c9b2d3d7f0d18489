"""Show the progress of many runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Task as Bar
from rich.text import Text

from ..bench.jobs.events import End, Evaluating, Event
from ..bench.store.records import Row, figures_on
from ..present.visible import visible
from ..present.words import duration
from .console import say

QUIET_SECONDS = 30.0
"""Plain lines about a run in progress come no more often than this."""

LAST = 0.99
"""The most of a run that counts as done before its end."""

BESIDE_EVALUATIONS = ("begin", "progress", "end")
"""Events that come before an evaluation or after it."""


class Screen:
    """Where events are shown: of a grid of runs, or of a search, which counts trials, not runs.

    Args:
        console: where lines and bars are printed.
        names: the name of each run by key; the event that a run begins may bring its name.
        total: how many runs there are.
        done: how many of them had a result before.
    """

    def __init__(self, console: Console, names: Mapping[str, str], total: int, done: int) -> None:
        self.console, self.names, self.total, self.done = console, dict(names), total, done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Lines(Screen):
    """Plain lines: when a run begins and ends, and now and then in between."""

    def __init__(self, *screen: Any, **more: Any) -> None:
        super().__init__(*screen, **more)
        self.spoke: dict[str, float] = {}
        self.begun: dict[str, tuple[float, int, Evaluating]] = {}
        """When the part of an evaluation that a run is at was first heard of, how much of it was
        done then, and what was last heard of it."""

    def __call__(self, run: str, event: Event) -> None:
        """Show an event of a run."""
        if event["event"] in BESIDE_EVALUATIONS:
            self.begun.pop(run, None)
        if event["event"] == "begin":
            self.names[run] = event.get("name", self.names.get(run, run))
            self.spoke.pop(run, None)
        elif event["event"] == "notice":
            self._say(run, event["line"])
        elif event["event"] == "end" and not event.get("quiet"):
            self.done += _counts(event)
            self._say(run, _ending(event))
        elif event["event"] == "over":
            self.done, self.names[run] = self.done + 1, event["name"]
            self._say(run, event["line"])
        elif event["event"] == "evaluating":
            left = self._left(run, event)
            if time.monotonic() - self.spoke.setdefault(run, time.monotonic()) > QUIET_SECONDS:
                self._say(run, f"{event['what']}: {event['done']:,} of {event['total']:,}{left}")
        elif event["event"] == "progress" and run not in self.spoke:
            self._say(run, f"resumes at step {event['step']:,}" if event["step"] else "begins")
        elif event["event"] == "progress" and time.monotonic() - self.spoke[run] > QUIET_SECONDS:
            steps = f" of {event['steps']:,}" if event["steps"] else ""
            self._say(run, f"step {event['step']:,}{steps}{_figures(event['row'])}")

    def _left(self, run: str, event: Evaluating) -> str:
        """Return how long a part of an evaluation will take by its pace, to end a line with."""
        now = time.monotonic()
        since, first, last = self.begun.get(run, (now, event["done"], event))
        if _is_another_part(event, last["what"], last["done"]):
            since, first = now, event["done"]
        self.begun[run] = since, first, event
        done = event["done"] - first
        if not done:
            return ""
        return f", {duration((event['total'] - event['done']) / done * (now - since))} left"

    def _say(self, run: str, line: str) -> None:
        self.spoke[run] = time.monotonic()
        text = f"[{self.done}/{self.total}] {self.names.get(run, 'all')}: {line}"
        say(self.console, text)


class PlainColumn(TextColumn):
    """A column of names and figures, which are text and no markup."""

    def render(self, task: Bar) -> Text:
        """Return the text of one bar."""
        return Text(visible(self.text_format.format(task=task)))


class Bars(Screen):
    """A bar for the grid and one for each run in progress; endings stay on the screen above."""

    def __init__(self, *screen: Any, **more: Any) -> None:
        super().__init__(*screen, **more)
        self.progress = Progress(
            PlainColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=False),
            PlainColumn("{task.fields[figures]}"),
            console=self.console,
            transient=True,
        )
        self.parts: dict[str, float] = {}
        self.grid = self.progress.add_task("all", total=self.total, completed=self.done, figures="")
        self.bars: dict[str, TaskID] = {}
        self.evaluations: dict[str, tuple[str, int, TaskID]] = {}
        """The part of an evaluation that a run is at, how much of it is done, and its bar."""

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, run: str, event: Event) -> None:
        """Show an event of a run."""
        if event["event"] in BESIDE_EVALUATIONS:
            self._remove_evaluation(run)
        if event["event"] == "begin":
            self.names[run] = event.get("name", self.names.get(run, run))
            self._remove(run)
            self.bars[run] = self.progress.add_task(self.names[run], total=None, figures="")
        elif event["event"] == "progress" and run in self.bars:
            figures = _figures(event["row"]).lstrip(": ")
            self.progress.update(
                self.bars[run], completed=event["step"], total=event["steps"], figures=figures
            )
            # A run whose steps are all taken is still to be evaluated.
            self.parts[run] = min(event["step"] / event["steps"], LAST) if event["steps"] else 0.0
        elif event["event"] == "evaluating":
            self._show_evaluation(run, event)
        elif event["event"] == "notice":
            self._stay(self.names.get(run, "all"), event["line"])
        elif event["event"] == "end":
            self._remove(run)
            if not event.get("quiet"):
                self.done += _counts(event)
                self._stay(self.names[run], _ending(event))
        elif event["event"] == "over":
            self.done += 1
            self._stay(event["name"], event["line"])
        self.progress.update(self.grid, completed=self.done + sum(self.parts.values()))

    def _stay(self, name: str, line: str) -> None:
        self.progress.console.print(f"{name}: {line}")

    def _show_evaluation(self, run: str, event: Evaluating) -> None:
        """Show a part of an evaluation in a bar of its own."""
        what, done, total = event["what"], event["done"], event["total"]
        if run in self.evaluations and _is_another_part(event, *self.evaluations[run][:2]):
            self._remove_evaluation(run)
        if run in self.evaluations:
            bar = self.evaluations[run][2]
        else:
            name = f"{self.names.get(run, run)}: {what}"
            bar = self.progress.add_task(name, total=total, completed=done, figures="")
        self.progress.update(bar, completed=done, total=total)
        self.evaluations[run] = what, done, bar

    def _remove_evaluation(self, run: str) -> None:
        if run in self.evaluations:
            self.progress.remove_task(self.evaluations.pop(run)[2])

    def _remove(self, run: str) -> None:
        self.parts.pop(run, None)
        if run in self.bars:
            self.progress.remove_task(self.bars.pop(run))


def display(console: Console, names: Mapping[str, str], total: int, done: int) -> Bars | Lines:
    """Return bars on a terminal, and lines elsewhere."""
    return (Bars if console.is_terminal else Lines)(console, names, total, done)


def _counts(event: End) -> bool:
    return event["state"] in ("finished", "diverged")


def _is_another_part(event: Evaluating, what: str, done: int) -> bool:
    """Return whether an event is about another part of an evaluation than the one before it.

    Parts may have one name; then the next one begins with less done.
    """
    return event["what"] != what or event["done"] < done


def _ending(event: End) -> str:
    state, line = event["state"], event["line"]
    return line if state in ("finished", "diverged", "paused") else f"{state}: {line}"


def _figures(row: Row | None) -> str:
    """Return the newest figures of a run, to end a line with."""
    if row is None:
        return ""
    known = (split for split in ("validation", "test", "train") if figures_on(row, split))
    split = next(known, "train")
    figures = [f"{split} {name} {value:.4g}" for name, value in figures_on(row, split).items()]
    return ": " + ", ".join(figures) if figures else ""
