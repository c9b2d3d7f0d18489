"""Tasks whose model draws images, and that are judged by how near these are to real ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..errors import SpecError
from ..fidelity.collected import Collected, Summary, scores
from ..fidelity.features import Extractor
from .base import Task
from .images.extractors import check_extractor, find_extractor
from .images.pixels import to_bytes
from .images.real_images import RealSet
from .metric import Metric

MOST_KEPT = 50_000
"""Features of drawn images that precision and recall see; published ones are of as many."""
GRID = 64
"""The images of a picture for the report, in rows of eight."""


class Generative(Task):
    """A model that draws images.

    ``evaluate_costly`` draws ``samples`` images in batches and compares their features with those
    of real images. The noise is that of the run's seed, the same at every evaluation, and each
    batch has its own, so that an evaluation that was interrupted continues where it was. Every
    evaluation also draws a picture of 64 images, always of the same noise.

    Args:
        real: the real images of each split that can be evaluated.
        extractor: the name of the network whose features are compared.
        samples: how many images are drawn for a score.
        sample_batch: how many are drawn at a time.
    """

    metric = Metric("frechet_distance", larger_is_better=False)

    def __init__(self, real: RealSet, extractor: str, samples: int, sample_batch: int) -> None:
        self.real = real
        self.splits = real.splits
        self.samples, self.sample_batch = samples, sample_batch
        self._extractor_name = extractor
        self._extractor: Extractor | None = None
        self._real_features: dict[str, Collected | Summary] = {}
        self._drawn: Collected | None = None
        self._noise_seed = 0

    @abstractmethod
    def draw(self, count: int, first: int, noise: torch.Generator) -> Tensor:
        """Return ``count`` new images (count, colours, side, side) with values from -1 to 1.

        Args:
            count: how many.
            first: how many images of the same set were drawn before; a model of classes deals them
                out in turn.
            noise: the generator that all random numbers are drawn from, on the CPU.
        """

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse an unknown extractor, and numbers of samples that cannot be."""
        check_extractor(options["extractor"])
        if options["samples"] < 2 or options["sample_batch"] < 1:
            raise SpecError("samples must be at least 2, and sample_batch at least 1")

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Check that the extractor can be made."""
        find_extractor(options["extractor"])

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
        images = to_bytes(self.draw(GRID, 0, self._noise(GRID)))
        self.evaluation.show("samples", grid(images))

    def evaluate_costly(self, split: str) -> dict[str, float]:
        """Return how near drawn images are to the real ones of a split.

        They are drawn once for all splits: after ``begin_evaluation``, or else at the first call.
        """
        if self._drawn is None:
            self._drawn = self._draw_all()
        if split not in self._real_features:
            self._real_features[split] = self.real.features(split, self.extractor)
        return scores(self._real_features[split], self._drawn, self.extractor.is_inception)

    def describe_data(self) -> dict[str, str]:
        """Return digests of the real images, and the extractor that all scores depend on."""
        return {**self.real.digests(), "extractor of scores": self._extractor_name}

    def _draw_all(self) -> Collected:
        """Draw the samples, or those that an interrupted evaluation has left to draw."""
        kept = self.evaluation.kept("drawing")
        drawn = Collected.of_state(kept) if kept else Collected(kept=MOST_KEPT)
        for first, count in self._batches_of_samples(drawn.count):
            images = self.real.prepared(to_bytes(self.draw(count, first, self._noise(first))))
            drawn.add(self.extractor(images))
            self.evaluation.advance("drawing", drawn.count, self.samples, drawn.state)
        return drawn

    def _batches_of_samples(self, done: int) -> Iterator[tuple[int, int]]:
        """Yield the first number and the size of each batch that is left."""
        for first in range(done, self.samples, self.sample_batch):
            yield first, min(self.sample_batch, self.samples - first)

    def _noise(self, batch: int) -> torch.Generator:
        """Return a generator of the noise of one batch."""
        return torch.Generator().manual_seed(self._noise_seed + batch)


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
