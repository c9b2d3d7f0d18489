"""A small vision transformer that is trained on the spot, where no published weights are used.

It learns the fine classes of CIFAR-100, cropped and flipped, and is then kept in the folder of the
data in the layout of the published files: it is loaded, and its positions are interpolated, as
theirs are.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from ....present.words import plural
from ..assets import data_folder
from ..cifar.augment import AugmentedPairs
from ..cifar.data import CIFAR100, SIDE
from ..kept import kept
from ..supervised import Pair
from .google import read_weights, write_weights
from .transformer import SIZES, Classifier, VisionTransformer

FOLDER = "vit"
"""Where weights and features are kept, in the folder of the data."""
BATCH, RATE = 64, 1e-3
VERSION = 1
"""Of what follows: other weights have to have another number."""


def images_to_learn(official: bool) -> Pair:
    """Return the training images of CIFAR-100, and their classes.

    Raises:
        DataError: if they are missing or damaged.
    """
    return CIFAR100.read(official)[0]


def pretrained(network: str, epochs: int, official: bool, dropout: float) -> VisionTransformer:
    """Return a transformer that has learned CIFAR-100.

    Args:
        network: a name in ``SIZES``.
        epochs: how long it learned.
        official: insist on the published files of CIFAR-100.
        dropout: that of the transformer that is returned; it learned without.

    Raises:
        DataError: if CIFAR-100 is missing or damaged.
        NotKeptError: if the weights cannot be kept.
    """
    images, classes = images_to_learn(official)
    content = hashlib.sha256(f"{network} {epochs} {BATCH} {RATE} {VERSION}".encode())
    content.update(images.numpy().data)
    content.update(classes.numpy().data)

    def read(path: Path) -> VisionTransformer:
        return read_weights(path, network, SIZES[network], dropout)

    def make() -> bytes:
        print(
            f"Pre-training {network} on {len(images):,} images of CIFAR-100, "
            f"{plural(epochs, 'epoch')}; the weights are kept with the data",
            file=sys.stderr,
            flush=True,
        )
        return write_weights(_trained(network, images, classes, epochs))

    path = data_folder() / FOLDER / content.hexdigest()[:16] / "weights.npz"
    return kept(path, read, make, f"what {network} has learned of CIFAR-100")


def _trained(network: str, images: Tensor, classes: Tensor, epochs: int) -> VisionTransformer:
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
            backbone = VisionTransformer(SIZES[network], SIDE)
            _train(Classifier(backbone, CIFAR100.classes), images, classes, epochs)
            return backbone
    finally:
        torch.set_num_threads(threads)


def _train(model: nn.Module, images: Tensor, classes: Tensor, epochs: int) -> None:
    order = torch.Generator().manual_seed(0)
    steps = epochs * -(-len(images) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for _ in range(epochs):
        for inputs, targets in AugmentedPairs(images, classes, BATCH, order):
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
            optimizer.step()
            schedule.step()
