"""Tasks for the tests of the bench, named in specs as ``bench_tasks:Name``, and runs of them."""

import os
import random
import signal
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read
from sgdf.bench.tasks import Supervised, Task
from sgdf.bench.tasks.ptb.task import PennTreebank
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer


def points(count, seed):
    """Return noisy points of three classes."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (count,), generator=generator)
    centres = torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, -1.0]])
    return centres[labels] + torch.randn(count, 2, generator=generator), labels


class Points(Supervised):
    """A small network with dropout and BatchNorm, so that every kind of state matters.

    Args:
        hidden: its width.
        delay: seconds that each step takes longer, for tests that kill it.
    """

    def __init__(self, hidden: int = 8, delay: float = 0.0, dropout: float = 0.2) -> None:
        self.delay = delay
        model = nn.Sequential(
            nn.Linear(2, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, 3),
        )
        super().__init__(model, points(120, 0), points(60, 1), points(60, 2))

    def step(self, batch, update):
        """Train as ever, after the delay, or that of the environment, which is no setting."""
        time.sleep(self.delay or float(os.environ.get("SGDF_TEST_DELAY", "0")))
        return super().step(batch, update)


class Plain(Supervised):
    """Without anything random: a linear map of points to numbers."""

    def __init__(self, noise: float = 0.1) -> None:
        inputs = torch.randn(96, 3, generator=torch.Generator().manual_seed(0))
        targets = inputs @ torch.tensor([[1.0], [-2.0], [0.5]])
        data = [(inputs[i::3], targets[i::3]) for i in range(3)]
        super().__init__(nn.Linear(3, 1), *data, loss=nn.functional.mse_loss)


class Raising(Points):
    """Raises at a step, unless the environment says otherwise."""

    def __init__(self, at: int = 3) -> None:
        super().__init__()
        self.left = at

    def step(self, batch, update):
        """Raise when the time has come."""
        self.left -= 1
        if not self.left and not os.environ.get("SGDF_TEST_CALM"):
            raise RuntimeError("the cat is on the keyboard")
        return super().step(batch, update)


class Stubborn(torch.optim.SGD):
    """An optimizer that refuses to step once the bench has seen that it can."""

    def step(self, closure=None):
        """Raise for anything but the zeros of the check."""
        if any(p.grad.any() for group in self.param_groups for p in group["params"]):
            raise RuntimeError("no further")


class Exiting(Points):
    """Leaves Python altogether."""

    def step(self, batch, update):
        """Die as by a crash of native code."""
        os._exit(7)


class Fragile(Points):
    """Leaves Python after a few steps, and again after as many more."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.left = steps

    def step(self, batch, update):
        """Die when the time has come."""
        self.left -= 1
        if not self.left:
            os._exit(7)
        return super().step(batch, update)


class KilledWords(PennTreebank):
    """Is killed in the middle of a step, if the environment names one of its process."""

    def step(self, batch, update):
        """Train as ever, or die between the forward pass and the update."""
        self.count = self.__dict__.get("count", 0) + 1

        def update_or_die(loss):
            if str(self.count) == os.environ.get("SGDF_TEST_KILL_AT"):
                os.kill(os.getpid(), signal.SIGKILL)
            update(loss)

        return super().step(batch, update_or_die)


class Telling(Points):
    """Tells how many threads it has."""

    def evaluate(self, split):
        """Return torch's and the environment's, among the metrics."""
        told = {"torch": torch.get_num_threads(), "omp": int(os.environ["OMP_NUM_THREADS"])}
        return {**super().evaluate(split), **told}


