"""Tasks that declare one thing each: a loss, splits, costly metrics, a check."""

import torch

from sgdf.bench.errors import SpecError
from sgdf.bench.tasks import Metric, Task


class LossOnly(Task):
    """Writes the loss, and logs a number beside it."""

    metric = Metric("distance")

    def __init__(self, checks: int = 0) -> None:
        self.model = torch.nn.Linear(2, 1)
        self.data = torch.randn(96, 2, generator=torch.Generator().manual_seed(0))

    @classmethod
    def check(cls, **options):
        """Refuse a negative number."""
        if options["checks"] < 0:
            raise SpecError(f"checks = {options['checks']}: must be at least 0")

    def batches(self, batch_size, order):
        """Return shuffled points."""
        return self.data[torch.randperm(96, generator=order)].split(batch_size)

    def loss(self, batch):
        """Return the mean square of the outputs, and log their mean size."""
        outputs = self.model(batch)
        self.log("size", outputs.detach().abs().mean())
        return outputs.square().mean()

    def evaluate(self, split):
        """Return the same on all points, whatever the split."""
        return {"distance": float(self.model(self.data).square().mean())}


class StepToo(LossOnly):
    """Does by hand what the task above leaves to the default."""

    def step(self, batch, update):
        """Make the update, and log."""
        outputs = self.model(batch)
        loss = outputs.square().mean()
        update(loss)
        return {"loss": loss, "size": outputs.detach().abs().mean()}


class NoLoss(Task):
    """Has neither a loss nor a step."""

    def batches(self, batch_size, order):
        """Return nothing."""
        return []

    def evaluate(self, split):
        """Return nothing."""
        return {}


class Shifted(LossOnly):
    """Has a third split."""

    splits = ("validation", "test", "test-shifted")

    def evaluate(self, split):
        """Return a distance that is larger by one on the third split."""
        return {"distance": super().evaluate(split)["distance"] + (split == "test-shifted")}

    def train_on_validation(self):
        """Have nothing to add."""


class OnTestAlone(LossOnly):
    """Holds nothing back for choosing."""

    splits = ("test",)


class WithoutTest(LossOnly):
    """Has nothing that a report could show."""

    splits = ("validation",)


class Costly(LossOnly):
    """Counts how often its costly metric is computed."""

    calls = 0

    def evaluate_costly(self, split):
        """Return the same each time."""
        Costly.calls += 1
        return {"fid": 1.0}


class ChosenByCostly(Costly):
    """Is judged by its costly metric."""

    metric = Metric("fid")
