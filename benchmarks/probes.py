"""Measure what probes cost: the time of a step with each of them, and without.

All arms train the same network and take turns epoch by epoch, so that a busy machine slows all of
them. A probe is measured twice: when it looks at every step (the sharpness at the first step of an
epoch, because it takes seconds), and when it only watches the steps between two looks. The times
are processor time; each figure is the median over the rounds, of which there are as many as the
first argument says.
"""

import contextlib
import statistics
import sys
import time

import torch

from sgdf.bench.catalog.probes import PROBES
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer
from sgdf.environment import environment

NEVER = 10**9
BATCH_SIZE = 64
LOOKS = {"sharpness": {"every_epochs": 1}}
"""How often a probe looks, if not at every step."""


class EndOfEpoch(Exception):  # noqa: N818  # no error
    """The turn is over."""


def seconds_of_epochs(optimizer, *probes):
    """Yield the processor time and the steps of each epoch of a run, without its evaluation."""
    document = {
        "task": {"name": "digits-cnn", "batch_norm": True},
        "optimizer": {"name": optimizer, "lr": 0.01},
        "train": {"epochs": NEVER, "batch_size": BATCH_SIZE, "evaluate_every": NEVER},
    }
    (run,) = resolve_machine(read(document), threads=1).runs
    trainer = Trainer(run, Ranks(), probes)

    def pause(trainer):
        if not trainer.epoch_step:
            raise EndOfEpoch

    while True:
        start, first = time.process_time(), trainer.step
        with contextlib.suppress(EndOfEpoch):
            trainer.fit(pause)
        yield time.process_time() - start, trainer.step - first


def main():
    """Print a line for each probe."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    torch.set_num_threads(1)
    print(", ".join(f"{key} {value}" for key, value in environment().items()))
    optimizers = {name: ["sgd", "sgdf"] if name == "gain" else ["sgd"] for name in PROBES}
    plain = {name: seconds_of_epochs(name) for name in ("sgd", "sgdf")}
    arms = {}
    for name in PROBES:
        often = ProbeSpec(name, {}, **LOOKS.get(name, {"every": 1}))
        for optimizer in optimizers[name]:
            arms[name, optimizer, "look"] = seconds_of_epochs(optimizer, often)
            seldom = ProbeSpec(name, {}, every=NEVER)
            arms[name, optimizer, "watch"] = seconds_of_epochs(optimizer, seldom)
    for arm in (*plain.values(), *arms.values()):
        next(arm)  # the first one also loads and compiles
    extra, per_step = {key: [] for key in arms}, []
    for _ in range(rounds):
        without = {name: next(arm) for name, arm in plain.items()}
        per_step.append(without["sgd"][0] / without["sgd"][1])
        for key, arm in arms.items():
            taken, steps = next(arm)
            extra[key].append((taken - without[key[1]][0], steps))
    step = statistics.median(per_step)
    print(f"a step without probes: {1000 * step:.1f} ms")
    for name in PROBES:
        for optimizer in optimizers[name]:
            watch = statistics.median(s / n for s, n in extra[name, optimizer, "watch"])
            looked = extra[name, optimizer, "look"]
            look = statistics.median(s / (1 if name in LOOKS else n) for s, n in looked)
            alone = look - watch  # a look comes after the probe has watched the step
            print(
                f"{name} beside {optimizer}: every step {1000 * watch:.2f} ms "
                f"({1 + watch / step:.2f} times the step), each look {1000 * alone:.1f} ms "
                f"({alone / step:.2f} steps)"
            )


if __name__ == "__main__":
    main()
