"""A generator of images and a critic, trained against each other with a gradient penalty."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...errors import SpecError, suggestion
from ..base import Update
from ..data_record import count_shared_rows, digest_rows
from ..generative import Generative
from ..images.extractors import check_images
from ..images.pixels import check_pixels, read_pixels, splits_of_pixels
from ..images.real_images import RealImages
from ..long_evaluation import Progress, silent
from .batches import ResizedBatches
from .networks import SMALLEST, Critic, Generator, is_side
from .penalty import gradient_penalty

COMPARED = ("train", "test")


class WGANGP(Generative):
    """A DCGAN trained as a WGAN-GP, after Gulrajani et al. (2017).

    The critic takes a step on every batch, on -E D(x) + E D(G(z)) and ``penalty`` times its
    gradient penalty, which are one loss. The generator takes its step, on -E D(G(z)), after that
    of the critic on the batches 0, ``generator_every``, … of every epoch, and with the same z. A
    last batch that is smaller counts like any other. For the critic the generator runs as in
    training, but without a graph: its BatchNorm sees these images too, as in the published
    programs. Under torchrun a batch is that of all processes together; ``train.accumulate`` is
    refused, and torch cannot compile a gradient penalty.

    With ``train.ema_decay`` the generator alone is averaged.

    Args:
        data: ``"cifar10"`` or ``"digits"``.
        side: the side of the images, a power of two from 8 on. Those of the data are resized.
        channels: the channels of the networks at half that side.
        latent: the length of z.
        penalty: the weight of the gradient penalty.
        critic_batch_norm: normalise by the batch in the critic too, as the published programs do.
        generator_every: on every so many batches the generator has its turn.
        train_images: how many images are trained on; 0 for all that are not held back.
        validation_images: how many of the training images of CIFAR are held back for choosing.
        compared_with: the images that stand for test data where drawn images are compared with
            real ones: ``"train"`` as in the published programs, or ``"test"``. Of the former the
            report says that they were trained on.
        stretch: stretch each image to its own smallest and largest value before it is compared, as
            the published programs do without telling. Here drawn images are rounded to bytes
            before that, too.
        extractor: the network whose features are compared.
        samples: how many images are drawn for a score.
        sample_batch: how many are drawn at a time.
        official: insist on the published files; if false, any in their format will do.
    """

    model: nn.ModuleDict
    real: RealImages
    averaged = "generator"
    accumulates = False
    batch = 0  # the number of the next one in its epoch

    def __init__(
        self,
        data: str = "cifar10",
        side: int = 64,
        channels: int = 64,
        latent: int = 100,
        penalty: float = 10.0,
        critic_batch_norm: bool = True,
        generator_every: int = 5,
        train_images: int = 0,
        validation_images: int = 0,
        compared_with: str = "train",
        stretch: bool = True,
        extractor: str = "inception-pytorch-fid",
        samples: int = 64_000,
        sample_batch: int = 250,
        official: bool = True,
    ) -> None:
        options = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        self.check(**options)
        pixels = read_pixels(data, train_images, validation_images, official)
        self.digest, self.images = pixels.digest, pixels.images["train"]
        self.compared_with = compared_with
        compared = {
            "validation": pixels.images["validation"],
            "test": pixels.images[compared_with],
        }
        real = RealImages(compared, side, stretch)
        super().__init__(real, side, extractor, samples, sample_batch)
        self.latent = latent
        self.penalty, self.generator_every = penalty, generator_every
        self.model = nn.ModuleDict(
            {
                "critic": Critic(channels, side, pixels.colours, critic_batch_norm),
                "generator": Generator(latent, channels, side, pixels.colours),
            }
        )

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse sizes, weights and numbers of images that cannot be."""
        super().check(**options)
        check_pixels(options["data"], options["train_images"], options["validation_images"])
        check_images(options["data"], options["side"], options["extractor"])
        if not is_side(options["side"]):
            raise SpecError(
                f"side = {options['side']}: must be a power of two from {2 * SMALLEST} on"
            )
        for name in ("channels", "latent", "generator_every"):
            if options[name] < 1:
                raise SpecError(f"{name} = {options[name]}: must be at least 1")
        if not 0 <= options["penalty"] < math.inf:
            raise SpecError(f"penalty = {options['penalty']}: must be at least 0, and finite")
        if options["compared_with"] not in COMPARED:
            raise SpecError(
                f"compared_with = {options['compared_with']!r}: must be one of "
                f"{', '.join(COMPARED)}{suggestion(options['compared_with'], COMPARED)}"
            )

    @classmethod
    def splits_with(cls, **options: Any) -> tuple[str, ...]:
        """Return the splits that there are images of."""
        return splits_of_pixels(options["data"], options["validation_images"])

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Fetch and check the data, and with them the options."""
        super().provide(**options)
        with torch.random.fork_rng(devices=[]):
            cls(**options)

    def to(self, device: torch.device) -> None:
        """Move networks and training images to the device."""
        super().to(device)
        self.images = self.images.to(device)

    def optimizers(self, make: Callable[..., Optimizer]) -> Mapping[str, Optimizer]:
        """Return two optimizers with the same settings, one for each network."""
        return {name: make(network.parameters()) for name, network in self.model.items()}

    def batches(self, batch_size: int, order: torch.Generator) -> ResizedBatches:
        """Return the training images in a new order, and begin to count batches."""
        self.batch = 0
        return ResizedBatches(self.images, self.side, batch_size, order)

    def step(self, batch: Any, update: Update) -> Mapping[str, Tensor | float]:
        """Train the critic and, if it has its turn, the generator."""
        vectors = torch.randn(len(batch), self.latent, device=batch.device)
        numbers = self._train_critic(batch, vectors, update)
        if self.batch % self.generator_every == 0:
            numbers["generator"] = self._train_generator(vectors, update)
        self.batch += 1
        return numbers

    def _train_critic(self, real: Tensor, vectors: Tensor, update: Update) -> dict[str, Tensor]:
        with torch.no_grad():
            fake = self.model["generator"](vectors)
        distance = self._mean_score(real) - self._mean_score(fake)
        mix = torch.rand(len(real), 1, 1, 1, device=real.device)
        penalty = gradient_penalty(self._scores_without_autocast, real, fake, mix)
        update(self.penalty * penalty - distance, "critic")
        return {"wasserstein": distance, "penalty": penalty}

    def _train_generator(self, vectors: Tensor, update: Update) -> Tensor:
        loss = -self._mean_score(self.model["generator"](vectors))
        update(loss, "generator")
        return loss

    def _scores_without_autocast(self, images: Tensor) -> Tensor:
        critic = self.model["critic"]
        scores: Tensor = critic(images.to(next(critic.parameters()).dtype))
        return scores

    def _mean_score(self, images: Tensor) -> Tensor:
        # In mixed precision a mean would have three digits, and the difference of two fewer.
        scores: Tensor = self.model["critic"](images)
        return scores.float().mean()

    def draw(
        self, count: int, first: int, noise: torch.Generator, progress: Progress = silent
    ) -> Tensor:
        """Return images of random vectors."""
        vectors = torch.randn(count, self.latent, generator=noise)
        images: Tensor = self.model["generator"](vectors.to(self.device))
        return images

    def train_on_validation(self) -> None:
        """Train on the images that were held back, too."""
        self.images = torch.cat([self.images, self.real.images.pop("validation")])
        if self.compared_with == "train":
            self.real.images["test"] = self.images
        self.splits = self.real.splits

    def count_examples(self) -> dict[str, int]:
        """Return the number of images of each split."""
        held_out = {split: len(images) for split, images in self.real.images.items()}
        return {"train": len(self.images), **held_out}

    def describe_data(self) -> dict[str, str]:
        """Return also a digest of the images that are trained on, and how many test images are."""
        facts = {"data of train": digest_rows(self.images), **super().describe_data()}
        test = self.real.images["test"]
        is_train = self.compared_with == "train"
        shared = len(test) if is_train else count_shared_rows((self.images,), (test,))
        if shared is not None:
            facts["test rows in train"] = f"{shared:,} of {len(test):,}"
        return facts

    def state(self) -> dict[str, Any]:
        """Return the number of the next batch, by which the networks take turns."""
        return {"batch": self.batch}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on counting."""
        self.batch = state["batch"]
