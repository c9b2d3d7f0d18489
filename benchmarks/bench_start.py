"""Measure how long the command takes to show its help, and to begin to train: fresh processes."""

import statistics
import subprocess
import sys
import tempfile
import time

HELP, TRAINING = 1.0, 5.0


def seconds_to(word, *arguments):
    """Return how long the command takes until it prints a word; then it is ended."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "sgdf", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if word in line:
                elapsed = time.perf_counter() - start
                process.kill()
                return elapsed
    raise RuntimeError(f"{word!r} was never printed")


def main():
    """Print the figures; the first of each also reads the files from the disk."""
    helps = [seconds_to("experiments", "--help") for _ in range(5)]
    starts = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as place:
            # With one step to do, the end of the first run is soon after its beginning.
            options = ("--set", "train.epochs=1", "--out", place)
            starts.append(seconds_to("test accuracy", "run", "digits", *options))
    slow = False
    for what, times, bound in (("--help", helps, HELP), ("run digits", starts, TRAINING)):
        median = statistics.median(times)
        slow |= median > bound
        print(
            f"sgdf {what}: {median:.2f} s (first {times[0]:.2f} s), "
            f"<= {bound:.0f} s: {'FAILS' if median > bound else 'holds'}"
        )
    sys.exit(slow)


if __name__ == "__main__":
    main()
