"""Measure memory and time of the scores of 50,000 images with 2,048 features each.

Prints, for each part, the largest memory above what the process had before it, and how many seconds
it took and how many it computed. The parts are the moments alone, everything that is collected of
two sets, the state of one for a checkpoint, and all scores of one against the other. Features are
random, in batches of 64. Takes some minutes on one core.
"""

import argparse
import threading
import time
from pathlib import Path

import torch

from sgdf.bench.fidelity.collected import Collected, scores
from sgdf.bench.fidelity.features import Features
from sgdf.bench.fidelity.moments import Moments

PAGE = 4096
PAUSE = 0.02
"""Seconds between two looks at the memory."""


def resident():
    """Return the bytes of memory that the process has (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


class Watch:
    """Prints the largest memory and the time of what is done within it."""

    def __init__(self, what):
        self.what = what

    def __enter__(self):
        self.before = self.most = resident()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()
        self.start, self.computed = time.perf_counter(), time.process_time()

    def _look(self):
        while not self.over.wait(PAUSE):
            self.most = max(self.most, resident())

    def __exit__(self, *error):
        seconds = time.perf_counter() - self.start
        computed = time.process_time() - self.computed
        self.over.set()
        self.thread.join()
        megabytes = (self.most - self.before) / 1e6
        print(f"{self.what:32} {megabytes:7.0f} MB {seconds:7.1f} s {computed:7.1f} s", flush=True)


def batches(options, seed):
    """Yield features of all images in batches."""
    noise = torch.Generator().manual_seed(seed)
    for _ in range(0, options.images, options.batch):
        pooled = torch.randn(options.batch, options.size, generator=noise).relu()
        spatial = torch.randn(options.batch, options.spatial, generator=noise).relu()
        scores_of_classes = torch.randn(options.batch, options.classes, generator=noise)
        yield Features(pooled, spatial, scores_of_classes.softmax(1))


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--spatial", type=int, default=2023)
    parser.add_argument("--classes", type=int, default=1008)
    options = parser.parse_args()
    with Watch("features alone"):
        for _ in batches(options, seed=0):
            pass
    with Watch("Moments of pooled features"):
        moments = Moments(options.size)
        for features in batches(options, seed=0):
            moments.add(features.pooled)
    del moments
    sets = []
    for seed in (0, 1):
        with Watch("Collected, everything"):
            sets.append(Collected())
            for features in batches(options, seed):
                sets[-1].add(features)
    with Watch("its state"):
        sets[0].state()
    with Watch("scores"):
        found = scores(*sets, is_inception=True)
    print(", ".join(f"{name} {value:.4f}" for name, value in found.items()))


if __name__ == "__main__":
    main()
