"""Features of real images, computed once: evaluations continue them, and later runs load them."""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...errors import StoreError
from ...fidelity.collected import Collected
from ...fidelity.features import Extractor
from ...store import files
from ..assets import data_folder
from ..long_evaluation import LongEvaluation

KEPT_FROM = 2000
"""Features of at least this many images are kept in the folder of the data, for the next run."""


@dataclass(frozen=True)
class RealFeatures:
    """What is asked of one set of real images.

    Attributes:
        split: the name of the set.
        count: how many images it has.
        batches: returns its images in batches, as they are compared, from the one of a number on.
        digest: of all that these images depend on.
        kept: of how many images the features are kept one by one, for precision and recall.
    """

    split: str
    count: int
    batches: Callable[[int], Iterable[Tensor]]
    digest: str
    kept: int

    def collect(self, extractor: Extractor, evaluation: LongEvaluation) -> Collected:
        """Return the features, from the folder of the data if they are there.

        Args:
            extractor: makes features of images.
            evaluation: receives the progress, and keeps what is done.
        """
        path, is_kept = self._path(extractor), self.count >= KEPT_FROM
        if is_kept:
            with contextlib.suppress(Exception):  # whatever is wrong with it, it is made anew
                state = torch.load(io.BytesIO(files.read(path, most=2**32)), weights_only=True)
                return Collected.of_state(state)
        collected = self._compute(extractor, evaluation)
        if is_kept:
            buffer = io.BytesIO()
            torch.save(collected.state(), buffer)
            with contextlib.suppress(StoreError, OSError):  # it serves to save time alone
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write(path, buffer.getvalue())
        return collected

    def _compute(self, extractor: Extractor, evaluation: LongEvaluation) -> Collected:
        what = f"features of real images, {self.split}"
        state = evaluation.kept(what)
        collected = Collected.of_state(state) if state else Collected(self.kept)
        if collected.count < self.count:
            for images in self.batches(collected.count):
                collected.add(extractor(images[: self.count - collected.count]))
                evaluation.advance(what, collected.count, self.count, collected.state)
                if collected.count == self.count:
                    break
        return collected

    def _path(self, extractor: Extractor) -> Path:
        content = f"{self.digest} {extractor.name} {extractor.digest} {self.kept}"
        key = hashlib.sha256(content.encode()).hexdigest()[:32]
        return data_folder() / "fidelity" / f"{key}.pt"
