"""Processes that a script starts have the fallback, too, if it calls it at its top."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = str(Path(__file__).with_name("vision_children.py"))


@pytest.mark.parametrize("way", ["fork", "spawn", "forkserver"])
def test_workers_of_a_data_loader(way):
    ended = subprocess.run([sys.executable, SCRIPT, way], capture_output=True, text=True)
    assert ended.stdout == "workers [1, 1, 1, 1]\n", ended.stderr


def test_torchrun():
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ended = subprocess.run(
        [*launcher, "--nproc-per-node", "2", SCRIPT, "torchrun"], capture_output=True, text=True
    )
    assert sorted(ended.stdout.splitlines()) == ["rank 0 1", "rank 1 1"], ended.stderr
