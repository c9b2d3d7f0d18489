"""Measure the bench on 10,000 runs: the time and the memory of status, report and run.

The runs are made up, not trained: ten optimizers with a hundred learning rates each, ten seeds,
20 epochs. Each command is a fresh process; ``sgdf run`` is measured until its first run begins. The
bounds hold for the seconds of CPU, which other work on the machine hardly changes. A number as an
argument is the number of runs:

    python benchmarks/scale.py 1000
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

RUNS, SEEDS, EPOCHS = 10_000, 10, 20
OPTIMIZERS = (
    "sgdf", "sgd", "sgd-vanilla", "sgd-ema", "sgd-cm", "adam", "adamw", "radam", "rmsprop", "eadam"
)  # fmt: skip
BEGINS = ": begins"
"""The end of the line that ``sgdf run`` prints when the first run has begun."""


def write_experiment(path, count):
    """Write an experiment of so many runs."""
    rates = [round(0.001 * 1.05**i, 6) for i in range(count // (SEEDS * len(OPTIMIZERS)))]
    lines = [
        f"seed = {list(range(SEEDS))}",
        'task.name = "digits-mlp"',
        f"train = {{ epochs = {EPOCHS}, threads = 1 }}",
    ]
    for name in OPTIMIZERS:
        lines += ["[[optimizer]]", f'name = "{name}"', f"lr = {rates}"]
    path.write_text("\n".join(lines))


def fill(store, experiment):
    """Write the folders of all runs of an experiment as finished; name the machine."""
    from made_runs import begin, result_of, rows_of
    from sgdf.bench.spec.machine import resolve_machine
    from sgdf.bench.spec.read import load
    from sgdf.bench.store.run_folder import State
    from sgdf.environment import environment

    print(", ".join(f"{key} {value}" for key, value in environment().items()))
    os.fsync = lambda descriptor: None  # the store is thrown away
    for number, run in enumerate(resolve_machine(load(experiment), threads=1).runs):
        top = 0.9 + 0.1 * (0.618 * number % 1)
        rows = rows_of([top - 0.5 / epoch for epoch in range(1, EPOCHS + 1)])
        begin(store, run.as_table()).finish(State.FINISHED, result_of(rows), rows)


def measure(*arguments, until=None):
    """Return the seconds, the seconds of CPU and the megabytes that a command needs at most.

    Args:
        arguments: those of ``sgdf``.
        until: the end of a line after which the command is killed.
    """
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    start, lines = time.perf_counter(), []
    process = subprocess.Popen([sys.executable, "-m", "sgdf", *arguments], **options)
    for line in process.stdout:
        lines.append(line)
        if until and line.rstrip().endswith(until):
            seconds = time.perf_counter() - start
            process.kill()
            break
    else:
        seconds = time.perf_counter() - start
    # Not process.wait(): the system counts time and memory of this process and its children.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode != (-9 if until else 0):
        raise RuntimeError("".join(lines[-20:]))
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def main(count=RUNS):
    """Measure and print."""
    with tempfile.TemporaryDirectory() as place:
        store, empty, experiment = (Path(place) / name for name in ("store", "empty", "mine.toml"))
        write_experiment(experiment, count)
        # A process of its own loads torch: the memory of this one counts as that of each command.
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(fill, (store, experiment))
        print(f"{count:,} runs of {EPOCHS} epochs\n")
        print("| command | seconds | seconds of CPU | MB | bound |\n|---|---|---|---|---|")
        run = ("run", str(experiment), "--out")
        failed = [
            show("status", measure("status", str(store)), 5.0),
            show("report", measure("report", str(store)), 60.0, 500.0),
        ]
        next((store / "runs").glob("*/result.json")).unlink()
        for what, path, *more in (
            ("run, one run is left", store),
            ("run, no run is finished", empty),
            ("run, begun before", empty),
            ("run with two workers", empty, "--workers", "2"),
        ):
            failed.append(show(what, measure(*run, str(path), *more, until=BEGINS), 5.0))
    sys.exit(any(failed))


def show(command, measured, most_seconds, most_megabytes=None):
    """Print a row of the table; return whether a bound does not hold."""
    seconds, cpu, megabytes = measured
    bounds = f"{most_seconds:g} s" + (f", {most_megabytes:g} MB" if most_megabytes else "")
    failed = cpu > most_seconds or megabytes > (most_megabytes or megabytes)
    verdict = f"{bounds}: {'FAILS' if failed else 'holds'}"
    print(f"| {command} | {seconds:.1f} | {cpu:.1f} | {megabytes:.0f} | {verdict} |", flush=True)
    return failed


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
