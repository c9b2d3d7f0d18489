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
from .provenance import differences, provenance
from .randomness import seeded
from .spec import Run
from .store import RunFolder, State, brief
from .train import Position, Row, Stopped, Trainer

Tell = Callable[[dict[str, Any]], None]
Watch = Callable[[list[Row]], bool]
"""Sees a run's metrics at the end of each epoch, and says whether they are enough."""
PUBLISH_SECONDS = 1.0
"""Metrics are written out and told of no more often than this: a tiny task has 100 rows by then."""


def to_the_end(rows: list[Row]) -> bool:
    """Watch a run without ever having seen enough."""
    return False


class Stop(Protocol):
    """Whether an end was asked for; a ``threading.Event`` is one."""

    def is_set(self) -> bool:
        """Return whether it was."""


class Keeper:
    """Publishes a trainer's metrics and saves its state when it is time to.

    Args:
        folder: where to; only the first process keeps anything.
        every: seconds between checkpoints.
        stop: asks for an end.
        tell: is told of metrics and checkpoints.
        watch: may end the run before its time.
    """

    def __init__(
        self,
        folder: RunFolder,
        every: float,
        stop: Stop,
        tell: Tell,
        watch: Watch = to_the_end,
    ) -> None:
        self.folder, self.every, self.stop, self.tell = folder, every, stop, tell
        self.watch = watch
        self.publish_at = time.monotonic()
        self.save_at = self.publish_at + every
        self.saved: Position | None = None
        self.events: Events | None = None
        self.published = self.in_events = 0

    def begin(self, trainer: Trainer) -> None:
        """Go on with what there is of the run."""
        self.published = self.in_events = len(trainer.rows)
        if trainer.step:
            self.saved = trainer.position
        if trainer.processes.rank == 0:
            self.folder.write_rows(trainer.rows)
            with self._dispensable():
                self.events = Events(self.folder.path / "tensorboard", trainer.step + 1)
            self._tell_progress(trainer, {})
        if trainer.step and self._has_seen_enough(trainer):
            raise Stopped

    def __call__(self, trainer: Trainer) -> None:
        """Publish and save if it is time; raise ``Stopped`` if an end was asked for."""
        if self._has_seen_enough(trainer):
            self.publish(trainer)
            self.save(trainer)
            raise Stopped
        now, several = time.monotonic(), trainer.processes.count > 1
        if not (several or now >= self.publish_at or now >= self.save_at or self.stop.is_set()):
            return
        if now >= self.publish_at:
            self.publish(trainer)
        stop, save = self.stop.is_set(), now >= self.save_at
        if several:  # who must agree, and do so when they talk anyway
            if trainer.epoch_step and trainer.step % trainer.settings.log_every:
                return
            stop, save = trainer.processes.share((stop, save))
        if stop or save:
            self.save(trainer)
        if stop:
            raise Stopped

    def _has_seen_enough(self, trainer: Trainer) -> bool:
        at_an_end = not trainer.epoch_step and not trainer.finished
        return at_an_end and self.watch(trainer.rows)

    def publish(self, trainer: Trainer) -> None:
        """Write and tell of the rows that are new."""
        rows = trainer.rows[self.published :]
        if rows and trainer.processes.rank == 0:
            self.folder.append(rows)
            self._tell_progress(trainer, rows[-1])
        self.published = len(trainer.rows)
        self.publish_at = time.monotonic() + PUBLISH_SECONDS

    def save(self, trainer: Trainer) -> None:
        """Save a checkpoint, unless this very state is saved already.

        The rows go to TensorBoard before: at 0.1 ms each, that is no work for between two
        steps, and what is written twice after a kill does not count twice.
        """
        self._write_events(trainer)
        if trainer.position != self.saved:
            state = trainer.state()
            if trainer.processes.rank == 0:
                self.folder.save(state, trainer.step)
                self.tell({"event": "saved", "step": trainer.step})
            self.saved = trainer.position
        self.save_at = time.monotonic() + self.every

    def end(self, trainer: Trainer) -> None:
        """Publish what is left; a checkpoint has what matters of it, should that fail."""
        with contextlib.suppress(StoreError):
            self.publish(trainer)
        self._write_events(trainer)
        if self.events:
            self.events.close()

    def _write_events(self, trainer: Trainer) -> None:
        if self.events:
            with self._dispensable():
                self.events.add(trainer.rows[self.in_events :])
            self.in_events = len(trainer.rows)

    @contextlib.contextmanager
    def _dispensable(self) -> Iterator[None]:
        """Do without TensorBoard's events if they cannot be written: they are only a copy."""
        try:
            yield
        except StoreError as error:
            self.events = None
            self.folder.notices.append(f"{error}; it goes on without TensorBoard's events")

    def _tell_progress(self, trainer: Trainer, row: Row) -> None:
        steps = {"step": trainer.step, "steps": trainer.steps}
        self.tell({"event": "progress", **steps, "row": row})


def attempt(
    run: Run,
    folder: RunFolder,
    processes: Processes,
    *,
    checkpoint_every: float,
    stop: Stop,
    tell: Tell,
    watch: Watch = to_the_end,
) -> tuple[State, str]:
    """Do a run, or what is left of it, in a folder that is claimed.

    Whatever the task or the optimizer raises is written down as the run's failure. If
    the store cannot be written to, the run is left as it was saved last.

    Returns:
        How far the run is now, and a line about it.
    """
    try:
        with apart(run):
            keeper = Keeper(folder, checkpoint_every, stop, tell, watch)
            return _attempt(run, folder, processes, keeper)
    except Stopped:
        return State.PAUSED, "stopped; the same command goes on from here"
    except StoreError as error:
        if processes.count > 1:
            raise  # the others would wait for this process
        return State.PAUSED, str(error)
    except (Exception, SystemExit) as error:
        if processes.rank == 0:
            with contextlib.suppress(StoreError):  # then the run is tried again
                folder.fail(error)
        if processes.count > 1:
            raise
        return State.FAILED, brief(error)


def _attempt(
    run: Run, folder: RunFolder, processes: Processes, keeper: Keeper
) -> tuple[State, str]:
    first = processes.rank == 0
    trainer = Trainer(run, processes)
    saved = processes.share(folder.load() if first else None)
    if saved is not None:
        trainer.load(saved)
    if first:
        here = provenance(run, trainer.task.digest)
        if saved is not None:
            changed = differences(folder.environments(), here)
            if "data" in changed:
                # Images that it has trained on could now be among those held back.
                raise StoreError(
                    "it was begun on other data: find those again (--data FOLDER), or begin anew "
                    "with --out another folder"
                )
            folder.notices += [f"it goes on with another {what} than before" for what in changed]
        folder.add_environment(here)
    keeper.begin(trainer)
    try:
        trainer.fit(keeper)
        keeper.save(trainer)
    finally:
        keeper.end(trainer)
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
