"""What a frozen transformer makes of images that nothing random touches, computed once."""

from __future__ import annotations

import contextlib
import hashlib
import io
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...store import files
from ..assets import data_folder
from ..kept import NotKeptError, kept
from ..supervised import Pair
from .image_set import ImageSet
from .pretraining import FOLDER
from .transformer import Classifier

MOST_KEPT = 2**30
"""Bytes of features that are kept for the next run; more are computed by each run anew."""
VERSION = 1
"""To be raised when images are resized, or features computed, in another way."""


@torch.no_grad()
def features_of(model: Classifier, images: ImageSet, side: int, batch_size: int) -> Pair:
    """Return the features of all images, and their classes, on the device of the model.

    They are in the numbers of the weights, also where training mixes precisions. Those that an
    earlier run has computed are read from the folder of the data.

    Args:
        model: its backbone is frozen.
        images: the images, resized as a whole.
        side: the side that they are resized to.
        batch_size: how many are computed at a time.

    Raises:
        DataError: if an image is damaged.
    """
    device = model.head.weight.device

    def compute() -> Tensor:
        with torch.autocast(device.type, enabled=False):
            parts = [
                model.features(inputs.to(device)) for inputs, _ in images.squares(side, batch_size)
            ]
        return torch.cat(parts)

    like = model.head.weight[:1].expand(len(images), -1)
    features = None
    if like.nbytes <= MOST_KEPT:
        path = data_folder() / FOLDER / _key(model, images) / "features.pt"
        with contextlib.suppress(NotKeptError):  # keeping them serves to save time alone
            features = kept(
                path, partial(_read, like), lambda: _as_bytes(compute()), "features of images"
            )
    return (compute() if features is None else features.to(device)), images.classes.to(device)


def _key(model: Classifier, images: ImageSet) -> str:
    # The side is that of the position embeddings, which are weights.
    content = f"{images.full_digest()} {model.backbone.digest()} {VERSION}"
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _read(like: Tensor, path: Path) -> Tensor:
    """Return the features of a file, which have to have the shape of others."""
    found: Any = torch.load(
        io.BytesIO(files.read(path, most=2 * MOST_KEPT)), weights_only=True, map_location="cpu"
    )
    features: Tensor = found
    if (features.shape, features.dtype) != (like.shape, like.dtype):
        raise ValueError(f"{path} has other features")
    return features


def _as_bytes(features: Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.save(features.cpu(), buffer)
    return buffer.getvalue()
