"""Measure the bench's loop against the same loop written out by hand: steps per second.

Both train the same task with the same optimizer, batches and logging interval, taking
turns epoch by epoch; the bench's loop also keeps its clock and its log, and would save
checkpoints if an epoch took a minute. On CIFAR (random pixels here, for their number is all
that matters) the bench crops, flips and normalises its images too, while the loop by hand goes
over tensors that are ready. On Penn Treebank (random words here) both read windows of the same
lengths, carry the hidden state, clip, and scale the learning rate by the length. The WGAN-GP has
two networks that take turns, on images that are ready for the loop by hand. The DiT learns digits.

``python benchmarks/bench_loop.py ptb`` measures only the cases whose names begin so, and
``--instances`` and ``--rounds`` make it shorter or longer. Both loops keep freed memory, as
``sgdf run`` does; ``--free-memory`` leaves the C library as it is outside of it.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import sgdf
from sgdf.bench.jobs.freed_memory import keep_freed_memory
from sgdf.bench.jobs.recorder import Recorder
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read
from sgdf.bench.store.run_folder import RunFolder
from sgdf.bench.tasks import find_task
from sgdf.bench.tasks.cifar.data import CIFAR10
from sgdf.bench.tasks.ptb.data import PTB
from sgdf.bench.tasks.wgan.penalty import gradient_penalty
from sgdf.bench.training.randomness import derived_seed
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import ORDER, Trainer
from sgdf.environment import environment

BOUND = 0.97
LR = 0.01
MAKERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=LR, momentum=0.9),
    "sgdf": lambda params: sgdf.SGDF(params, lr=LR),
}


@dataclass(frozen=True)
class Case:
    """What is trained by both loops, and how often it is measured.

    Where in memory a model lies makes a per cent of difference, so there are several instances.
    """

    task: str
    options: dict[str, Any] = field(default_factory=dict)
    optimizer: str = "sgd"
    batch_size: int = 64
    clip_norm: float = float("inf")
    instances: int = 6
    rounds: int = 12


FEW_IMAGES = {"train_images": 384, "validation_images": 10, "official": False}
SMALL_LSTM = {"vocabulary": 2000, "embedding": 64, "hidden": 128, "official": False}
LSTM = {"task": "ptb", "batch_size": 20, "clip_norm": 0.25}
SMALL_WGAN = {**FEW_IMAGES, "side": 32, "channels": 16, "latent": 64}
LARGE_LSTM = {**LSTM, "options": {"official": False}, "instances": 3, "rounds": 4}
CASES = {
    "digits-mlp": Case("digits-mlp"),
    "digits-cnn": Case("digits-cnn"),
    "digits-cnn, batch_norm": Case("digits-cnn", {"batch_norm": True}),
    "logistic": Case("logistic"),
    "characters": Case("characters", {"characters": 60_000}),
    "cifar10, vgg11": Case("cifar10", FEW_IMAGES, batch_size=128, instances=3, rounds=4),
    "ptb-small, sgd": Case(**LSTM, options=SMALL_LSTM),
    "ptb-small, sgdf": Case(**LSTM, options=SMALL_LSTM, optimizer="sgdf"),
    "ptb, one layer, sgd": Case(**LARGE_LSTM),
    "ptb, one layer, sgdf": Case(**LARGE_LSTM, optimizer="sgdf"),
    "dit, digits": Case("dit", optimizer="sgdf", instances=3, rounds=4),
    "wgan, 32 pixels": Case("wgan-gp", SMALL_WGAN, optimizer="sgdf", instances=3, rounds=4),
}


def random_photographs(folder):
    """Write files in the format of CIFAR-10."""
    place = folder / CIFAR10.archive.folder
    place.mkdir()
    for name in CIFAR10.archive.files:
        images = torch.randint(256, (100, 3073), dtype=torch.uint8)
        images[:, 0] %= 10
        (place / name).write_bytes(images.numpy().tobytes())


def random_words(folder):
    """Write files in the format of the Penn Treebank: as many different words, eight windows."""
    place = folder / PTB.folder
    place.mkdir()
    words = [*range(10_000), *range(1_200)]
    text = "\n".join(" ".join(map(str, words[first::350])) for first in range(350))
    for name in PTB.files:
        (place / name).write_text(text)


def loss_on_words(task, inputs, targets, hidden):
    """Return the loss on a window, and the hidden state after it.

    A function of its own, so that the scores are freed before the next window, as in the bench.
    """
    scores, hidden, outputs, dropped = task.model(inputs, hidden)
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
    loss = loss + task.activation * dropped.square().mean()
    loss = loss + task.slowness * (outputs[1:] - outputs[:-1]).square().mean()
    return loss, tuple((output.detach(), cell.detach()) for output, cell in hidden)


def loss_on_noise(task, images, classes):
    """Return the loss of a diffusion model on images with new noise."""
    noise, times = torch.randn_like(images), task.process.draw_times(len(images))
    parts = task.process.losses(task.model, images, classes, times, noise)
    return parts["squared_error"].mean() + parts["bound"].mean()


def by_turns(case):
    """Yield the seconds of each epoch of a loop that does nothing but train a WGAN-GP."""
    torch.manual_seed(0)
    task = find_task(case.task)(**case.options)
    critic, generator = task.model["critic"], task.model["generator"]
    learns_critic, learns_generator = (
        MAKERS[case.optimizer](network.parameters()) for network in (critic, generator)
    )
    ready = list(task.batches(case.batch_size, torch.Generator()))
    while True:
        start = time.perf_counter()
        total = 0.0
        for number, real in enumerate(ready):
            vectors = torch.randn(len(real), task.latent)
            with torch.no_grad():
                fake = generator(vectors)
            loss = critic(fake).mean() - critic(real).mean()
            mix = torch.rand(len(real), 1, 1, 1)
            loss = loss + task.penalty * gradient_penalty(critic, real, fake, mix)
            learns_critic.zero_grad()
            loss.backward()
            learns_critic.step()
            total += loss.item()
            if number % task.generator_every == 0:
                learns_generator.zero_grad()
                loss = -critic(generator(vectors)).mean()
                loss.backward(inputs=list(generator.parameters()))
                learns_generator.step()
                total += loss.item()
        yield time.perf_counter() - start


def by_hand(case):
    """Yield the seconds of each epoch of a loop that does nothing but train and sum the loss."""
    torch.manual_seed(0)
    task = find_task(case.task)(**case.options)
    optimizer = MAKERS[case.optimizer](task.model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    epoch, model, ready = 0, task.model, None
    if case.task == "cifar10":
        normalise, model = task.model
        ready = [(normalise(x), y) for x, y in task.batches(case.batch_size, torch.Generator())]
    while True:
        start = time.perf_counter()
        order = torch.Generator().manual_seed(derived_seed(0, ORDER, epoch))
        total, hidden = 0.0, None
        for inputs, targets in ready or task.batches(case.batch_size, order):
            optimizer.zero_grad()
            if case.task == "characters":
                outputs, hidden = model(inputs, hidden)
                hidden = hidden[0].detach(), hidden[1].detach()
                loss = nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
            elif case.task == "ptb":
                loss, hidden = loss_on_words(task, inputs, targets, hidden)
                optimizer.param_groups[0]["lr"] = LR * len(inputs) / task.length
            elif case.task == "dit":
                loss = loss_on_noise(task, inputs, targets)
            else:
                loss = task.criterion(model(inputs), targets)
            loss.backward()
            if case.clip_norm < float("inf"):
                nn.utils.clip_grad_norm_(model.parameters(), case.clip_norm)
            optimizer.step()
            total += loss.item()
        optimizer.param_groups[0]["lr"] = LR
        scheduler.step()
        yield time.perf_counter() - start
        epoch += 1


def by_the_bench(case, folder):
    """Yield the seconds of each epoch of the bench's loop, without the evaluation at its end."""
    document = {
        "task": {"name": case.task, **case.options},
        "optimizer": {"name": case.optimizer, "lr": LR},
        "train": {
            "epochs": 1_000_000,
            "evaluate_every": 1_000_000,
            "batch_size": case.batch_size,
            "clip_norm": case.clip_norm,
        },
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


def seconds_of(case, instances, rounds):
    """Return the seconds of epochs: pairs of the loop by hand and the bench's."""
    times = []
    for _ in range(instances):
        with tempfile.TemporaryDirectory() as place:
            hand = by_turns(case) if case.task == "wgan-gp" else by_hand(case)
            turns = hand, by_the_bench(case, RunFolder(Path(place) / "run"))
            for loop in turns * 2:
                next(loop)
            times += [tuple(next(loop) for loop in turns) for _ in range(rounds)]
    return times


def main():
    """Print the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", nargs="?", default="", help="the beginning of the cases' names")
    parser.add_argument("--instances", type=int, help="how often each is built")
    parser.add_argument("--rounds", type=int, help="how many pairs of epochs of each instance")
    parser.add_argument("--free-memory", action="store_true", help="return freed memory")
    asked = parser.parse_args()
    if not asked.free_memory:
        keep_freed_memory()
    torch.set_num_threads(1)  # as the bundled experiments do
    print(", ".join(f"{key} {value}" for key, value in environment().items()))
    slow = False
    data = tempfile.TemporaryDirectory()
    random_photographs(Path(data.name))
    random_words(Path(data.name))
    os.environ["SGDF_DATA"] = data.name
    for title, case in CASES.items():
        if not title.startswith(asked.name):
            continue
        times = seconds_of(case, asked.instances or case.instances, asked.rounds or case.rounds)
        ratios = [hand / bench for hand, bench in times]
        median = statistics.median(ratios)
        low, _, high = statistics.quantiles(ratios, n=4)
        slow |= median < BOUND
        task = find_task(case.task)(**case.options)
        steps = len(task.batches(case.batch_size, torch.Generator()))
        step = 1000 * statistics.median(bench for _, bench in times) / steps
        print(
            f"{title:24} {median:.3f} of the hand-written loop's throughput "
            f"({low:.3f} to {high:.3f}), {step:.2f} ms a step, >= {BOUND}: "
            f"{'FAILS' if median < BOUND else 'holds'}",
            flush=True,
        )
    data.cleanup()
    sys.exit(slow)


if __name__ == "__main__":
    main()
