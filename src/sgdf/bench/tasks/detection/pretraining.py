"""The small detector trained on the spot, once, in the place of weights from COCO."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...store import files
from ..assets import data_folder
from ..kept import kept
from .batches import GroupedBatches
from .gallery import Gallery
from .losses import detection_losses
from .networks import small_detector
from .photographs import digest_of

LR, BATCH, SHARE = 1e-3, 2, 0.75
"""Of Adam; the photographs of a batch; the share of the epochs after which the rate is a tenth."""
RECIPE = 1
"""To be raised when anything else about the training changes, so that no old weights are taken."""
FOLDER = "detection"
"""Where the tensors are kept, in the folder of the data."""
MOST = 2**28
"""Bytes of the largest file with tensors that is read."""
Shapes = dict[str, torch.Size]


def pretrained(
    train: Gallery, classes: int, weights: Path, epochs: int, shapes: Shapes
) -> dict[str, Tensor]:
    """Return the tensors of a small detector trained on photographs, as it was the first time.

    They are kept in the folder of the data sets.

    Args:
        train: the photographs.
        classes: how many there are, with the background.
        weights: the file with those of its ResNet.
        epochs: how long it is trained.
        shapes: those of the detector's tensors, by name.

    Raises:
        NotKeptError: if they cannot be kept.
    """

    def make() -> bytes:
        buffer = io.BytesIO()
        torch.save(_train(train, classes, weights, epochs).state_dict(), buffer)
        return buffer.getvalue()

    path = data_folder() / FOLDER / _key(train, classes, weights, epochs) / "weights.pt"
    return kept(path, partial(_read, shapes), make, "the detector that is trained once")


def _read(shapes: Shapes, path: Path) -> dict[str, Tensor]:
    found: Any = torch.load(io.BytesIO(files.read(path, most=MOST)), weights_only=True)
    if shapes_of(found) != shapes:
        raise ValueError(f"{path} has the tensors of another detector")
    tensors: dict[str, Tensor] = dict(found)
    return tensors


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Return the shapes of tensors by name."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of tensors by name."""
    content = hashlib.sha256()
    for name, tensor in tensors.items():
        content.update(name.encode() + tensor.numpy().tobytes())
    return content.hexdigest()[:16]


def _key(train: Gallery, classes: int, weights: Path, epochs: int) -> str:
    content = hashlib.sha256(digest_of(train.photographs, with_pixels=True).encode())
    content.update(weights.read_bytes())
    recipe = (RECIPE, LR, BATCH, SHARE, classes, epochs, train.longest)
    content.update(repr(recipe).encode())
    return content.hexdigest()[:32]


def _train(train: Gallery, classes: int, weights: Path, epochs: int) -> nn.Module:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with others the last digits of sums would be others
    try:
        with (
            torch.random.fork_rng(devices=[]),
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
        ):
            torch.default_generator.manual_seed(0)  # those of other devices are left alone
            network = small_detector(classes, weights, train.longest).train()
            optimizer = torch.optim.Adam(network.parameters(), lr=LR)
            for epoch in range(epochs):
                what = f"{len(train)} photographs, epoch {epoch + 1} of {epochs}"
                print(f"Pre-training a detector, once: {what}", file=sys.stderr, flush=True)
                for group in optimizer.param_groups:
                    group["lr"] = LR if epoch < SHARE * epochs else LR / 10
                order = torch.Generator().manual_seed(epoch)
                for batch in GroupedBatches(train.groups, train.example, BATCH, order):
                    loss = sum(detection_losses(network, batch, torch.device("cpu")).values())
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[union-attr]  # a sum of none would be a number
                    optimizer.step()
    finally:
        torch.set_num_threads(threads)
    return network
