"""Measure the bench's loop against the same loop written out by hand: steps per second.

Both train the same task with the same optimizer, batches and logging interval, taking
turns epoch by epoch; the bench's loop also keeps its clock and its log, and would save
checkpoints if an epoch took a minute. On CIFAR (random pixels here, for their number is all
that matters) the bench crops, flips and normalises its images too, while the loop by hand goes
over tensors that are ready.
"""

import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn

from sgdf.bench.jobs.recorder import Recorder
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read
from sgdf.bench.store.run_folder import RunFolder
from sgdf.bench.tasks import find_task
from sgdf.bench.tasks.cifar.data import CIFAR10
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer
from sgdf.environment import environment

BOUND = 0.97
INSTANCES, ROUNDS = 6, 12
TASKS = {
    "digits-mlp": {},
    "digits-cnn": {},
    "digits-cnn, batch_norm": {"batch_norm": True},
    "logistic": {},
    "characters": {"characters": 60_000},
    "cifar10, vgg11": {"train_images": 384, "validation_images": 10, "official": False},
}
FEWER = {"cifar10, vgg11": (3, 4)}
"""Instances and rounds where an epoch takes seconds."""
BATCH = {"cifar10, vgg11": 128}


def random_photographs(folder):
    """Write files in the format of CIFAR-10, and let the task find them."""
    place = folder / CIFAR10.archive.folder
    place.mkdir()
    for name in CIFAR10.archive.files:
        images = torch.randint(256, (100, 3073), dtype=torch.uint8)
        images[:, 0] %= 10
        (place / name).write_bytes(images.numpy().tobytes())
    os.environ["SGDF_DATA"] = str(folder)


def by_hand(name, options, batch_size):
    """Yield the seconds of each epoch of a loop that does nothing but train and sum the loss."""
    torch.manual_seed(0)
    task = find_task(name)(**options)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    epoch, model, ready = 0, task.model, None
    if name == "cifar10":
        normalise, model = task.model
        ready = [(normalise(x), y) for x, y in task.batches(batch_size, torch.Generator())]
    while True:
        start = time.perf_counter()
        order = torch.Generator().manual_seed(epoch)
        total, hidden = 0.0, None
        for inputs, targets in ready or task.batches(batch_size, order):
            optimizer.zero_grad()
            if name == "characters":
                outputs, hidden = task.model(inputs, hidden)
                hidden = hidden[0].detach(), hidden[1].detach()
                loss = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
            else:
                loss = task.criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        yield time.perf_counter() - start
        epoch += 1


def by_the_bench(name, options, batch_size, folder):
    """Yield the seconds of each epoch of the bench's loop, without the evaluation at its end."""
    document = {
        "task": {"name": name, **options},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "train": {"epochs": 1_000_000, "batch_size": batch_size, "evaluate_every": 1_000_000},
    }
    (run,) = resolve_machine(read(document), torch.get_num_threads()).runs
    trainer = Trainer(run, Ranks())
    folder.prepare(run.as_table())
    recorder = Recorder(folder, 60.0, threading.Event(), lambda event: None)
    recorder.begin(trainer)

    def pause(trainer):
        recorder(trainer)
        if not trainer.epoch_step:
            raise EndOfEpoch

    while True:
        start = time.perf_counter()
        with contextlib.suppress(EndOfEpoch):
            trainer.fit(pause)
        yield time.perf_counter() - start


class EndOfEpoch(Exception):  # noqa: N818  # no error
    """The turn is over."""


def main():
    """Print the ratios."""
    torch.set_num_threads(1)  # as the bundled experiments do
    print(", ".join(f"{key} {value}" for key, value in environment().items()))
    slow = False
    photographs = tempfile.TemporaryDirectory()
    random_photographs(Path(photographs.name))
    for title, options in TASKS.items():
        name, batch = title.partition(",")[0], BATCH.get(title, 64)
        instances, rounds = FEWER.get(title, (INSTANCES, ROUNDS))
        times = []
        for _ in range(instances):  # where in memory a model lies makes a per cent of difference
            with tempfile.TemporaryDirectory() as place:
                turns = (
                    by_hand(name, options, batch),
                    by_the_bench(name, options, batch, RunFolder(Path(place) / "run")),
                )
                for loop in turns * 2:
                    next(loop)
                times += [tuple(next(loop) for loop in turns) for _ in range(rounds)]
        ratios = [hand / bench for hand, bench in times]
        median = statistics.median(ratios)
        low, _, high = statistics.quantiles(ratios, n=4)
        slow |= median < BOUND
        steps = len(find_task(name)(**options).batches(batch, torch.Generator()))
        step = 1000 * statistics.median(bench for _, bench in times) / steps
        print(
            f"{title:24} {median:.3f} of the hand-written loop's throughput "
            f"({low:.3f} to {high:.3f}), {step:.2f} ms a step, >= {BOUND}: "
            f"{'FAILS' if median < BOUND else 'holds'}"
        )
    photographs.cleanup()
    sys.exit(slow)


if __name__ == "__main__":
    main()
