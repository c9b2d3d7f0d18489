"""A run's metrics for TensorBoard."""

from __future__ import annotations

import contextlib
from pathlib import Path

from . import files
from .train import Row


class Events:
    """A run's metrics as TensorBoard events; without TensorBoard, nothing.

    Args:
        path: the folder for them.
        first_step: what an earlier attempt has written from this step on does not count.
    """

    def __init__(self, path: Path, first_step: int) -> None:
        self.path, self.writer = path, None
        with contextlib.suppress(ModuleNotFoundError), files.kept(path):
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from torch.utils.tensorboard import FileWriter

            self.writer = FileWriter(str(path))
            begun = SessionLog(status=SessionLog.START)
            self.writer.add_event(Event(session_log=begun), step=first_step)

    def add(self, rows: list[Row]) -> None:
        """Write rows of metrics."""
        with files.kept(self.path):
            for row in rows:
                self._add(row)

    def _add(self, row: Row) -> None:
        if self.writer is None:
            return
        from tensorboard.compat.proto.summary_pb2 import Summary

        by = "step" if row["kind"] == "train" else "epoch"
        figures = {f"train/{name} by {by}": value for name, value in row["train"].items()}
        for split in ("validation", "test"):
            figures |= {f"{split}/{name}": value for name, value in row.get(split, {}).items()}
        figures["lr"] = row["lr"]
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in figures.items()]
        self.writer.add_summary(Summary(value=values), row["step"])

    def close(self) -> None:
        """Write what is left; it is only a copy, so that a failure here harms nothing."""
        if self.writer is not None:
            with contextlib.suppress(OSError):
                self.writer.close()
