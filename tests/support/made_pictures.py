"""Class folders of small made-up photographs."""

import os

import numpy as np
from PIL import Image

LITTLE = {
    "network": "resnet18",
    "width": 0.05,
    "folder": "pictures",
    "side": 32,
    "shorter_side": 36,
    "validation_images": 6,
    "official": False,
}
"""Options of a task on the folder that ``write_photographs`` writes."""


def photograph(size=(48, 40), seed=0, mode="RGB"):
    """Return a smooth picture with some grain, as photographs have."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC), np.int16)
    grain = (smooth + rng.integers(-3, 4, smooth.shape)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(grain).convert(mode)


def write_photographs(root, train=9, test=3, classes=("n01", "n02", "n03"), size=(48, 40)):
    """Write train and val with so many JPEGs of each class; a class has a colour of its own."""
    for split, count in (("train", train), ("val", test)):
        for label, name in enumerate(classes):
            place = root / split / name
            place.mkdir(parents=True)
            for number in range(count):
                picture = np.asarray(
                    photograph(size, 1000 * label + 100 * (split == "val") + number)
                )
                tint = np.array([[60, 0, 0], [0, 60, 0], [0, 0, 60], [50, 50, 0]][label % 4])
                tinted = (picture * 0.6 + tint).astype(np.uint8)
                Image.fromarray(tinted).save(place / f"{name}_{number}.JPEG", quality=90)
    return root


def let_it_settle(root, days=1):
    """Let all folders look as if they had been changed some days ago, so that an index counts."""
    for place in [root, *root.rglob("*")]:
        if place.is_dir():
            past = place.stat().st_mtime - days * 86_400
            os.utime(place, (past, past))
