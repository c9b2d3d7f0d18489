"""Measure the time that `from sgdf import *` adds to `import torch`: median of new processes."""

import statistics
import subprocess
import sys

PROGRAM = """
import time
import torch
start = time.perf_counter()
from sgdf import *
print(time.perf_counter() - start)
"""


def main():
    """Print the median."""
    command = [sys.executable, "-c", PROGRAM]
    times = [float(subprocess.check_output(command)) for _ in range(7)]
    print(
        f"from sgdf import * after torch: {1000 * statistics.median(times):.1f} ms (bound: 100 ms)"
    )


if __name__ == "__main__":
    main()
