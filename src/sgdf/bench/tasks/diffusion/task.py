"""Transformers that learn to take noise away: DiT by diffusion, SiT by flow matching."""

from __future__ import annotations

import inspect
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...errors import DataError, SpecError, StoreError, suggestion
from ..base import Batches
from ..generative import Generative
from ..images.extractors import INCEPTIONS, check_images
from ..images.pixels import SIDES, check_pixels, read_pixels, splits_of_pixels
from ..images.real_images import PublishedImages, RealImages, RealSet
from ..long_evaluation import Progress, silent
from .ddpm import Diffusion
from .draw import SAMPLERS, Process, check_sampler, draw
from .examples import Examples, LatentExamples, PixelExamples
from .flow import Flow
from .guidance import Guided
from .latents import Decoder, Latents
from .transformer import SIZES, DiffusionTransformer, check_fit

NETWORKS = {"tiny": (64, 4, 4), "mini": (128, 4, 4), **SIZES}
"""By name: hidden width, blocks and heads. The first two are for small images and CPUs."""
EVALUATION_BATCH = 256
DATA = (*SIDES, "latents")
UNUSED_BY_LATENTS = ("train_images", "validation_images", "side", "official")
UNUSED_BY_PIXELS = ("folder", "decoder")


class DiffusionTask(Generative):
    """What DiT and SiT have in common: network, data, and how images are drawn and compared.

    The loss on held-out images is always that of the same noise at the same times.

    Args:
        data: ``"digits"``, ``"cifar10"``, or ``"latents"`` for those of a folder.
        folder: of latents, as ``examples/make_latents.py`` writes it.
        decoder: the folder of the encoder that made them, to decode drawn latents by.
        side: the side of images; those of the data are resized. Latents have their own. Write 16
            or more for CIFAR.
        flip: mirror half of the images in training.
        train_images: how many images are trained on; 0 for all that are not held back.
        validation_images: how many training images are held back for choosing; digits have
            300 always.
        official: insist on the published files of CIFAR.
        network: width and patch, as in ``"b-4"``: tiny, mini, s, b, l or xl, and the patch's side.
        class_dropout: the share of images whose class is left out in training.
        sampler: ``"ddpm"`` for DiT; ``"heun"``, ``"dopri5"`` or ``"sde"`` for SiT; by default the
            first.
        sampling_steps: how many steps it takes; ``"dopri5"`` decides itself.
        guidance: the scale of classifier-free guidance; 1 for none.
        samples: how many images are drawn for a score.
        sample_batch: how many are drawn at a time.
        extractor: the network whose features are compared.
        reference: a file with published statistics of real images; by default they are those of
            the held-out images.
    """

    learns_variance: ClassVar[bool]

    def __init__(
        self,
        data: str = "digits",
        folder: str = "",
        decoder: str = "",
        side: int = 8,
        flip: bool = False,
        train_images: int = 0,
        validation_images: int = 0,
        official: bool = True,
        network: str = "tiny-2",
        class_dropout: float = 0.1,
        sampler: str = "",
        sampling_steps: int = 50,
        guidance: float = 1.0,
        samples: int = 1000,
        sample_batch: int = 250,
        extractor: str = "digits-cnn",
        reference: str = "",
    ) -> None:
        options = {
            name: value for name, value in locals().items() if name not in ("self", "__class__")
        }
        self.check(**options)
        self.process = self.new_process()
        self.decoder: Decoder | None = None
        real: RealSet
        if data == "latents":
            latents = Latents(folder)
            self.examples: Examples = LatentExamples(latents, flip)
            self.decoder, self.factor = Decoder(decoder), latents.factor
            real, side = PublishedImages(reference), latents.image_side
        else:
            pixels = read_pixels(data, train_images, validation_images, official)
            self.examples = PixelExamples(pixels, side, flip)
            held_out = {s: images for s, images in self.examples.images.items() if s != "train"}
            real = PublishedImages(reference) if reference else RealImages(held_out, side)
        super().__init__(real, side, extractor, samples, sample_batch)
        patch, hidden, blocks, heads = _sizes(network)
        channels, rows, _ = self.examples.shape
        self.model = DiffusionTransformer(
            rows,
            channels,
            patch,
            hidden,
            blocks,
            heads,
            self.examples.class_count,
            class_dropout=class_dropout,
            learns_variance=self.learns_variance,
        )
        self.sampler = sampler or SAMPLERS[type(self.process)][0]
        self.sampling_steps, self.guidance = sampling_steps, guidance
        self.digest = self.examples.digest

    @classmethod
    @abstractmethod
    def new_process(cls) -> Process:
        """Return what the network is trained on."""

    @classmethod
    def check(cls, **options: Any) -> None:
        """Refuse options that cannot be, without reading data."""
        super().check(**options)
        data = options["data"]
        if data not in DATA:
            allowed, hint = ", ".join(DATA), suggestion(data, DATA)
            raise SpecError(f"data = {data!r}: must be one of {allowed}{hint}")
        for name in ("folder", "decoder", "reference"):
            if data == "latents" and not options[name]:
                raise SpecError(f'{name}: data = "latents" needs it')
        unused = UNUSED_BY_LATENTS if data == "latents" else UNUSED_BY_PIXELS
        _refuse_unused(options, unused, f'data = "{data}"')
        if options["reference"] and options["extractor"] not in INCEPTIONS:
            raise SpecError(
                f"reference: its statistics are of the published Inception, so extractor must be "
                f"{' or '.join(INCEPTIONS)}, whichever it was made with"
            )
        if not re.fullmatch(rf"({'|'.join(NETWORKS)})-[1-9]\d?", options["network"]):
            raise SpecError(
                f"network = {options['network']!r}: must be one of {', '.join(NETWORKS)}, a hyphen "
                'and the side of a patch, as in "b-4"'
            )
        if data != "latents":
            check_pixels(data, options["train_images"], options["validation_images"])
            if options["side"] < 1:
                raise SpecError(f"side = {options['side']}: must be at least 1")
            check_images(data, options["side"], options["extractor"])
            patch, hidden, _, heads = _sizes(options["network"])
            check_fit(options["side"], patch, hidden, heads)
        if not 0 <= options["guidance"] < math.inf:
            raise SpecError(f"guidance = {options['guidance']}: must be at least 0, and finite")
        if options["class_dropout"] == 0 and options["guidance"] != 1:
            raise SpecError(
                f"guidance = {options['guidance']}: needs a network that has learned images "
                "without a class, but class_dropout = 0"
            )
        if not 0 <= options["class_dropout"] < 1:
            raise SpecError(
                f"class_dropout = {options['class_dropout']}: must be at least 0 and below 1"
            )
        process = cls.new_process()
        sampler = options["sampler"] or SAMPLERS[type(process)][0]
        check_sampler(process, sampler, options["sampling_steps"])
        if sampler == "dopri5":
            _refuse_unused(options, ("sampling_steps",), f'sampler = "{sampler}"')

    @classmethod
    def splits_with(cls, **options: Any) -> tuple[str, ...]:
        """Return the splits that there are images of; statistics of a file are those of one set."""
        if options["data"] == "latents" or options["reference"]:
            return PublishedImages.splits
        return splits_of_pixels(options["data"], options["validation_images"])

    @classmethod
    def provide(cls, **options: Any) -> None:
        """Check that all data are there, without making the network.

        Raises:
            DataError: names all that is missing at once.
        """
        needed: list[Callable[[], object]] = [partial(super().provide, **options)]
        if options["reference"]:
            needed.append(partial(PublishedImages, options["reference"]))
        if options["data"] == "latents":
            names: tuple[str, ...] = ("folder", "flip", "network")
            needed.append(partial(_check_latents, **{name: options[name] for name in names}))
            needed.append(partial(Decoder, options["decoder"]))
        else:
            names = ("data", "train_images", "validation_images", "official")
            needed.append(partial(read_pixels, **{name: options[name] for name in names}))
        _try_all(needed)

    def to(self, device: torch.device) -> None:
        """Move model, decoder and images to the device."""
        super().to(device)
        self.examples.to(device)
        if self.decoder is not None:
            self.decoder.to(device)

    def batches(self, batch_size: int, order: torch.Generator) -> Batches:
        """Return the training examples in a new order."""
        return self.examples.batches(batch_size, order)

    def loss(self, batch: Any) -> Tensor:
        """Return the mean loss of examples with new noise, at random times."""
        examples, classes = (part.to(self.device) for part in batch)
        times = self.process.draw_times(len(examples))
        noise = torch.randn_like(examples)
        parts = self.process.losses(self.model, examples, classes, times, noise)
        means = {name: part.mean() for name, part in parts.items()}
        if len(means) > 1:
            for name, mean in means.items():
                self.log(name, mean.detach())
        return torch.stack(list(means.values())).sum()

    def evaluate(self, split: str) -> dict[str, float]:
        """Return the loss on held-out images, always with the same noise."""
        pair = self.examples.held_out(split)
        if pair is None:
            return {}
        examples, classes = pair
        noise = torch.Generator().manual_seed(0)
        total = 0.0
        for start in range(0, len(examples), EVALUATION_BATCH):
            part = slice(start, start + EVALUATION_BATCH)
            images = examples[part]
            numbers = torch.randn(images.shape, generator=noise).to(images.device)
            times = self.process.draw_times(len(images), noise)
            losses = self.process.losses(self.model, images, classes[part], times, numbers)
            total += float(sum(loss.sum() for loss in losses.values()))
        return {"loss": total / len(examples)}

    def draw(
        self, count: int, first: int, noise: torch.Generator, progress: Progress = silent
    ) -> Tensor:
        """Return images of all classes in turn."""
        classes = (torch.arange(first, first + count) % self.examples.class_count).to(self.device)
        network = Guided(self.model, self.guidance, self.examples.class_count)
        images = draw(
            network,
            self.process,
            self.examples.shape,
            classes,
            noise,
            self.sampler,
            self.sampling_steps,
            clip=1.0 if self.decoder is None else None,
            progress=progress,
        )
        return images if self.decoder is None else self.decoder(images, self.factor)

    def count_examples(self) -> dict[str, int]:
        """Return the number of examples of each split."""
        return self.examples.count()


