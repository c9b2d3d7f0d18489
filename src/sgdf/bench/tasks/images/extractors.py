"""The networks whose features say how near drawn images are to real ones, by name.

Scores with different extractors cannot be compared with each other.
"""

from __future__ import annotations

import functools
from collections import OrderedDict

import torch
from torch import Tensor, nn

from ...errors import SpecError, suggestion
from ...fidelity.features import Extractor
from ...fidelity.inception import FILE, Inception
from ...fidelity.network_extractor import NetworkExtractor
from ..assets import PublishedFiles, data_folder
from ..cifar.networks import with_published_weights
from ..digits.data import digits
from .pixels import SIDES

IDELBAYEV = (
    "They are those of akamaster/pytorch_resnet_cifar10, one array for each tensor in the order of "
    "the state dict, and are not downloaded"
)
RESNETS = {
    "resnet20": PublishedFiles(
        title="Weights of a ResNet20 for CIFAR-10",
        folder="weights",
        files={
            "cifar10_resnet20.npz": (
                "ef390b25c0bd77a1d993ba3e82815a15587ea4ba6d00f99503aecbeccd137822"
            )
        },
        origin=IDELBAYEV,
    ),
    "resnet56": PublishedFiles(
        title="Weights of a ResNet56 for CIFAR-10",
        folder="weights",
        files={
            "cifar10_resnet56.npz": (
                "f222bdf1125caa30541208723397bf1b29cd1c875c2fb8e2afd36d6a2c2e0161"
            )
        },
        origin=IDELBAYEV,
    ),
}
"""On the test images 91.73 and 93.39 % of their classes are right."""
INCEPTIONS = {"inception": "tensorflow", "inception-pytorch-fid": "pytorch-fid"}
"""The published Inception, and how images get its size."""
PUBLISHED = (*RESNETS, *INCEPTIONS)
"""Those with published weights, which are read from a file."""
DIGITS = "digits-cnn"
EXTRACTORS = (DIGITS, *PUBLISHED)


def check_extractor(name: str) -> None:
    """Refuse a name that no extractor has.

    Raises:
        SpecError: names those that there are.
    """
    if name not in EXTRACTORS:
        hint = suggestion(name, EXTRACTORS)
        raise SpecError(f"extractor = {name!r}: must be one of {', '.join(EXTRACTORS)}{hint}")


def check_images(data: str, side: int, extractor: str) -> None:
    """Refuse images that an extractor knows nothing of, or in which little is left to be seen.

    Args:
        data: one of ``SIDES``.
        side: that the images are given.
        extractor: the name of the network whose features are compared.

    Raises:
        SpecError: names the option and what to write.
    """
    if extractor == DIGITS and data != "digits":
        raise SpecError(
            f'extractor = "{extractor}": knows digits alone; with data = "{data}" write '
            f'extractor = "resnet20", or another of {", ".join(PUBLISHED)}'
        )
    if 0 < 2 * side < SIDES[data]:
        raise SpecError(
            f'side = {side}: images of data = "{data}" have {SIDES[data]}; write '
            f"side = {SIDES[data]}, or at least half of that"
        )


def find_extractor(name: str) -> Extractor:
    """Return an extractor by name.

    Raises:
        DataError: if it needs a file that is not there.
    """
    check_extractor(name)
    if name == DIGITS:
        return NetworkExtractor(name, digits_classifier(), pooled="1.hidden", side=8)
    if name in INCEPTIONS:
        return Inception(data_folder() / "weights" / FILE, INCEPTIONS[name])
    weights = RESNETS[name]
    weights.provide()
    network = with_published_weights(name, weights.place / next(iter(weights.files)))
    pooling = next(
        part for part, module in network.named_modules() if isinstance(module, nn.AdaptiveAvgPool2d)
    )
    return NetworkExtractor(name, network, pooled=pooling, side=32)


@functools.cache
def digits_classifier() -> nn.Module:
    """Return a small network that has learned the training digits; it takes about a second.

    It reads the first of three equal colours. Its features are the 32 units before the last layer:
    moments of more could not be told from 300 images.
    """
    images, labels = digits()["train"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with others the last digits of sums would be others
    try:
        return nn.Sequential(FirstColour(), _trained_on(images, labels))
    finally:
        torch.set_num_threads(threads)


def _trained_on(images: Tensor, labels: Tensor) -> nn.Module:
    with (
        torch.random.fork_rng(devices=[]),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
    ):
        torch.default_generator.manual_seed(0)  # those of other devices are left alone
        network = nn.Sequential(
            OrderedDict(
                first=nn.Conv2d(1, 16, 3, padding=1),
                first_relu=nn.ReLU(),
                second=nn.Conv2d(16, 32, 3, padding=1),
                second_relu=nn.ReLU(),
                smaller=nn.MaxPool2d(2),
                flat=nn.Flatten(),
                narrow=nn.Linear(512, 32),
                hidden=nn.ReLU(),
                scores=nn.Linear(32, 10),
            )
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=0.003)
        for _ in range(20):
            for chunk in torch.split(torch.randperm(len(images)), 64):
                loss = nn.functional.cross_entropy(network(images[chunk]), labels[chunk])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]  # torch's
                optimizer.step()
    return network


class FirstColour(nn.Module):
    """Takes the first of three equal colours, with values from 0 to 1."""

    def forward(self, numbers: Tensor) -> Tensor:
        """Return (n, 1, height, width) of numbers from 0 to 255."""
        return numbers[:, :1] / 255
