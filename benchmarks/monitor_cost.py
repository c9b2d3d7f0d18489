"""Measure the cost of the monitor, relative to the training steps between two measurements.

Whole training steps on the CPU: of the digits example's network, the smallest that is worth
monitoring, and of two larger ones. Run it when nothing else runs.
"""

import statistics
import sys
import time
from pathlib import Path

import torch

import sgdf
from sgdf.analysis.cost.measure import make_problem
from sgdf.environment import environment

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
from train_digits import digits, network

EVERY, ROUNDS = 50, 40


def digits_problem():
    """Return the digits network's parameters and its forward and backward pass."""
    model = network()
    images, labels, _, _ = digits()

    def backward():
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(images[:64]), labels[:64]).backward()

    return list(model.parameters()), backward


def cost_problem(name):
    """Return a network of ``sgdf cost`` with 8 images of 64 x 64."""
    problem = make_problem(name, batch=8, resolution=64)
    return problem.params, problem.renew


def seconds(function):
    """Return the time of a call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def training_steps(optimizer, backward):
    """Return the median times of a training step without the monitor, and of a measured one."""

    def step():
        backward()
        optimizer.step()

    step()  # the native step is built, caches fill
    times = [], []
    for _ in range(ROUNDS):
        times[0].append(seconds(step))
        with sgdf.monitor.attach(optimizer, every=1):
            times[1].append(seconds(step))
    return map(statistics.median, times)


def between_looks(optimizer):
    """Return the extra time of a monitored step that is not measured.

    Of the optimizer's step alone, many times: in a training step the time of hooks that return
    at once would be lost in the noise.
    """
    times = [], []
    for _ in range(20 * ROUNDS):
        times[0].append(seconds(optimizer.step))
        with sgdf.monitor.attach(optimizer, every=10**9):
            times[1].append(seconds(optimizer.step))
    unwatched, watched = map(statistics.median, times)
    return watched - unwatched


def main():
    """Print the times and whether they stay within the bound."""
    torch.manual_seed(0)
    print(f"{'':14}{'step':>10}{'a look':>10}{'every 50':>10}{'between looks':>16}")
    small = digits_problem()
    problems = {"digits CNN": small}
    problems |= {name: cost_problem(name) for name in ("resnet18", "densenet121")}
    hooks = between_looks(sgdf.SGDF(small[0], lr=1e-6))
    for name, (params, backward) in problems.items():
        step, watched = training_steps(sgdf.SGDF(params, lr=1e-6), backward)
        share = (watched - step) / (EVERY * step)
        print(
            f"{name:14}{1e3 * step:7.1f} ms{1e3 * (watched - step):7.1f} ms{share:10.2%}"
            f"{1e6 * hooks:8.1f} µs {hooks / step:.2%}"
            f"   bound 2 %: {'holds' if share <= 0.02 else 'FAILS'}"
        )
    print(", ".join(f"{key} {value}" for key, value in environment().items()))


if __name__ == "__main__":
    main()
