"""Small grids of runs for tests of processes, and ways to look at them from outside."""

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import tomli_w

from bench_tasks import essence
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.store.run_folder import Store

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")


def experiment(tmp_path, delay=0.0, epochs=3, seeds=(0, 1), **changes):
    """Write a grid of four runs, eight steps an epoch, unless the arguments change it."""
    document = {
        "seed": list(seeds),
        "task": {"name": "bench_tasks:Points", "delay": delay},
        "optimizer": [{"name": "sgdf", "lr": 0.5}, {"name": "adam", "lr": 0.01}],
        "train": {"epochs": epochs, "batch_size": 16, "threads": 1, "log_every": 5},
        **changes,
    }
    path = tmp_path / "grid.toml"
    path.write_text(tomli_w.dumps(document))
    return path


def plan_of(path, store, **options):
    """Return the plan of an experiment's runs, ready to be worked on."""
    plan = Plan(resolve_machine(load(path), threads=1).runs, store, **options)
    plan.prepare()
    return plan


class Diary:
    """A display that remembers all events."""

    def __init__(self, react=lambda run, event: None):
        self.events, self.react = [], react

    def __call__(self, run, event):
        """Remember an event."""
        self.events.append((run, event))
        self.react(run, event)

    def of(self, kind):
        """Return the events of a kind."""
        return [(run, event) for run, event in self.events if event["event"] == kind]


def states(plan):
    """Return how many runs are in which state."""
    store = Store(plan.store)
    return Counter(store.folder(run.key).state() for run in plan.runs)


def essences(plan):
    """Return by key all of the finished runs that interruptions must not change."""
    store = Store(plan.store)
    return {run.key: essence(store.folder(run.key)) for run in plan.runs}


def command(path, store, *options):
    """Return the command that does an experiment."""
    return [sys.executable, "-m", "sgdf", "run", str(path), "--out", str(store), *options]


def wait_for(condition, seconds=60):
    """Return once the condition holds; fail if it does not within some time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def alive(pid):
    """Return whether a process is there and more than the remains of one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def under_torchrun(path, store, *options):
    """Start the command in two processes that train each run together."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    return subprocess.Popen(
        [sys.executable, *torchrun, *command(path, store, *options)[2:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )


def descendants(pid):
    """Return the processes that a process has started."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except OSError:
        return []


def has_rank(pid):
    """Return whether a process is one of those that torchrun has started."""
    with contextlib.suppress(OSError):
        return b"RANK=" in Path(f"/proc/{pid}/environ").read_bytes()
    return False
