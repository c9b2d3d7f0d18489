"""Measure smaller states: bytes, and times beside torch's fused Adam and SGD, in five processes.

Prints Markdown: medians of the processes' median ratios, with the smallest and largest; then what
stochastic rounding of bfloat16 parameters adds; then each bound. Run it when nothing else runs.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import torch

import sgdf
from sgdf.analysis.cost.measure import make_problem, measure, ratios
from sgdf.environment import environment

PROBLEMS = {"flat": "one tensor of 40M", "resnet18": "ResNet-18"}
ROWS = {
    "Adam, fused": "Adam",
    "SGD with momentum, fused": "SGD",
    "SGDF, full": "SGDF",
    "SGDF, bfloat16": "SGDF bfloat16",
    "SGDF, int8": "SGDF int8",
    "SGDF, block": "SGDF block",
    "SGDF, bfloat16-block": "SGDF bfloat16-block",
    "SGDF, int8-block": "SGDF int8-block",
}
STATE_BOUNDS = {
    "bfloat16": 4.01,
    "int8": 2.1,
    "block": 4.1,
    "bfloat16-block": 2.1,
    "int8-block": 1.1,
}
TIME_BOUNDS = {"bfloat16": (0.85, 0.80), "int8": (0.86, 0.82), "block": (0.86, 0.80)}
ROUNDING_BOUND = 1.10


def formats(name, rounds):
    """Return ratio to fused Adam and bytes of state of every row."""
    result = measure(make_problem(name, batch=16, resolution=32), rounds, native_only=True)
    costs = {title: result.cost(optimizer, "fused") for title, optimizer in ROWS.items()}
    return {title: (c.to_adam.median, c.state_bytes, c.moved_bytes) for title, c in costs.items()}


def rounding(name, rounds):
    """Return the median ratio of steps with stochastic rounding to steps without."""
    problem = make_problem(name, batch=16, resolution=32)
    params = [torch.nn.Parameter(param.detach().bfloat16()) for param in problem.params]
    for param in params:
        param.grad = torch.randn_like(param)
    optimizers = [
        sgdf.SGDF(params, lr=1e-9, fused=True, stochastic_rounding=value) for value in (True, False)
    ]
    times = [[], []]
    for count in range(rounds + 1):
        turns = list(zip(optimizers, times, strict=True))
        for optimizer, own in turns if count % 2 else reversed(turns):
            for param in params:
                param.grad = param.grad.clone()
            own.append(seconds(optimizer.step))
    return ratios(times[0][1:], times[1][1:]).median


def seconds(step):
    """Return how long a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def of_one_process(rounds):
    """Return everything that one process measures."""
    return {
        name: {"formats": formats(name, rounds), "rounding": rounding(name, rounds)}
        for name in PROBLEMS
    }


def in_processes(count, rounds):
    """Return what each of so many processes measures, one after the other."""
    command = [sys.executable, __file__, "--one", "--rounds", str(rounds)]
    outputs = [subprocess.run(command, check=True, capture_output=True) for _ in range(count)]
    return [json.loads(output.stdout) for output in outputs]


def spread(values):
    """Return median, smallest and largest as text."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def table(measured):
    """Return the table in Markdown."""
    lines = [f"| | state | moved | {' | '.join(PROBLEMS.values())} |", "|---|---|---|---|---|"]
    for title in ROWS:
        _, state, moved = measured[0]["flat"]["formats"][title]
        cells = [
            spread([process[name]["formats"][title][0] for process in measured])
            for name in PROBLEMS
        ]
        lines.append(f"| {title} | {state:.2f} | {moved:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bounds(measured):
    """Yield what is bounded, the measured value and the bound."""

    def median(name, title):
        return statistics.median(process[name]["formats"][title][0] for process in measured)

    for format, bound in STATE_BOUNDS.items():
        state = measured[0]["flat"]["formats"][f"SGDF, {format}"][1]
        yield f"bytes of state, {format}", state, bound
    for format, of_problems in TIME_BOUNDS.items():
        for name, bound in zip(PROBLEMS, of_problems, strict=True):
            yield f"{name}: {format}, of fused Adam", median(name, f"SGDF, {format}"), bound
    for name in PROBLEMS:
        sgd = median(name, "SGD with momentum, fused")
        yield f"{name}: int8-block, at most SGD's", median(name, "SGDF, int8-block"), sgd
        added = statistics.median(process[name]["rounding"] for process in measured)
        yield f"{name}: bf16 parameters, with rounding to without", added, ROUNDING_BOUND


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="turns of each optimizer")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(of_one_process(options.rounds)))
        return
    measured = in_processes(options.processes, options.rounds)
    print(table(measured))
    print("\n" + ", ".join(f"{key} {value}" for key, value in environment().items()))
    print(
        f"{options.processes} processes of {options.rounds} rounds: medians, smallest and largest\n"
    )
    for what, found, bound in bounds(measured):
        print(f"{what:55} {found:6.3f} <= {bound:.3f}: {'holds' if found <= bound else 'FAILS'}")


if __name__ == "__main__":
    main()
