"""Make the latents of images, which DiT and SiT are trained on, by the encoder of an autoencoder.

    python examples/make_latents.py IMAGES OUT --vae FOLDER --flip

IMAGES has a folder for each class, as ImageNet's ``train`` has; the classes are numbered in the
order of their names. The middle of each image is cut out as a square and encoded, and the means
and standard deviations of the encoder are written to OUT, with those of the mirrored image after
``--flip``. ``sgdf.bench.tasks.diffusion.latents`` describes the files.

A stopped or killed program continues where it was if the same command is given again.

It needs the ``bench`` and ``latents`` extras: ``pip install '.[bench,latents]'``, and an
AutoencoderKL in a folder, such as stabilityai's ``sd-vae-ft-ema`` from the Hugging Face Hub.
"""

import argparse
import hashlib
import io
import itertools
import json
import shutil
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from sgdf.bench.errors import DataError, SpecError, StoreError
from sgdf.bench.spec.machine import automatic_device
from sgdf.bench.store import files
from sgdf.bench.tasks.diffusion.latents import (
    CHANNELS,
    CLASSES,
    FACTS,
    FLIPPED,
    LATENTS,
    PROGRESS,
    read_autoencoder,
)

SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".webp"}
TOLD_EVERY = 10.0
"""Seconds between two lines that say how far it is."""
BATCHES_AHEAD = 2
"""How many batches of images are read while one is encoded."""


