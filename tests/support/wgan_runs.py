"""Small runs of the WGAN-GP on scikit-learn's digits, which need no download."""

import os
import signal

import torch

from bench_tasks import run_of
from sgdf.bench.tasks.images.pixels import resized, to_numbers
from sgdf.bench.tasks.wgan.task import WGANGP

TASK = "sgdf.bench.tasks.wgan.task:WGANGP"
TINY = {
    "data": "digits", "side": 8, "channels": 4, "latent": 6, "compared_with": "test",
    "extractor": "digits-cnn", "samples": 40, "sample_batch": 16
}  # fmt: skip
"""Options of a task that takes a step in four milliseconds."""


class Quick(WGANGP):
    """Scores drawn images by their mean alone, without the seconds that an extractor takes."""

    def evaluate_costly(self, split):
        """Return how far the mean of the drawn images is from that of the real ones."""
        drawn = self.draw(64, 0, torch.Generator().manual_seed(0)).mean(0)
        real = to_numbers(resized(self.real.images[split], self.side)).mean(0)
        return {"frechet_distance": (drawn - real).norm().item()}


class Killed(Quick):
    """Is killed in the middle of a generator's turn, if the environment names a step."""

    count = 0

    def step(self, batch, update):
        """Train as ever, or die between the two updates of a step."""
        self.count += 1

        def update_or_die(loss, name):
            if name == "generator" and str(self.count) == os.environ.get("SGDF_TEST_KILL_AT"):
                os.kill(os.getpid(), signal.SIGKILL)
            update(loss, name)

        return super().step(batch, update_or_die)


def wgan_run(optimizer="adam", task=(), protocol="paper", name="wgan_runs:Quick", **train):
    """Return a run of one epoch, unless the settings of training change it."""
    optimizer = {"name": optimizer, "lr": 2e-4} if isinstance(optimizer, str) else optimizer
    train = {"epochs": 1, "batch_size": 64, **train}
    return run_of({"name": name, **TINY, **dict(task)}, optimizer, train, protocol=protocol)
