"""What a long evaluation can do on its way: tell how far it is, keep what it has, show pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Progress = Callable[[float, float], None]
"""Is told how much is done, and how much there is."""


def silent(done: float, total: float) -> None:
    """Tell nobody."""


class LongEvaluation:
    """One evaluation, as the training loop offers it to a task as ``task.evaluation``.

    This one does nothing: it serves where a task is evaluated outside of a run. In a run, an
    evaluation that is interrupted by a stop or a kill is done again when the run resumes, with the
    same weights and the same random numbers. Then ``kept`` returns what it had.
    """

    def kept(self, what: str) -> dict[str, Any] | None:
        """Return the last state that an interrupted evaluation of these weights kept, or None.

        Args:
            what: the name of a part of the evaluation, such as ``"drawing"``.
        """
        return None

    def advance(
        self, what: str, done: int, total: int, state: Callable[[], dict[str, Any]] | None = None
    ) -> None:
        """Tell how far a part of the evaluation is, and keep its state if that is due.

        Args:
            what: the name of the part.
            done: how much of it is done, such as a number of images.
            total: how much there is.
            state: returns tensors, numbers and texts from which it can continue. It is called only
                when the state is written. None if there is nothing to continue from: then what
                was kept before stays.
        """

    def show(self, name: str, pixels: Tensor) -> None:
        """Keep a picture in the folder of the run, for the report.

        Args:
            name: of the series of pictures that it continues: letters, digits and hyphens.
            pixels: bytes (height, width, 3), or (height, width) for grey.
        """
