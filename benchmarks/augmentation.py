"""Measure batched crops and flips against torchvision's, sample by sample: images per second.

Both give normalised batches of 128 for an epoch over images in memory, on the same two cores:
torchvision in a DataLoader with two workers, ours in this process with two threads. They take
turns. The images are random, since what they show makes no difference.
"""

import statistics
import sys
import time

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from sgdf.bench.tasks.cifar.augment import PADDING, AugmentedPairs
from sgdf.bench.tasks.cifar.data import DEVIATION, MEAN
from sgdf.bench.tasks.images.normalised import Normalised
from sgdf.environment import environment

BOUND = 5.0
IMAGES, BATCH, CORES, ROUNDS = 50_000, 128, 2, 5


def transforms():
    """Return torchvision's transforms, also where its compiled operators do not load."""
    try:
        from torchvision import transforms as found
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        # It only wants to add to these operators, none of which a transform uses.
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        transforms.library = library  # the operators go when it does
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        from torchvision import transforms as found
    return found


class Photographs(Dataset):
    """Images in memory that are handed out one by one, as torchvision's data sets do."""

    def __init__(self, images, targets):
        self.images, self.targets = images.permute(0, 2, 3, 1).contiguous().numpy(), targets
        offered = transforms()
        self.transform = offered.Compose(
            [
                offered.RandomCrop(32, padding=PADDING),
                offered.RandomHorizontalFlip(),
                offered.ToTensor(),
                offered.Normalize(MEAN, DEVIATION),
            ]
        )

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.targets[index]


def one_by_one(images, targets):
    """Return the seconds of an epoch of torchvision's, its workers running already."""
    loader = DataLoader(
        Photographs(images, targets.tolist()), BATCH, shuffle=True, num_workers=CORES
    )
    batches = iter(loader)
    next(batches)
    start = time.perf_counter()
    left = sum(len(classes) for _, classes in batches)
    return (time.perf_counter() - start) * IMAGES / left


def at_once(images, targets):
    """Return the seconds of an epoch of ours."""
    normalised = Normalised(MEAN, DEVIATION)
    start = time.perf_counter()
    for pixels, _ in AugmentedPairs(images, targets, BATCH, torch.Generator().manual_seed(0)):
        normalised(pixels)
    return time.perf_counter() - start


def main():
    """Print the ratio."""
    torch.set_num_threads(CORES)
    print(", ".join(f"{key} {value}" for key, value in environment().items()))
    images = torch.randint(256, (IMAGES, 3, 32, 32), dtype=torch.uint8)
    targets = torch.randint(10, (IMAGES,))
    times = [(one_by_one(images, targets), at_once(images, targets)) for _ in range(ROUNDS)]
    ratios = [slow / fast for slow, fast in times]
    median = statistics.median(ratios)
    for title, seconds in zip(("torchvision", "batched"), zip(*times, strict=True), strict=True):
        print(f"{title:12} {IMAGES / statistics.median(seconds):,.0f} images a second")
    print(
        f"{median:.1f} times as many ({min(ratios):.1f} to {max(ratios):.1f} in {ROUNDS} rounds), "
        f">= {BOUND}: {'holds' if median >= BOUND else 'FAILS'}"
    )
    sys.exit(median < BOUND)


if __name__ == "__main__":
    main()
