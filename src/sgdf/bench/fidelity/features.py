"""What an extractor makes of images, and what it has to be able to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

NAN = float("nan")


@dataclass(frozen=True)
class Features:
    """What scores are computed from, for each of n images.

    Attributes:
        pooled: (n, d), without a place in the image.
        spatial: (n, k), of places in the image; None if the extractor has none.
        probabilities: (n, classes), which add up to 1; None if the extractor is no classifier.
    """

    pooled: Tensor
    spatial: Tensor | None = None
    probabilities: Tensor | None = None

    def known_where(self, known: Tensor) -> Features:
        """Return the same, but for NaN in place of all numbers of images that are not known.

        Args:
            known: (n,), on any device.
        """
        if known.all():
            return self

        def marked(part: Tensor | None) -> Tensor | None:
            return None if part is None else part.masked_fill(~known.to(part.device)[:, None], NAN)

        pooled = marked(self.pooled)
        assert pooled is not None
        return Features(pooled, marked(self.spatial), marked(self.probabilities))


class Extractor(Protocol):
    """A network that turns images into features."""

    @property
    def name(self) -> str:
        """How pages call it. Scores with different extractors cannot be compared."""

    @property
    def is_inception(self) -> bool:
        """Whether it is the Inception of the published FIDs.

        Only with that one may a score be called FID, sFID or inception score.
        """

    @property
    def digest(self) -> str:
        """A digest of all that the features depend on, beside the images."""

    def to(self, device: torch.device) -> object:
        """Move the network to a device."""

    def __call__(self, images: Tensor) -> Features:
        """Return the features of images as bytes (n, 3, height, width), of any size."""
