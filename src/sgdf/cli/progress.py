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

from ..bench.jobs.events import End, Event
from ..bench.store.records import Row, figures_on
from ..present.visible import visible
from .console import say

QUIET_SECONDS = 30.0
"""Plain lines about a run in progress come no more often than this."""


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

    def __call__(self, run: str, event: Event) -> None:
        """Show an event of a run."""
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
        elif event["event"] == "progress" and run not in self.spoke:
            self._say(run, f"resumes at step {event['step']:,}" if event["step"] else "begins")
        elif event["event"] == "progress" and time.monotonic() - self.spoke[run] > QUIET_SECONDS:
            steps = f" of {event['steps']:,}" if event["steps"] else ""
            self._say(run, f"step {event['step']:,}{steps}{_figures(event['row'])}")

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

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.stop()

    def __call__(self, run: str, event: Event) -> None:
        """Show an event of a run."""
        if event["event"] == "begin":
            self.names[run] = event.get("name", self.names.get(run, run))
            self._remove(run)
            self.bars[run] = self.progress.add_task(self.names[run], total=None, figures="")
        elif event["event"] == "progress" and run in self.bars:
            figures = _figures(event["row"]).lstrip(": ")
            self.progress.update(
                self.bars[run], completed=event["step"], total=event["steps"], figures=figures
            )
            self.parts[run] = event["step"] / event["steps"] if event["steps"] else 0.0
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

    def _remove(self, run: str) -> None:
        self.parts.pop(run, None)
        if run in self.bars:
            self.progress.remove_task(self.bars.pop(run))


def display(console: Console, names: Mapping[str, str], total: int, done: int) -> Bars | Lines:
    """Return bars on a terminal, and lines elsewhere."""
    return (Bars if console.is_terminal else Lines)(console, names, total, done)


def _counts(event: End) -> bool:
    return event["state"] in ("finished", "diverged")


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
