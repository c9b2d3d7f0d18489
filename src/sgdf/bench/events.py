"""A run's metrics for TensorBoard."""

from __future__ import annotations

import contextlib
from pathlib import Path

from . import files
from .train import Row


class Events:
    """A run's metrics as TensorBoard events; without TensorBoard, nothing."""

    def __init__(self, path: Path, first_step: int) -> None:
        self.path, self.writer = path, None
        with contextlib.suppress(ModuleNotFoundError), files.kept(path):
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(path), purge_step=first_step)

    def add(self, rows: list[Row]) -> None:
        """Write rows of metrics."""
        with files.kept(self.path):
            for row in rows:
                self._add(row)

    def _add(self, row: Row) -> None:
        if self.writer is not None:
            kind = "step" if row["kind"] == "train" else "epoch"
            for split in ("train", "validation", "test"):
                for name, value in row.get(split, {}).items():
                    tag = f"{split}/{name}" if split != "train" else f"{split}/{name} by {kind}"
                    self.writer.add_scalar(tag, value, row["step"])
            self.writer.add_scalar("lr", row["lr"], row["step"])

    def close(self) -> None:
        """Write what is left; it is only a copy, so that a failure here harms nothing."""
        if self.writer is not None:
            with contextlib.suppress(OSError):
                self.writer.close()
