"""Measure the time of the first native step: with a build, and from the cache."""

import os
import statistics
import subprocess
import sys
import tempfile

PROGRAM = """
import time
import torch
import sgdf
param = torch.nn.Parameter(torch.ones(10))
param.grad = torch.ones(10)
optimizer = sgdf.SGDF([param], fused=None)
start = time.perf_counter()
optimizer.step()
print(time.perf_counter() - start)
assert optimizer._native.tables, "the native step was not taken"
"""


def first_step(cache):
    """Return the seconds of a new process's first step."""
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    return float(subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment))


def main():
    """Print both figures."""
    cold, warm = [], []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as cache:
            cold.append(first_step(cache))
            warm.append(first_step(cache))
    for name, times, bound in (("cold", cold, 2.0), ("warm", warm, 0.1)):
        median = statistics.median(times)
        verdict = "holds" if median <= bound else "FAILS"
        print(f"first step, {name}: {1e3 * median:.0f} ms (bound: {bound} s: {verdict})")


if __name__ == "__main__":
    main()
