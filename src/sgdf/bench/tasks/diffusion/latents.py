"""Latents of images: what the encoder of an autoencoder made of them, read from a folder.

They are used where images are too large to learn to draw directly. A folder of latents, which
``examples/make_latents.py`` makes, has the files

- ``latents.npy``: for each image the means (4 channels) and the standard deviations (4 more) of
  the Gaussian that its latents are drawn from, (n, 8, side, side); or the latents themselves,
  (n, 4, side, side). float16 or float32.
- ``flipped.npy``: the same of the mirrored images; it may be absent.
- ``classes.npy``: the class of each image, (n,), any integers.
- ``latents.json``: ``factor``, which latents are multiplied by to have a variance of about 1;
  ``encoder``, its name; ``side`` of the images; ``classes``, how many there are. It is written
  last: a folder without it is not complete.

A folder for ImageNet has 40 GB, so it stays on disk, and only the rows of a batch are read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...errors import DataError, SpecError, StoreError, first_line
from ...store import files
from ..assets import data_folder
from ..data_record import HASHED_BYTES
from ..supervised import Pair, ShuffledBatches

CHANNELS = 4
"""Of latents. As many numbers are means and, after them, standard deviations."""
LATENTS, FLIPPED, CLASSES, FACTS = "latents.npy", "flipped.npy", "classes.npy", "latents.json"
PROGRESS = "progress.json"
"""In a folder that is not complete: how far it is."""
DECODED_PLACES = 4 * 32 * 32
"""Latents are decoded in parts of about as many places: four images of 256 pixels."""

Array = NDArray[Any]


def folder_of(name: str | Path) -> Path:
    """Return a folder by its name, which is relative to the folder of the data sets."""
    return data_folder() / Path(name).expanduser()


class Latents:
    """The latents of a folder.

    Args:
        name: the folder; a relative name is taken in the folder of the data sets.

    Attributes:
        shape: of the latents of an image (channels, side, side).
        count: how many images there are.
        class_count: how many classes there are.
        image_side: the side of the images that the latents are of.
        factor: what latents are multiplied by.
        has_flipped: whether there are those of mirrored images.
        digest: of what batches consist of. Of large files, rows that are evenly spaced are hashed.

    Raises:
        DataError: if the folder lacks files, or they are damaged or do not fit together.
    """

    def __init__(self, name: str | Path) -> None:
        self.folder = folder_of(name)
        self._refuse_missing()
        self.factor, self.class_count, self.image_side = self._read_facts()
        self._latents = self._map(LATENTS)
        self.has_flipped = (self.folder / FLIPPED).exists()
        self._flipped = self._map(FLIPPED) if self.has_flipped else self._latents
        self._check_shapes()
        self.count, side = len(self._latents), self._latents.shape[-1]
        self.shape = (CHANNELS, side, side)
        self.classes = self._read_classes()
        self.digest = self._check_and_hash_rows()

    def draw(self, rows: Tensor, is_flipped: Tensor, noise: torch.Generator) -> Tensor:
        """Return latents of some images, multiplied by the factor.

        Args:
            rows: the numbers of the images.
            is_flipped: whether those of the mirrored image are wanted, for each.
            noise: what latents are drawn from their Gaussians with, on the CPU.
        """
        stored = torch.from_numpy(self._read(rows.numpy(), is_flipped.numpy()))
        if stored.shape[1] == CHANNELS:
            return stored * self.factor
        means, deviations = stored.chunk(2, dim=1)
        return (means + deviations * torch.randn(means.shape, generator=noise)) * self.factor

    def _read(self, rows: Array, is_flipped: Array) -> NDArray[np.float32]:
        """Return rows of the files in the order asked for, read in the order of the files."""
        stored = np.empty((len(rows), *self._latents.shape[1:]), np.float32)
        for array, wanted in ((self._latents, ~is_flipped), (self._flipped, is_flipped)):
            places = np.flatnonzero(wanted)
            places = places[np.argsort(rows[places])]
            stored[places] = array[rows[places]]
        return stored

    def _refuse_missing(self) -> None:
        if not self.folder.is_dir():
            raise self._refused(f"there is no folder {self.folder}")
        missing = [n for n in (LATENTS, CLASSES, FACTS) if not (self.folder / n).is_file()]
        if FACTS in missing and (self.folder / PROGRESS).exists():
            raise self._refused(
                f"{self.folder} is not complete: give the command that began it again, and it "
                "continues"
            )
        if missing:
            raise self._refused(f"{self.folder} lacks {', '.join(missing)}")

    def _read_facts(self) -> tuple[float, int, int]:
        """Return the factor, the number of classes and the side of images."""
        path = self.folder / FACTS
        try:
            facts: Any = json.loads(files.read(path, most=1 << 20))
        except (ValueError, RecursionError, StoreError) as error:
            raise self._refused(f"{path} cannot be read: {first_line(error)}") from error
        if not isinstance(facts, dict):
            raise self._refused(f"{path} has no keys, but {type(facts).__name__}")
        factor: Any = facts.get("factor")
        if type(factor) not in (int, float) or not 0 < factor < math.inf:
            raise self._refused(f"{path}: factor = {factor!r}: must be a number above 0")
        for name in ("classes", "side"):
            if type(facts.get(name)) is not int or facts[name] < 1:
                raise self._refused(
                    f"{path}: {name} = {facts.get(name)!r}: must be a whole number above 0"
                )
        return float(factor), facts["classes"], facts["side"]

    def _map(self, name: str) -> Array:
        """Return a file as an array of which only what is used is read."""
        path = self.folder / name
        if not path.is_file():  # which a pipe would be, and nobody writes to it
            raise self._refused(f"{path} is not a file")
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise self._refused(f"{path} cannot be read: {first_line(error)}") from error
        if not isinstance(array, np.ndarray):
            array.close()
            raise self._refused(f"{path} has several arrays in place of one")
        return array

    def _check_shapes(self) -> None:
        shape, dtype = self._latents.shape, self._latents.dtype
        wanted = (CHANNELS, 2 * CHANNELS)
        if len(shape) != 4 or shape[1] not in wanted or shape[2] != shape[3] or 0 in shape:
            raise self._refused(
                f"{LATENTS} has the shape {shape}: must be (n, 8, side, side) or (n, 4, side, side)"
            )
        if dtype not in (np.float16, np.float32):
            raise self._refused(f"{LATENTS} has {dtype} numbers: must be float16 or float32")
        flipped = self._flipped
        if (flipped.shape, flipped.dtype) != (shape, dtype):
            raise self._refused(
                f"{FLIPPED} is {flipped.dtype} {flipped.shape}, but {LATENTS} {dtype} {shape}"
            )

    def _read_classes(self) -> Tensor:
        classes = self._map(CLASSES)
        if classes.shape != (self.count,) or not np.issubdtype(classes.dtype, np.integer):
            raise self._refused(
                f"{CLASSES} is {classes.dtype} {classes.shape}: must be an integer for each of "
                f"the {self.count:,} images of {LATENTS}"
            )
        low, high = int(classes.min()), int(classes.max())
        if low < 0 or high >= self.class_count:
            raise self._refused(
                f"{CLASSES} has classes from {low} to {high}: must be from 0 to "
                f"{self.class_count - 1}, by the classes in {FACTS}"
            )
        return torch.from_numpy(classes.astype(np.int64))

    def _check_and_hash_rows(self) -> str:
        """Return a digest, once numbers that a damaged file would have are looked for."""
        arrays = {LATENTS: self._latents}
        if self.has_flipped:
            arrays[FLIPPED] = self._flipped
        row_bytes = sum(array[0].nbytes for array in arrays.values())
        hashed = min(self.count, max(1, HASHED_BYTES // row_bytes))
        content = hashlib.sha256(f"{self.factor} {self.class_count}".encode())
        content.update(self.classes.numpy().data)
        for name, array in arrays.items():
            rows = array[np.arange(hashed) * self.count // hashed]
            if not np.isfinite(rows).all():
                raise self._refused(f"{name} has numbers that are not finite")
            if (rows[:, CHANNELS:] < 0).any():
                raise self._refused(f"{name} has standard deviations below 0")
            content.update(f"{name} {array.dtype} {array.shape}".encode())
            content.update(rows.tobytes())
        part = f"{hashed:,} of {self.count:,}" if hashed < self.count else f"{self.count:,}"
        return f"{content.hexdigest()[:16]} of {part} rows"

    def _refused(self, trouble: str) -> DataError:
        """Return an error that describes the problem and the remedy."""
        return DataError(
            f"Latents: {trouble}.\n"
            f"A folder of latents has {LATENTS}, {CLASSES}, {FACTS} and perhaps {FLIPPED}. To make "
            "it from images in class folders:\n"
            f"  python examples/make_latents.py IMAGES {self.folder} --vae FOLDER --flip"
        )


class LatentBatches(ShuffledBatches):
    """The batches of one epoch over latents on disk: latents in float32, and classes.

    All that is random is drawn from ``order`` at once, so that batches can be skipped.

    Args:
        latents: the folder.
        batch_size: images in a batch; the last one may have fewer.
        order: shuffles the images, and says which are mirrored and what noise they get.
        flip: take latents of the mirrored image for half of the images, if the folder has them.
    """

    def __init__(
        self,
        latents: Latents,
        batch_size: int,
        order: torch.Generator,
        flip: bool,
    ) -> None:
        self.latents = latents
        shuffled = torch.randperm(latents.count, generator=order)
        share = 0.5 if flip and latents.has_flipped else 0.0
        is_flipped = torch.rand(latents.count, generator=order) < share
        chunks, flips = (torch.split(part, batch_size) for part in (shuffled, is_flipped))
        seeds = torch.randint(2**62, (len(chunks),), generator=order).tolist()
        self.chunks = list(zip(chunks, flips, seeds, strict=True))

    def __iter__(self) -> Iterator[Pair]:
        for rows, is_flipped, seed in self.chunks:
            noise = torch.Generator().manual_seed(seed)
            yield self.latents.draw(rows, is_flipped, noise), self.latents.classes[rows]


class Decoder:
    """What makes images of latents.

    Args:
        name: the folder of the autoencoder; a relative name is taken in the folder of the data
            sets.

    Raises:
        SpecError: if diffusers is not installed.
        DataError: if the folder has no autoencoder of such latents.
    """

    def __init__(self, name: str | Path) -> None:
        self.network = read_autoencoder(folder_of(name))
        self.device = torch.device("cpu")

    def to(self, device: torch.device) -> None:
        """Move the network to the device."""
        self.device = device
        self.network.to(device)

    @torch.no_grad()
    def __call__(self, latents: Tensor, factor: float) -> Tensor:
        """Return images with values from -1 to 1, on the device of the decoder.

        Args:
            latents: (n, 4, side, side), multiplied by the factor.
            factor: that of the folder that the model was trained on.
        """
        at_once = max(1, DECODED_PLACES // latents[0, 0].numel())
        parts = torch.split(latents.to(self.device) / factor, at_once)
        return torch.cat([self.network.decode(part).sample.clamp(-1, 1) for part in parts])


def read_autoencoder(folder: Path) -> Any:
    """Return the autoencoder that diffusers has saved in a folder, to be used and not trained.

    Nothing is downloaded, and no code of the folder is run.

    Raises:
        SpecError: if diffusers is not installed.
        DataError: if the folder has no autoencoder of such latents.
    """
    try:
        import safetensors.torch  # noqa: F401  # diffusers uses it, and may not import it itself
        from diffusers import AutoencoderKL
    except (ImportError, RuntimeError) as error:  # the latter if something that it needs is amiss
        raise SpecError(
            f"latents need diffusers: pip install 'sgdf[latents]' ({first_line(error)})"
        ) from error
    if not (folder / "config.json").is_file():
        raise _no_autoencoder(folder, "it has no config.json" if folder.is_dir() else "no folder")
    try:
        with torch.random.fork_rng(devices=[]):  # weights are drawn before they are read
            network, report = AutoencoderKL.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                low_cpu_mem_usage=False,  # which would need accelerate
                output_loading_info=True,
            )
    except Exception as error:  # diffusers, safetensors and json have no error in common
        trouble = " ".join(f"{type(error).__name__}: {error}".split())[:400].rstrip(".")
        raise _no_autoencoder(folder, trouble) from error
    if missing := sorted(report["missing_keys"]):
        raise _no_autoencoder(folder, f"the weights lack {len(missing)} tensors, as {missing[0]}")
    if network.config.latent_channels != CHANNELS:
        raise _no_autoencoder(
            folder, f"latents have {network.config.latent_channels} channels: must be {CHANNELS}"
        )
    for name in ("shift_factor", "latents_mean", "latents_std"):
        if network.config.get(name) is not None:
            raise _no_autoencoder(folder, f"{name}: latents can be multiplied by a factor only")
    return network.eval().requires_grad_(False)


def _no_autoencoder(folder: Path, trouble: str) -> DataError:
    return DataError(
        f"{folder} is no autoencoder for latents: {trouble}.\n"
        "It must be the folder of an AutoencoderKL with 4 channels that diffusers has saved, as "
        "sd-vae-ft-ema is: config.json and diffusion_pytorch_model.safetensors."
    )
