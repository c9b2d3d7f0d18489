"""Records of a run while it trains: rows of metrics, checkpoints, TensorBoard."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

from ..errors import StoreError
from ..store.records import Row
from ..store.run_folder import RunFolder
from ..store.tensorboard import TensorBoard
from ..tasks.long_evaluation import LongEvaluation
from ..training import checkpoint
from ..training.trainer import Position, Stopped, Trainer
from .events import Tell
from .recorded_evaluation import RecordedEvaluation
from .signals import Stop, StopRequest, stopped_if

Watch = Callable[[list[Row]], bool]
"""Looks at a run's metrics at the end of each epoch, and returns whether to stop the run."""
PUBLISH_SECONDS = 1.0
"""Metrics are written and reported at most this often: a tiny task has 100 rows by then."""


LONG_EVALUATION = 1.0
"""Seconds of an evaluation that nobody should wait for who has asked for a stop."""
KEEP_SECONDS = 60.0
"""The state of an evaluation is kept at least this often, if the task offers it."""


def never_stop(rows: list[Row]) -> bool:
    """Watch a run without ever stopping it."""
    return False


class Recorder:
    """Records a trainer's metrics as they come, and its state at intervals.

    Args:
        folder: the folder of the run; only rank 0 writes to it.
        every: seconds between checkpoints.
        stop: is set when the run should save and stop.
        tell: receives the events of the run.
        watch: may stop the run early.
    """

    def __init__(
        self,
        folder: RunFolder,
        every: float,
        stop: Stop,
        tell: Tell,
        watch: Watch = never_stop,
    ) -> None:
        self.folder, self.every, self.stop, self.tell = folder, every, stop, tell
        self.watch = watch
        self.publish_at = time.monotonic()
        self.save_at = self.publish_at + every
        self.saved: Position | None = None
        self.saved_at = self.publish_at
        self.evaluation_seconds: dict[bool, float] = {}
        self.tensorboard: TensorBoard | None = None
        self.published = self.in_tensorboard = 0

    def begin(self, trainer: Trainer) -> None:
        """Start recording, from the checkpoint that the trainer has loaded."""
        self.published = self.in_tensorboard = len(trainer.rows)
        if trainer.step:
            self.saved = trainer.position
        if trainer.ranks.rank == 0:
            self.folder.write_rows(trainer.rows)
            self.folder.drop_probe_rows(after=trainer.step)
            with self._dispensable():
                self.tensorboard = TensorBoard(self.folder.path / "tensorboard", trainer.step + 1)
            self._tell_progress(trainer, None)
        if trainer.step and self._has_seen_enough(trainer):
            raise Stopped

    def __call__(self, trainer: Trainer) -> None:
        """Publish and save if that is due; raise ``Stopped`` if a stop was asked for."""
        if self._has_seen_enough(trainer):
            self.publish(trainer)
            self.save(trainer)
            raise Stopped
        now, several = time.monotonic(), trainer.ranks.count > 1
        if not (several or now >= self.publish_at or now >= self.save_at or self.stop.is_set()):
            return
        if now >= self.publish_at:
            self.publish(trainer)
        stop, save = self.stop.is_set(), now >= self.save_at
        if several:  # they must agree, which they do when they communicate anyway
            if trainer.epoch_step and trainer.step % trainer.settings.log_every:
                return
            stop, save = trainer.ranks.broadcast((stop, save))
        if stop or save:
            self.save(trainer)
        if stop:
            raise Stopped

    def _has_seen_enough(self, trainer: Trainer) -> bool:
        at_an_end = not trainer.epoch_step and not trainer.finished
        return at_an_end and self.watch(trainer.rows)

    def publish(self, trainer: Trainer) -> None:
        """Write and report the new rows."""
        rows = trainer.rows[self.published :]
        if rows and trainer.ranks.rank == 0:
            self.folder.append(rows)
            self._tell_progress(trainer, rows[-1])
        if trainer.probes.rows:
            self.folder.append_probe_rows(trainer.probes.rows)
            trainer.probes.rows.clear()
        self.published = len(trainer.rows)
        self.publish_at = time.monotonic() + PUBLISH_SECONDS

    def save(self, trainer: Trainer) -> None:
        """Save a checkpoint, unless this state has been saved already.

        The rows go to TensorBoard first: at 0.1 ms each they are too slow to be written between
        two steps. Rows that are written twice after a kill count once.
        """
        self._write_tensorboard(trainer)
        if trainer.probes.rows:  # a resumed run would not make them again
            self.publish(trainer)
        if trainer.position != self.saved:
            state = trainer.state()
            if trainer.ranks.rank == 0:
                checkpoint.save(self.folder, state, trainer.step)
                self.tell({"event": "saved", "step": trainer.step})
                # At the end of an epoch its evaluation is over.
                self.folder.evaluations.drop(trainer.step - bool(trainer.epoch_step))
            self.saved = trainer.position
        self.saved_at = time.monotonic()
        self.save_at = self.saved_at + self.every

    @contextlib.contextmanager
    def evaluation(self, trainer: Trainer, costly: bool) -> Iterator[LongEvaluation]:
        """Be the context of an evaluation, which a stop interrupts if it is long.

        A checkpoint is saved first if there is something to lose, so the evaluation is all that
        the run has to do again, and of that only what the task did not keep. Several processes wait
        for each other, for the first one or for the shares of all, so it is not interrupted.
        """
        alone = trainer.ranks.count == 1
        if alone and self.stop.is_set():
            self.save(trainer)
            raise Stopped
        is_long = self.evaluation_seconds.get(costly, math.inf) >= LONG_EVALUATION
        is_due = is_long and time.monotonic() - self.saved_at >= LONG_EVALUATION
        if trainer.ranks.broadcast(is_due):
            self.save(trainer)
        if is_long and trainer.ranks.rank == 0:
            self._tell_progress(trainer, None)
        can_stop, stop = alone and is_long, self.stop
        evaluation = RecordedEvaluation(
            trainer,
            self.folder,
            self.tell,
            must_stop=lambda: can_stop and stop.is_set(),
            tell_every=PUBLISH_SECONDS,
            keep_every=min(self.every, KEEP_SECONDS),
        )
        with (
            stop.during_evaluation(interrupt=can_stop, soon=lambda: evaluation.stops_soon)
            if isinstance(stop, StopRequest)
            else contextlib.nullcontext(),
            stopped_if(lambda: evaluation.interrupted),
        ):
            yield evaluation
        self.evaluation_seconds[costly] = evaluation.seconds

    def end(self, trainer: Trainer) -> None:
        """Publish the remaining rows; if that fails, the checkpoint has them."""
        with contextlib.suppress(StoreError):
            self.publish(trainer)
        self._write_tensorboard(trainer)
        if self.tensorboard:
            self.tensorboard.close()

    def _write_tensorboard(self, trainer: Trainer) -> None:
        if self.tensorboard:
            with self._dispensable():
                self.tensorboard.add(trainer.rows[self.in_tensorboard :])
            self.in_tensorboard = len(trainer.rows)

    @contextlib.contextmanager
    def _dispensable(self) -> Iterator[None]:
        """Stop writing TensorBoard's events if that fails: they are only a copy."""
        try:
            yield
        except StoreError as error:
            self.tensorboard = None
            self.folder.notices.append(f"{error}; the run continues without TensorBoard's events")

    def _tell_progress(self, trainer: Trainer, row: Row | None) -> None:
        self.tell({"event": "progress", "step": trainer.step, "steps": trainer.steps, "row": row})