def find_images(folder, limit=None):
    """Return the images in class folders, the class of each, and how many classes there are.

    With a limit, images that are evenly spaced are taken, so that they are of many classes.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}")
    folders = (path for path in folder.iterdir() if path.is_dir())
    names = sorted(path.name for path in folders if not path.name.startswith("."))
    found = [
        (path, number)
        for number, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    if not found:
        raise DataError(
            f"{folder} has no images in class folders, such as {folder / 'n01440764' / 'x.JPEG'}; "
            f"their names must end in one of {', '.join(sorted(SUFFIXES))}"
        )
    kept = min(limit or len(found), len(found))
    paths, classes = zip(*(found[i * len(found) // kept] for i in range(kept)), strict=True)
    return list(paths), np.array(classes, np.int64), len(names)


def middle_square(image, side):
    """Return the middle of an image as a square: halved as often as it can be, then made to fit.

    Halving averages 2 x 2 pixels, so that none is passed over; what is left to do, by less than a
    half, is bicubic.
    """
    while min(image.size) >= 2 * side:
        image = image.resize((image.width // 2, image.height // 2), Image.Resampling.BOX)
    width, height = (round(length * side / min(image.size)) for length in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def pixels(path, side):
    """Return the middle of an image as numbers from -1 to 1 (3, side, side)."""
    try:
        with Image.open(path) as image:
            square = middle_square(image.convert("RGB"), side)
    except Exception as error:  # each format has errors of its own
        raise DataError(
            f"{path} cannot be read as an image: {error}; replace it, and the same command "
            "continues"
        ) from error
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).float() / 127.5 - 1.0


def batches(paths, side, batch):
    """Yield batches of images; some are read ahead, in threads."""
    chunks = (paths[start : start + batch] for start in range(0, len(paths), batch))
    with ThreadPoolExecutor() as pool:
        begun = deque()
        try:
            for chunk in itertools.chain(chunks, [None] * BATCHES_AHEAD):
                begun.append([pool.submit(pixels, path, side) for path in chunk or ()])
                if len(begun) > BATCHES_AHEAD and (waiting := begun.popleft()):
                    yield torch.stack([future.result() for future in waiting])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@torch.no_grad()
def encode(autoencoder, images):
    """Return the means and standard deviations of the latents of images, as they are stored."""
    gaussian = autoencoder.encode(images).latent_dist
    numbers = torch.cat([gaussian.mean, gaussian.std], 1).to("cpu", torch.float16)
    if not numbers.isfinite().all():
        raise DataError("the encoder gave numbers that are not finite, or too large for float16")
    return numbers.numpy()


def latent_side(side, autoencoder):
    """Return the side of the latents of images with a side."""
    halvings = len(autoencoder.config.block_out_channels) - 1
    if side % 2**halvings:
        raise SpecError(f"--side {side}: the encoder needs a multiple of {2**halvings}")
    return side // 2**halvings


def plan_of(options, autoencoder, paths, class_count):
    """Return what is to be made, as it is kept beside the latents.

    Only a folder of the same plan is continued.
    """
    weights = hashlib.sha256()
    for tensor in autoencoder.state_dict().values():
        weights.update(tensor.numpy().data)
    names = "\n".join(str(path.relative_to(options.images)) for path in paths)
    return {
        "factor": autoencoder.config.scaling_factor,
        "encoder": f"{options.vae.resolve().name} {weights.hexdigest()[:16]}",
        "side": options.side,
        "classes": class_count,
        "flip": options.flip,
        "images": f"{hashlib.sha256(names.encode()).hexdigest()[:16]} of {len(paths)} names",
    }


class Output:
    """The folder of latents, which is filled from its first row to its last.

    ``progress.json`` has the plan, and how many rows are safely on disk. In the end it gives way to
    ``latents.json``.
    """

    def __init__(self, folder, plan, classes, shape):
        self.folder, self.plan = folder, plan
        self.names = [LATENTS, FLIPPED] if plan["flip"] else [LATENTS]
        self.count = shape[0]
        self.is_complete = (folder / FACTS).exists()
        self.done = self._rows_of_before()
        if self.is_complete:
            return
        if not self.done:
            self._begin(classes, shape)
        self.arrays = [self._opened(name, shape) for name in self.names]

    def add(self, *rows):
        """Write rows of each file, and note that they are there once they are."""
        for array, part in zip(self.arrays, rows, strict=True):
            array[self.done : self.done + len(part)] = part
            array.flush()
        self._note(self.done + len(rows[0]))

    def finish(self):
        """Say that the folder is complete."""
        files.write(self.folder / FACTS, json.dumps(self.plan, indent=2).encode())
        files.remove(self.folder / PROGRESS)
        self.is_complete = True

    def _rows_of_before(self):
        """Return how many rows an earlier program has written of the same plan."""
        path = self.folder / (FACTS if self.is_complete else PROGRESS)
        content = files.read(path, most=1 << 20)
        if not content:
            if strange := [name for name in (LATENTS, FLIPPED, CLASSES) if self._has(name)]:
                raise DataError(
                    f"{self.folder} has {', '.join(strange)} already, and no {PROGRESS} that says "
                    "what they are; name another folder"
                )
            return 0
        try:
            noted = json.loads(content)
            plan, done = (noted, self.count) if self.is_complete else (noted["plan"], noted["done"])
            differing = [key for key in self.plan if plan.get(key) != self.plan[key]]
            if not differing and not 0 <= done <= self.count:
                raise ValueError(f"{done} rows of {self.count}")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path} is damaged; remove {self.folder}, and begin anew") from error
        if differing:
            key = differing[0]
            raise DataError(
                f"{self.folder} was begun with {key} = {plan.get(key)!r}, and not "
                f"{self.plan[key]!r}; give the same options, or name another folder"
            )
        return done

    def _begin(self, classes, shape):
        """Make the files, once it is known that they fit on the disk."""
        with files.store_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        needed = len(self.names) * int(np.prod(shape)) * np.dtype(np.float16).itemsize
        free = shutil.disk_usage(self.folder).free
        if needed > free:  # a full disk would end the program without a word
            raise StoreError(
                f"{self.folder}: {needed / 1e9:,.1f} GB are needed, and {free / 1e9:,.1f} are free"
            )
        self._note(0)
        with files.store_errors(self.folder):
            for name in self.names:
                np.lib.format.open_memmap(self.folder / name, "w+", np.float16, shape)
        buffer = io.BytesIO()
        np.save(buffer, classes)
        files.write(self.folder / CLASSES, buffer.getvalue())

    def _opened(self, name, shape):
        try:
            for mode in ("r", "r+"):  # the second alone would fill up a file that was cut short
                array = np.lib.format.open_memmap(self.folder / name, mode)
        except (OSError, ValueError) as error:
            raise DataError(f"{self.folder / name} cannot be continued: {error}") from error
        if (array.shape, array.dtype) != (shape, np.float16):
            raise DataError(f"{self.folder / name} is {array.dtype} {array.shape}, not {shape}")
        return array

    def _note(self, done):
        self.done = done
        note = {"plan": self.plan, "done": done}
        files.write(self.folder / PROGRESS, json.dumps(note, indent=2).encode())

    def _has(self, name):
        return (self.folder / name).exists()


class Teller:
    """Says now and then how many images are done, and how long the rest will take."""

    def __init__(self, first, count):
        self.first, self.count = first, count
        self.begun = self.told = time.monotonic()

    def __call__(self, done):
        """Print a line if it is time for one."""
        now = time.monotonic()
        if done < self.count and now - self.told < TOLD_EVERY:
            return
        self.told = now
        rate = (done - self.first) / max(now - self.begun, 1e-9)
        left = timedelta(seconds=round((self.count - done) / rate))
        print(f"{done:,} of {self.count:,} images, {rate:.1f} a second, {left} left", flush=True)


def make(options):
    """Make the latents, or those that are still to be made."""
    device = torch.device(automatic_device() if options.device == "auto" else options.device)
    paths, classes, class_count = find_images(options.images, options.limit)
    autoencoder = read_autoencoder(options.vae)
    side = latent_side(options.side, autoencoder)
    plan = plan_of(options, autoencoder, paths, class_count)
    output = Output(options.out, plan, classes, (len(paths), 2 * CHANNELS, side, side))
    if output.is_complete:
        print(f"{options.out} is complete: {len(paths):,} images")
        return
    if output.done:
        print(f"{options.out} has {output.done:,} images; the others follow", flush=True)
    autoencoder.to(device)
    tell = Teller(output.done, len(paths))
    for images in batches(paths[output.done :], options.side, options.batch):
        images = images.to(device)
        views = [images, images.flip(-1)] if options.flip else [images]
        output.add(*(encode(autoencoder, view) for view in views))
        tell(output.done)
    output.finish()
    print(f"{options.out} is complete: {len(paths):,} images of {class_count:,} classes")


def positive(text):
    """Return a whole number above 0."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be above 0")
    return number


def device_here(name):
    """Return the name of a device that this machine has, or ``"auto"``."""
    if name != "auto":
        try:
            torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as error:  # the latter if torch is without it
            reason = str(error).partition("\n")[0]
            raise argparse.ArgumentTypeError(f"{name}: not available: {reason}") from error
    return name


def main():
    """Make latents from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("images", type=Path, metavar="IMAGES", help="folder of class folders")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to write to")
    parser.add_argument(
        "--vae", type=Path, required=True, metavar="FOLDER", help="of the autoencoder"
    )
    parser.add_argument("--side", type=positive, default=256, help="of the squares, in pixels")
    parser.add_argument("--batch", type=positive, default=16, help="images encoded at a time")
    parser.add_argument("--flip", action="store_true", help="encode mirrored images too")
    parser.add_argument("--device", type=device_here, default="auto", help="cpu, cuda, mps, …")
    parser.add_argument("--limit", type=positive, metavar="N", help="take N images, evenly spaced")
    try:
        make(parser.parse_args())
    except (DataError, SpecError, StoreError) as error:
        sys.exit(f"make_latents.py: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command continues")


if __name__ == "__main__":
    main()
