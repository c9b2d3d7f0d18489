"""A task that processes evaluate together, for tests under torchrun."""

import os
from pathlib import Path

from bench_tasks import Plain
from sgdf.bench.errors import DataError


class Sharing(Plain):
    """Has shares and a costly metric, and writes down which process is asked for which.

    Args:
        fails: what fails in the second process.
    """

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.fails = fails

    def _note(self, what):
        with (Path(os.environ["SGDF_TEST_DIARY"]) / os.environ["RANK"]).open("a") as file:
            file.write(f"{what}\n")
        if what == self.fails and os.environ["RANK"] == "1":
            raise ZeroDivisionError("the second one fails")
        if self.fails == f"data of {what}" and os.environ["RANK"] == "1":
            raise DataError("a picture is damaged")

    def begin_evaluation(self, costly):
        """Write it down."""
        self._note("begin")

    def evaluate_share(self, split, rank, count):
        """Return the loss on a share."""
        self._note("share")
        inputs, targets = (part[rank::count] for part in self.data[split])
        return {"loss": self.criterion(self.model(inputs), targets)}, len(inputs)

    def evaluate_costly(self, split):
        """Return the number of the process."""
        self._note("costly")
        return {"process": float(os.environ["RANK"])}