class Pair(Task):
    """Two networks against each other, each with an optimizer of its own."""

    def __init__(self, every: int = 2) -> None:
        networks = {"critic": nn.Linear(2, 1), "generator": nn.Linear(2, 2)}
        self.model = nn.ModuleDict(networks)
        self.real, self.every, self.count = points(64, 0)[0], every, 0

    def optimizers(self, make):
        """Return one optimizer for each network."""
        return {name: make(network.parameters()) for name, network in self.model.items()}

    def batches(self, batch_size, order):
        """Return real points."""
        return self.real[torch.randperm(64, generator=order)].split(batch_size)

    def step(self, batch, update):
        """Let the critic step each time, and the generator every few times."""
        critic, generator = self.model["critic"], self.model["generator"]
        fake = generator(torch.randn_like(batch))
        critic_loss = critic(fake.detach()).mean() - critic(batch).mean()
        update(critic_loss, "critic")
        self.count += 1
        if self.count % self.every == 0:
            update(-critic(generator(torch.randn_like(batch))).mean(), "generator")
        return {"critic": critic_loss.detach()}

    def evaluate(self, split):
        """Return how far the means are apart."""
        fake = self.model["generator"](torch.randn(256, 2))
        return {"loss": (fake.mean(0) - self.real.mean(0)).norm().item()}

    def state(self):
        """Return the count of steps."""
        return {"count": self.count}

    def load_state(self, state):
        """Go on counting."""
        self.count = state["count"]


class Loaded(Points):
    """Takes its data from a DataLoader whose workers and shuffling draw from global generators."""

    def __init__(self, workers: int = 1) -> None:
        super().__init__()
        self.workers = workers

    def batches(self, batch_size, order):
        """Return a loader that is not given the order, and noise from its workers."""
        data = TensorDataset(*self.data["train"])
        return DataLoader(
            data, batch_size, shuffle=True, num_workers=self.workers, collate_fn=noisy
        )


def noisy(samples):
    """Return a batch with noise of the worker's own generators."""
    inputs, targets = default_collate(samples)
    return inputs + 0.1 * torch.randn_like(inputs) + random.random(), targets


class Jittery(Points):
    """Draws from Python's and numpy's generators in every step."""

    def step(self, batch, update):
        """Train on inputs that were moved a little."""
        inputs, targets = batch
        return super().step((inputs + random.random() + np.random.rand(), targets), update)


class Short(Points):
    """Has fewer batches than it says."""

    def batches(self, batch_size, order):
        """Return a loader that lies."""
        batches = list(super().batches(batch_size, order))

        class Lying(list):
            def __len__(self):
                return 9

        return Lying(batches)


class Unsaveable(Points):
    """Has state that cannot be loaded again without executing what a file says."""

    def state(self):
        """Return an object of a class of its own."""
        return {"self": Points}


def run_of(
    task="bench_tasks:Points", optimizer="sgd", train=(), schedule=None, length="epochs", **rest
):
    """Return a run; short names for the tables that tests fill in."""
    task = {"name": task} if isinstance(task, str) else task
    optimizer = {"name": optimizer, "lr": 0.1} if isinstance(optimizer, str) else optimizer
    train = {**({"epochs": 3} if length == "epochs" else {}), "batch_size": 32, **dict(train)}
    document = {"task": task, "optimizer": optimizer, "train": train, **rest}
    if schedule:
        document["schedule"] = schedule
    (run,) = resolve_machine(read(document), threads=1).runs
    return run


def trained(run):
    """Return a trainer that has gone to the end."""
    trainer = Trainer(run, Ranks())
    trainer.fit(lambda trainer: None)
    return trainer


def without_seconds(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def essence(folder):
    """Return all of a finished run that must not depend on how it was interrupted."""
    result = folder.result()
    result = {key: result[key] for key in result if key not in ("seconds", "metrics")}
    (checkpoint,) = folder.path.glob("*.pt")
    state = torch.load(checkpoint, weights_only=True)
    state.pop("seconds")
    return result, without_seconds(folder.rows()), without_seconds(state.pop("rows")), state


def equal(a, b):
    """Compare nested data bit by bit, tensors included."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.equal(b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a == b or (a != a and b != b)
