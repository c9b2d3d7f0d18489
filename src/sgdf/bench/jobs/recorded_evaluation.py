"""A long evaluation of a run: how far it is, what it keeps, and what it shows."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..errors import StoreError, first_line
from ..store.pictures import SERIES, Picture
from ..store.run_folder import RunFolder
from ..tasks.long_evaluation import LongEvaluation
from ..training import checkpoint
from ..training.result import digest_of_weights
from ..training.trainer import Stopped, Trainer
from .events import Tell

SOON = 5.0
"""A task that told within so many seconds how far it is will tell again soon."""
WORTH_KEEPING = 1.0
"""Seconds of a finished part that a resumed evaluation should not do again."""


class RecordedEvaluation(LongEvaluation):
    """Records one evaluation of a run in its folder.

    What was kept counts if it is of the same step and of the same weights. So it also counts for a
    run that took its last steps again, since it comes to the same weights. A task may give several
    parts the same name, one for each split for example: it asks ``kept`` once for each of them, in
    the same order each time.

    Args:
        trainer: whose model is evaluated.
        folder: the folder of the run.
        tell: receives the events.
        must_stop: whether the evaluation should keep what it has, and stop.
        tell_every: seconds between two events.
        keep_every: seconds after which a state is kept again.

    Attributes:
        seconds_before: that the interrupted evaluation took until it kept its last state.
        interrupted: whether it was stopped.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        tell: Tell,
        must_stop: Callable[[], bool],
        tell_every: float,
        keep_every: float,
    ) -> None:
        self.trainer, self.folder, self.tell = trainer, folder, tell
        self.must_stop, self.tell_every, self.keep_every = must_stop, tell_every, keep_every
        self.begun = self.kept_at = self.advanced_at = time.monotonic()
        self.tell_at = self.begun + tell_every
        self.seconds_before = 0.0
        self.asked: Counter[str] = Counter()
        self.tried: set[str] = set()
        self.interrupted = False

    @property
    def seconds(self) -> float:
        """How long the evaluation has taken, with what it took before it was interrupted."""
        return self.seconds_before + time.monotonic() - self.begun

    @property
    def stops_soon(self) -> bool:
        """Whether a stop can wait until the task tells again how far it is."""
        return self.advanced_at > self.begun and time.monotonic() - self.advanced_at < SOON

    def kept(self, what: str) -> dict[str, Any] | None:
        """Return the last state that an interrupted evaluation of these weights kept, or None."""
        self.asked[what] += 1
        for path, content in self.folder.evaluations.whole(self.trainer.step, self._part(what)):
            try:
                found = checkpoint.parse(content)
                weights, seconds, state = (found[key] for key in ("weights", "seconds", "state"))
            except Exception as error:  # torch does not document which
                if checkpoint.is_lack_of_memory(error):
                    raise
                reason = f"cannot be loaded ({first_line(error)})"
                self.folder.evaluations.put_aside(path, reason)
                continue
            if weights == self._weights:
                self._count_seconds(seconds)
                known: dict[str, Any] = state
                return known
        return None

    def advance(
        self, what: str, done: int, total: int, state: Callable[[], dict[str, Any]] | None = None
    ) -> None:
        """Tell how far a part of the evaluation is, and keep its state if that is due."""
        if self.must_stop():
            if state is not None:
                self._keep(what, state())
            self.interrupted = True
            raise Stopped
        self.advanced_at = now = time.monotonic()
        if now >= self.tell_at:
            self.tell({"event": "evaluating", "what": what, "done": int(done), "total": int(total)})
            self.tell_at = now + self.tell_every
        # The next part does not keep this one, so that its end is kept, too.
        every = min(self.keep_every, WORTH_KEEPING) if done >= total else self.keep_every
        if state is not None and now - self.kept_at >= every:
            self._keep(what, state())
            self.kept_at = time.monotonic()

    def show(self, name: str, pixels: Tensor) -> None:
        """Keep a picture in the folder of the run. It is only a copy: a failure is noticed."""
        picture = _picture(name, pixels)
        try:
            self.folder.pictures.write(name, self.trainer.epoch + 1, picture)
        except StoreError as error:
            about = f"its pictures {name!r} are not complete"
            if not any(notice.startswith(about) for notice in self.folder.notices):
                self.folder.notices.append(f"{about}: {error}")

    def _keep(self, what: str, state: dict[str, Any]) -> None:
        found = {"weights": self._weights, "seconds": self.seconds, "state": state}
        content = checkpoint.to_bytes(found)
        if what not in self.tried:  # what cannot be loaded again should be known at once
            checkpoint.parse(content)
            self.tried.add(what)
        step = self.trainer.step
        self.folder.evaluations.keep(step, self._part(what), content)
        self.tell({"event": "saved", "step": step})

    def _part(self, what: str) -> str:
        return json.dumps([what, self.asked[what]])

    @cached_property
    def _weights(self) -> str:
        """A digest of the evaluated weights, which takes its time if they are many."""
        return digest_of_weights(self.trainer.evaluated.state_dict().items())

    def _count_seconds(self, seconds: float) -> None:
        """Count the time of the interrupted evaluation, whatever parts of it have kept."""
        more = max(0.0, seconds - self.seconds_before)
        self.seconds_before += more
        self.trainer.seconds["evaluation"] += more


def _picture(name: str, pixels: Tensor) -> Picture:
    """Return the picture of these pixels.

    Raises:
        ValueError: if it cannot have this name, or these are no pixels.
    """
    if not re.fullmatch(SERIES, name):
        raise ValueError(f"picture {name!r}: a name has 1 to 40 letters, digits and hyphens")
    is_grey, is_coloured = pixels.dim() == 2, pixels.dim() == 3 and pixels.shape[2] == 3
    if pixels.dtype != torch.uint8 or not pixels.numel() or not (is_grey or is_coloured):
        raise ValueError(
            f"picture {name!r}: its pixels are {pixels.dtype} of {tuple(pixels.shape)}; allowed: "
            "torch.uint8 of (height, width) or (height, width, 3)"
        )
    content = pixels.detach().cpu().contiguous().numpy().tobytes()
    height, width = pixels.shape[:2]
    return Picture(height, width, 3 if is_coloured else 1, content)
