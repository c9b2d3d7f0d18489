"""Measure the decoding of photographs against torchvision's DataLoader: images per second.

Both give normalised batches of 64 random pieces of 224 pixels, some of them flipped, from JPEGs of
640 × 480 pixels on disk, on the same two cores: torchvision's ImageFolder in a DataLoader with two
workers, ours with two threads and the normalisation in this one. They take turns. The photographs
are those of BCCD in ``SGDF_DATA`` or, if they are not there, as many that are made up.

An epoch has every photograph several times. ``--rounds 3`` makes it shorter.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from augmentation import transforms
from PIL import Image

from sgdf.bench.jobs.freed_memory import keep_freed_memory
from sgdf.bench.tasks.assets import data_folder
from sgdf.bench.tasks.images.batches import PictureBatches
from sgdf.bench.tasks.images.folders import ClassFolders
from sgdf.bench.tasks.images.normalised import IMAGENET, Normalised
from sgdf.bench.tasks.images.pictures import TrainingPicture
from sgdf.environment import environment

BOUND = 1.0
SIDE, BATCH, CORES, ROUNDS, TIMES = 224, 64, 2, 7, 4
PHOTOGRAPHS = 364


def photographs(folder):
    """Let a folder have class folders with the photographs, and return whether they are real."""
    place = folder / "train" / "all"
    place.mkdir(parents=True)
    real = sorted((data_folder() / "voc_bccd" / "BCCD" / "JPEGImages").glob("*.jpg"))
    for number in range(TIMES):
        for path in real:
            os.symlink(path, place / f"{number}-{path.name}")
    if not real:
        rng = np.random.default_rng(0)
        for number in range(PHOTOGRAPHS * TIMES):
            coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
            smooth = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC), np.int16)
            grain = smooth + rng.integers(-4, 5, smooth.shape)
            Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(place / f"{number}.jpg")
    return bool(real)


def through_torchvision(folder):
    """Return the images a second of torchvision's, its workers running already."""
    offered = transforms()
    from torchvision.datasets import ImageFolder

    transform = offered.Compose(
        [
            offered.RandomResizedCrop(SIDE),
            offered.RandomHorizontalFlip(),
            offered.ToTensor(),
            offered.Normalize(*IMAGENET),
        ]
    )
    data = ImageFolder(folder / "train", transform)
    batches = iter(torch.utils.data.DataLoader(data, BATCH, shuffle=True, num_workers=CORES))
    next(batches)
    start = time.perf_counter()
    # The workers have begun batches before the clock, and end with none to begin.
    count = sum(len(classes) for _, classes in batches)
    return count / (time.perf_counter() - start)


def through_threads(folder):
    """Return the images a second of ours."""
    data, normalised = ClassFolders(folder / "train"), Normalised(*IMAGENET)
    order = torch.Generator().manual_seed(0)
    everything = torch.arange(len(data))
    batches = PictureBatches(data, everything, BATCH, order, TrainingPicture(SIDE), threads=CORES)
    going = iter(batches)
    normalised(next(going)[0])
    start = time.perf_counter()
    count = sum(len(normalised(pictures)) for pictures, _ in going)
    return count / (time.perf_counter() - start)


def main():
    """Print the ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often they take turns")
    rounds = parser.parse_args().rounds
    keep_freed_memory()  # as sgdf run does
    torch.set_num_threads(1)
    print(", ".join(f"{key} {value}" for key, value in environment().items()))
    with tempfile.TemporaryDirectory() as place:
        is_real = photographs(Path(place))
        print("photographs of BCCD" if is_real else "made-up photographs: BCCD is not in SGDF_DATA")
        rates = []
        for number in range(rounds):
            turns = (through_torchvision, through_threads)
            turns = turns if number % 2 else turns[::-1]
            measured = {turn: turn(Path(place)) for turn in turns}
            rates.append((measured[through_torchvision], measured[through_threads]))
    ratios = [ours / theirs for theirs, ours in rates]
    median = statistics.median(ratios)
    for title, those in zip(("torchvision", "threads"), zip(*rates, strict=True), strict=True):
        print(f"{title:12} {statistics.median(those):,.0f} images a second")
    print(
        f"{median:.2f} times as many ({min(ratios):.2f} to {max(ratios):.2f} in {rounds} rounds), "
        f">= {BOUND}: {'holds' if median >= BOUND else 'FAILS'}"
    )
    sys.exit(median < BOUND)


if __name__ == "__main__":
    main()
