"""A run's metrics for TensorBoard: a copy of its rows."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

from ..errors import StoreError
from . import files
from .records import Row, figures_on, splits_in


class TensorBoard:
    """Writes rows of metrics as TensorBoard's events; without TensorBoard, nothing.

    Args:
        path: the folder for them.
        first_step: events of an earlier attempt from this step on no longer count.
    """

    def __init__(self, path: Path, first_step: int) -> None:
        self.path, self.writer = path, None
        if path.is_symlink():
            raise StoreError(f"{path} is a link: nothing is written through it")
        with contextlib.suppress(ModuleNotFoundError), files.store_errors(path):
            from tensorboard.compat.proto.event_pb2 import SessionLog
            from tensorboard.summary.writer.event_file_writer import EventFileWriter

            self.writer = EventFileWriter(str(path))
            self._write(first_step, session_log=SessionLog(status=SessionLog.START))

    def add(self, rows: list[Row]) -> None:
        """Write rows of metrics."""
        with files.store_errors(self.path):
            for row in rows:
                self._add(row)

    def _add(self, row: Row) -> None:
        if self.writer is None:
            return
        from tensorboard.compat.proto.summary_pb2 import Summary

        by = "step" if row["kind"] == "train" else "epoch"
        figures = {f"train/{name} by {by}": value for name, value in row["train"].items()}
        for split in splits_in(row):
            if split != "train":
                own = figures_on(row, split)
                figures |= {f"{split}/{name}": value for name, value in own.items()}
        figures["lr"] = row["lr"]
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        self._write(row["step"], summary=Summary(value=values))

    def _write(self, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        assert self.writer is not None
        self.writer.add_event(Event(wall_time=time.time(), step=step, **content))

    def close(self) -> None:
        """Flush and close. The events are only a copy, so a failure here is ignored."""
        if self.writer is not None:
            with contextlib.suppress(OSError):
                self.writer.close()
