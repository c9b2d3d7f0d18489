"""Tasks whose model draws images, and that are judged by how near these are to real ones."""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..errors import SpecError, StoreError
from ..fidelity.collected import MOST_KEPT, Collected, Summary, scores
from ..fidelity.features import Extractor
from .base import Task
from .images.extractors import PUBLISHED, check_extractor, find_extractor
from .images.pixels import to_bytes
from .images.real_images import RealSet
from .long_evaluation import Progress, silent
from .metric import Metric

SHOWN, SHOWN_LARGE = 64, 16
"""The images of a picture for the report, and those of a side above ``LARGE_SIDE``."""
LARGE_SIDE = 128
PICTURE = 2**31
"""Added to the seed of the noise of pictures. No sample has a number as large, and of larger seeds
the lower 32 bits alone would count."""


class Generative(Task):
    """A model that draws images.

    ``evaluate_costly`` draws ``samples`` images in batches and compares their features with those
    of real images. The noise is that of the run's seed, the same at every evaluation, and each
    batch has its own, so that an evaluation that was interrupted continues where it was. Every
    evaluation also draws a picture of 64 images, or 16 large ones, always of the same noise.

    Args:
        real: the real images of each split that can be evaluated.
        side: the side of drawn images.
        extractor: the name of the network whose features are compared.
        samples: how many images are drawn for a score.
        sample_batch: how many are drawn at a time.

    Attributes:
        kept_features: how many features of real images, and of drawn ones, take part in precision
            and recall: the first ones.
    """

    metric = Metric("frechet_distance", larger_is_better=False)
    kept_features = MOST_KEPT

    def __init__(
        self, real: RealSet, side: int, extractor: str, samples: int, sample_batch: int
    ) -> None:
        Generative.check(extractor=extractor, samples=samples, sample_batch=sample_batch)
        self.real, self.side = real, side
        self.splits = real.splits
        self.samples, self.sample_batch = samples, sample_batch
        self._extractor_name = extractor
        self._extractor: Extractor | None = None
        self._real_features: dict[str, Collected | Summary] = {}
        self._drawn: Collected | None = None
        self._noise_seed = 0

    @abstractmethod
    def draw(
        self, count: int, first: int, noise: torch.Generator, progress: Progress = silent
    ) -> Tensor:
        """Return ``count`` new images (count, colours, side, side) with values from -1 to 1.

        Args:
            count: how many.
            first: how many images of the same set were drawn before; a model of classes deals them
                out in turn.
            noise: the generator that all random numbers are drawn from, on the CPU.
            progress: receives how much of these images is done; it need not be called.
        """

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse an unknown extractor, and numbers of samples that cannot be.

        Args:
            options: of the task; one of its own need not have these.
        """
        if "extractor" in options:
            check_extractor(options["extractor"])
        if options.get("samples", 2) < 2 or options.get("sample_batch", 1) < 1:
            raise SpecError("samples must be at least 2, and sample_batch at least 1")

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Check that the extractor can be made, if it is an option."""
        if "extractor" in options:
            find_extractor(options["extractor"])

    def to(self, device: torch.device) -> None:
        """Move the model to the device, and the extractor if it is there."""
        super().to(device)
        if self._extractor is not None:
            self._extractor.to(device)

    @property
    def extractor(self) -> Extractor:
        """The network whose features are compared, made when it is first needed."""
        if self._extractor is None:
            self._extractor = find_extractor(self._extractor_name)
            self._extractor.to(self.device)
        return self._extractor

    def begin_evaluation(self, costly: bool) -> None:
        """Forget the images of before, and show a picture of new ones."""
        self._drawn = None
        self._noise_seed = int(torch.randint(2**48, ()))
        self.evaluation.show("samples", self._draw_picture())

    def evaluate(self, split: str) -> dict[str, float]:
        """Return nothing: most models that draw are judged by what they draw alone."""
        return {}

    def evaluate_costly(self, split: str) -> dict[str, float]:
        """Return how near drawn images are to the real ones of a split.

        They are drawn once for all splits: after ``begin_evaluation``, or else at the first call.
        """
        if self._drawn is None:
            self._drawn = self._draw_all()
        if split not in self._real_features:
            self._real_features[split] = self.real.features(
                split, self.extractor, self.evaluation, self.kept_features
            )
        return scores(self._real_features[split], self._drawn, self.extractor.is_inception)

    def describe_data(self) -> dict[str, str]:
        """Return digests of the real images, and the extractor that all scores depend on.

        Of an extractor with published weights there is a digest, too. The one for digits would have
        to be trained first.
        """
        facts = {**self.real.digests(), "extractor of scores": self._extractor_name}
        if self._extractor_name in PUBLISHED:
            with contextlib.suppress(StoreError), torch.random.fork_rng(devices=[]):
                facts["digest of extractor"] = self.extractor.digest[:16]
        return facts

    def _draw_picture(self) -> Tensor:
        """Return some images as one."""
        shown = SHOWN if self.side <= LARGE_SIDE else SHOWN_LARGE
        noise = self._noise(PICTURE)
        parts = [
            to_bytes(self.draw(count, first, noise, self._progress("picture", first, count, shown)))
            for first, count in _batches(0, shown, self.sample_batch)
        ]
        return grid(torch.cat(parts), columns=math.isqrt(shown))

    def _draw_all(self) -> Collected:
        """Draw the samples, or those that an interrupted evaluation has left to draw."""
        kept = self.evaluation.kept("drawing")
        drawn = Collected.of_state(kept) if kept else Collected(self.kept_features)
        for first, count in _batches(drawn.count, self.samples, self.sample_batch):
            # Before the first features there is nothing to continue from.
            state = drawn.state if drawn.count else None
            progress = self._progress("drawing", first, count, self.samples, state)
            images = self.draw(count, first, self._noise(first), progress)
            features = self.extractor(self.real.prepared(to_bytes(images)))
            # As bytes, an image that is not a number would be a black one.
            drawn.add(features.known_where(images.isfinite().flatten(1).all(1)))
            self.evaluation.advance("drawing", drawn.count, self.samples, drawn.state)
        return drawn

    def _progress(
        self,
        what: str,
        first: int,
        count: int,
        total: int,
        state: Callable[[], dict[str, Any]] | None = None,
    ) -> Progress:
        """Return what tells how far the evaluation is while a batch of images is drawn."""

        def tell(done: float, of: float) -> None:
            if done < of:  # the whole batch counts when its features are known
                self.evaluation.advance(what, first + int(count * done / of), total, state)

        return tell

    def _noise(self, batch: int) -> torch.Generator:
        """Return a generator of the noise of the batch that begins at an image."""
        return torch.Generator().manual_seed(self._noise_seed + batch)


def _batches(done: int, total: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the first number and the size of each batch that is left."""
    for first in range(done, total, size):
        yield first, min(size, total - first)


def grid(images: Tensor, columns: int = 8) -> Tensor:
    """Return images (n, colours, h, w), as bytes, as one picture with lines between them.

    >>> grid(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), columns=2).shape
    torch.Size([9, 9])
    """
    count, colours, height, width = images.shape
    rows = math.ceil(count / columns)
    picture = images.new_full((rows * (height + 1) - 1, columns * (width + 1) - 1, colours), 255)
    for number, image in enumerate(images.cpu()):
        top, left = (number // columns) * (height + 1), (number % columns) * (width + 1)
        picture[top : top + height, left : left + width] = image.permute(1, 2, 0)
    return picture.squeeze(-1) if colours == 1 else picture