def _refuse_unused(options: Mapping[str, Any], unused: Iterable[str], why: str) -> None:
    """Refuse options that are not what they are by default, since they have no effect."""
    defaults = inspect.signature(DiffusionTask.__init__).parameters
    for name in unused:
        if options[name] != defaults[name].default:
            raise SpecError(f"{name} = {options[name]!r}: has no effect with {why}")


def _check_latents(folder: str, flip: bool, network: str) -> None:
    examples = LatentExamples(Latents(folder), flip)
    patch, hidden, _, heads = _sizes(network)
    check_fit(examples.shape[-1], patch, hidden, heads)


def _try_all(needed: Iterable[Callable[[], object]]) -> None:
    """Call all functions, and raise what they raise as one error."""
    errors: list[Exception] = []
    for function in needed:
        try:
            function()
        except (SpecError, StoreError) as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise DataError("\n".join(map(str, errors)))


def _sizes(network: str) -> tuple[int, int, int, int]:
    """Return patch, hidden width, blocks and heads of a network by its name."""
    size, patch = network.split("-")
    return int(patch), *NETWORKS[size]


class DiT(DiffusionTask):
    """A diffusion transformer that predicts noise and its variance (Peebles & Xie, 2023)."""

    learns_variance = True

    @classmethod
    def new_process(cls) -> Diffusion:
        """Return a thousand steps of noise."""
        return Diffusion()


class SiT(DiffusionTask):
    """The same transformer, which learns straight ways from noise to images (Ma et al., 2024)."""

    learns_variance = False

    @classmethod
    def new_process(cls) -> Flow:
        """Return the straight path."""
        return Flow()
