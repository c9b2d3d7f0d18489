"""What the scores need of one set of images, collected batch by batch, and the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import SpecError
from .classifier_score import ClassifierScore
from .features import Features
from .frechet import Normal, frechet_distance
from .kept_features import KeptFeatures
from .moments import Moments
from .neighbours import precision_and_recall

PUBLISHED_NAMES = {
    "frechet_distance": "fid",
    "spatial_frechet_distance": "sfid",
    "classifier_score": "inception_score",
}
"""What scores are called in publications, where the features are those of their Inception."""

MOST_KEPT = 10_000
"""Features of a set that take part in precision and recall, unless another number is asked for."""

_Part = TypeVar("_Part", Moments, ClassifierScore)


@dataclass(frozen=True)
class Summary:
    """What the scores need of a set of images, wherever it comes from.

    Attributes:
        pooled: the moments of the pooled features.
        spatial: those of the spatial features, if there are any.
        kept: features (n, d), for precision and recall; None for neither.
        classifier_score: if the extractor is a classifier.
    """

    pooled: Normal
    spatial: Normal | None = None
    kept: Tensor | None = None
    classifier_score: float | None = None


class Collected:
    """Everything of a set of images that the scores need, in memory that does not grow with it.

    Args:
        kept: how many features are kept for precision and recall, the first ones; 0 for none.
        split_size: the images of a split of the classifier score.
        kept_dtype: what they are kept in.
    """

    def __init__(
        self,
        kept: int = MOST_KEPT,
        split_size: int = 5000,
        kept_dtype: torch.dtype = torch.float32,
    ) -> None:
        self._kept = KeptFeatures(kept, kept_dtype)
        self._split_size = split_size
        self._pooled: Moments | None = None
        self._spatial: Moments | None = None
        self._classified: ClassifierScore | None = None

    @property
    def count(self) -> int:
        """How many images there are."""
        return self._pooled.count if self._pooled else 0

    def add(self, features: Features) -> None:
        """Add the features of some more images.

        Raises:
            ValueError: if they lack a part that those before them had, or have another one.
        """
        if self._pooled is None:
            self._begin(features)
        assert self._pooled is not None
        for name, part, given in (
            ("spatial features", self._spatial, features.spatial),
            ("probabilities", self._classified, features.probabilities),
        ):
            if (part is None) != (given is None):
                raise ValueError(f"some images have {name}, and others have not")
        self._pooled.add(features.pooled)
        self._kept.add(features.pooled)
        if self._spatial is not None and features.spatial is not None:
            self._spatial.add(features.spatial)
        if self._classified is not None and features.probabilities is not None:
            self._classified.add(features.probabilities)

    def _begin(self, features: Features) -> None:
        self._pooled = Moments(features.pooled.shape[1])
        if features.spatial is not None:
            self._spatial = Moments(features.spatial.shape[1])
        if features.probabilities is not None:
            self._classified = ClassifierScore(self._split_size)

    def summary(self) -> Summary:
        """Return what the scores need.

        Raises:
            SpecError: if there are fewer than two images.
        """
        if self._pooled is None:
            raise SpecError("scores need at least 2 images, and there are 0")
        return Summary(
            pooled=self._pooled.normal,
            spatial=self._spatial.normal if self._spatial else None,
            kept=self._kept.features if self._kept.most else None,
            classifier_score=self._classified.value if self._classified else None,
        )

    def state(self) -> dict[str, Any]:
        """Return numbers and tensors from which ``of_state`` continues to the bit."""
        return {
            "kept": self._kept.state(),
            "split_size": self._split_size,
            "pooled": _state_of(self._pooled),
            "spatial": _state_of(self._spatial),
            "classified": _state_of(self._classified),
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Collected:
        """Return what was collected when ``state`` was called."""
        collected = cls(split_size=state["split_size"])
        collected._kept = KeptFeatures.of_state(state["kept"])
        collected._pooled = _made_of(Moments, state["pooled"])
        collected._spatial = _made_of(Moments, state["spatial"])
        collected._classified = _made_of(ClassifierScore, state["classified"])
        return collected


def scores(
    real: Collected | Summary, drawn: Collected | Summary, is_inception: bool, neighbours: int = 3
) -> dict[str, float]:
    """Return how near drawn images are to real ones.

    Args:
        real: the real images.
        drawn: the drawn ones, with features of the same extractor.
        is_inception: whether that is the published Inception. Then the scores are also there under
            the names that only they may have: ``fid``, ``sfid`` and ``inception_score``.
        neighbours: k of precision and recall.

    Returns:
        ``frechet_distance``; ``spatial_frechet_distance`` if both have spatial features;
        ``classifier_score`` if the extractor gives probabilities; ``precision`` and ``recall`` if
        more than k features of each are kept.

    Raises:
        SpecError: if there are fewer than two images, or the features of both have not the same
            size.
    """
    real, drawn = _summary_of(real), _summary_of(drawn)
    found = {"frechet_distance": _distance(real.pooled, drawn.pooled)}
    if real.spatial is not None and drawn.spatial is not None:
        found["spatial_frechet_distance"] = _distance(real.spatial, drawn.spatial)
    if drawn.classifier_score is not None:
        found["classifier_score"] = drawn.classifier_score
    if (
        real.kept is not None
        and drawn.kept is not None
        and min(len(real.kept), len(drawn.kept)) > neighbours
    ):
        shares = precision_and_recall(real.kept, drawn.kept, neighbours)
        found["precision"], found["recall"] = shares
    if is_inception:
        found |= {PUBLISHED_NAMES[name]: found[name] for name in PUBLISHED_NAMES if name in found}
    return found


def _distance(real: Normal, drawn: Normal) -> float:
    if len(real.mean) != len(drawn.mean):
        raise SpecError(
            f"the features of real images have {len(real.mean):,} numbers, and those of drawn ones "
            f"{len(drawn.mean):,}: they must be of one extractor"
        )
    return frechet_distance(*real, *drawn)


def _summary_of(images: Collected | Summary) -> Summary:
    return images if isinstance(images, Summary) else images.summary()


def _state_of(part: Moments | ClassifierScore | None) -> dict[str, Any] | None:
    return None if part is None else part.state()


def _made_of(kind: type[_Part], state: dict[str, Any] | None) -> _Part | None:
    return None if state is None else kind.of_state(state)
