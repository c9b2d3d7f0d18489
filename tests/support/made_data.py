"""Small data sets in the formats of the published ones, and the real ones where they are."""

import dataclasses
import fcntl
import hashlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from sgdf.bench.tasks.ptb.data import PTB, SPLITS

SMALL = {"network": "vgg11", "width": 0.05, "train_images": 24, "validation_images": 16}
"""Options of a CIFAR task on the data that ``tiny`` makes."""
FEW_WORDS = {
    "official": False, "vocabulary": 120, "embedding": 12, "hidden": 16, "layers": 2, "length": 12
}  # fmt: skip
"""Options of a task ptb on the text that ``write_words`` writes."""
NOWHERE = "file:///nowhere/tiny.tar.gz"
PUBLISHED = Path(__file__).parents[3] / "shared" / "data"
real_data = pytest.mark.skipif(not PUBLISHED.exists(), reason=f"needs the data in {PUBLISHED}")


def unpacked(factory, *names):
    """Return a folder with real data sets, unpacked once for all processes that share the tests."""
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "real-data"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-B", PUBLISHED / "unpack.py", folder, *names]
        subprocess.run(command, check=True, capture_output=True)
    return folder


def write_words(folder, lines=(700, 90, 110)):
    """Write files in the layout of the Penn Treebank, of as many lines of Python's manual."""
    text = (line for name in sorted(topics) for line in topics[name].splitlines() if line.strip())
    place = folder / PTB.folder
    place.mkdir(parents=True, exist_ok=True)
    for name, count in zip(SPLITS.values(), lines, strict=True):
        content = "".join(f" {line.strip()} \n" for line in itertools.islice(text, count))
        (place / name).write_text(content, encoding="utf-8")
    return folder


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def records(labels, pixels):
    """Return images as they stand in a file: for each the labels, and then the pixels."""
    return np.concatenate([labels, pixels], 1).astype(np.uint8).tobytes()


def coloured(classes, seed):
    """Return noisy images that have a colour for each class, as rows of bytes."""
    colours = np.random.default_rng(0).integers(50, 206, (100, 3, 1))
    noise = np.random.default_rng(seed).integers(-50, 51, (len(classes), 3, 1024))
    return (colours[classes] + noise).reshape(len(classes), -1)


def tiny(cifar, folder, per_class=4, seed=0):
    """Write a small data set into a folder, half as many images for testing, and return it."""
    rng = np.random.default_rng(seed)
    content = {}
    train = rng.permutation(np.repeat(np.arange(cifar.classes), per_class))
    parts = dict(zip(cifar.train, np.array_split(train, len(cifar.train)), strict=True))
    parts[cifar.test] = rng.permutation(np.repeat(np.arange(cifar.classes), per_class // 2))
    for number, (name, classes) in enumerate(parts.items()):
        labels = np.stack([classes // 5, classes], 1)[:, -cifar.labels :]
        content[name] = records(labels, coloured(classes, seed + number))
    return with_files(cifar, folder, content)


def with_files(cifar, folder, content):
    """Write files into a folder, and return the data set for which they are the right ones."""
    place = folder / cifar.archive.folder
    place.mkdir(parents=True, exist_ok=True)
    for name, value in content.items():
        (place / name).write_bytes(value)
    checksums = {name: sha256(value) for name, value in content.items()}
    archive = dataclasses.replace(cifar.archive, url=NOWHERE, files=checksums)
    return dataclasses.replace(cifar, archive=archive)
