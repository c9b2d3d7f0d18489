"""Measure how long the command takes to answer, and to begin to train: fresh processes."""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from made_runs import make_run

ROUNDS, RUNS = 5, 100
HELP, MISTAKE, STATUS, TRAINING = 1.0, 1.0, 0.5, 5.0


def seconds_to(word, *arguments):
    """Return how long the command takes until it prints a word; then it is ended."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "sgdf", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **options) as process:
        for line in process.stdout:
            if word in line:
                elapsed = time.perf_counter() - start
                process.kill()
                return elapsed
    raise RuntimeError(f"{word!r} was never printed")


def seconds_to_begin():
    """Return how long a run takes to begin: its end is soon after, with one epoch to do."""
    with tempfile.TemporaryDirectory() as place:
        options = ("--set", "train.epochs=1", "--out", place)
        return seconds_to("test accuracy", "run", "digits", *options)


def main():
    """Print the times; the first of each also reads the files from the disk."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        for seed in range(RUNS):
            make_run(store, [0.5 + 0.001 * epoch for epoch in range(20)], seed=seed)
        misspelt = ("--set", "optimizer.name=sgdff")
        measured = (
            ("sgdf --help", HELP, lambda: seconds_to("experiments", "--help")),
            (
                "a misspelt optimizer",
                MISTAKE,
                lambda: seconds_to("did you mean sgdf?", "run", "digits", *misspelt),
            ),
            (
                f"sgdf status on {RUNS} runs",
                STATUS,
                lambda: seconds_to(" ± ", "status", folder),
            ),
            ("sgdf run digits", TRAINING, seconds_to_begin),
        )
        slow = False
        for what, bound, measure in measured:
            times = [measure() for _ in range(ROUNDS)]
            median = statistics.median(times)
            slow |= median > bound
            print(
                f"{what}: {1000 * median:.0f} ms (first {1000 * times[0]:.0f} ms), "
                f"{median / bound:.2f} of {1000 * bound:.0f} ms: "
                f"{'FAILS' if median > bound else 'holds'}"
            )
    sys.exit(slow)


if __name__ == "__main__":
    main()
