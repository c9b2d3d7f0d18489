"""One run from where it was left to its end, with everything kept on the way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

from .events import Events
from .files import StoreError
from .outcome import line_of, result_of
from .processes import Processes
from .provenance import provenance
from .randomness import seeded
from .spec import Run
from .store import RunFolder, State, brief
from .train import Position, Row, Stopped, Trainer

Tell = Callable[[dict[str, Any]], None]


class Stop(Protocol):
    """Whether an end was asked for; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Return whether it was."""


class Keeper:
    """Saves a trainer's state when it is time to, or when an end was asked for.

    Args:
        folder: where to; only the first process keeps anything.
        every: seconds between checkpoints.
        stop: asks for an end.
        tell: is told of each checkpoint.
    """

    def __init__(self, folder: RunFolder, every: float, stop: Stop, tell: Tell) -> None:
        self.folder, self.every, self.stop, self.tell = folder, every, stop, tell
        self.due = time.monotonic() + every
        self.saved: Position | None = None

    def __call__(self, trainer: Trainer) -> None:
        """Save if it is time; raise ``Stopped`` if an end was asked for."""
        stop, due = self.stop.is_set(), time.monotonic() >= self.due
        if trainer.processes.count > 1:  # who must agree, and do so when they talk anyway
            if trainer.step % trainer.settings.log_every:
                return
            stop, due = trainer.processes.share((stop, due))
        if stop or due:
            self.save(trainer)
        if stop:
            raise Stopped

    def save(self, trainer: Trainer) -> None:
        """Save a checkpoint, unless this very state is saved already."""
        if trainer.position != self.saved:
            state = trainer.state()
            if trainer.processes.rank == 0:
                self.folder.save(state, trainer.step)
                self.tell({"event": "saved", "step": trainer.step})
            self.saved = trainer.position
        self.due = time.monotonic() + self.every


def attempt(
    run: Run,
    folder: RunFolder,
    processes: Processes,
    *,
    checkpoint_every: float,
    stop: Stop,
    tell: Tell,
) -> tuple[State, str]:
    """Do a run, or what is left of it, in a folder that is claimed.

    Whatever the task or the optimizer raises is written down as the run's failure. If
    the store cannot be written to, the run is left as it was saved last.

    Returns:
        How far the run is now, and a line about it.
    """
    try:
        with apart(run):
            return _attempt(
                run, folder, processes, Keeper(folder, checkpoint_every, stop, tell), tell
            )
    except Stopped:
        return State.PAUSED, "stopped; the same command goes on from here"
    except StoreError as error:
        return folder.progress(), str(error)
    except (Exception, SystemExit) as error:
        if processes.rank == 0:
            with contextlib.suppress(StoreError):  # then the run is tried again
                folder.fail(error)
        if processes.count > 1:
            raise  # the others would wait for this process
        return State.FAILED, brief(error)


def _attempt(
    run: Run, folder: RunFolder, processes: Processes, keeper: Keeper, tell: Tell
) -> tuple[State, str]:
    first = processes.rank == 0
    trainer = Trainer(run, processes)
    saved = processes.share(folder.load() if first else None)
    if saved is not None:
        trainer.load(saved)
        keeper.saved = trainer.position
    if first:
        folder.add_environment(provenance(run))
        folder.write_rows(trainer.rows)
    events = Events(folder.path / "tensorboard", trainer.step + 1) if first else None

    def log(row: Row) -> None:
        if events:
            folder.append(row)
            events.add(row)
            tell({"event": "progress", "step": trainer.step, "steps": trainer.steps, "row": row})

    tell({"event": "progress", "step": trainer.step, "steps": trainer.steps, "row": {}})
    try:
        trainer.fit(keeper, log)
    finally:
        if events:
            events.close()
    keeper.save(trainer)
    state = State.FINISHED if trainer.diverged is None else State.DIVERGED
    result = result_of(trainer)
    if first:
        folder.finish(state, result, trainer.rows)
    return state, line_of(result)


@contextlib.contextmanager
def apart(run: Run) -> Iterator[None]:
    """Leave the caller's random numbers and thread count as they were."""
    threads = torch.get_num_threads()
    torch.set_num_threads(run.train.threads or threads)
    try:
        with seeded(run.seed):
            yield
    finally:
        torch.set_num_threads(threads)
