"""Steps of the WGAN-GP at its full size. They are slow: 64 × 64 pixels, on a processor."""

import math
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from bench_tasks import run_of
from made_data import PUBLISHED, tiny, unpacked
from sgdf.bench.tasks.cifar.data import CIFAR10
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

STEPS = 6
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@pytest.fixture
def photographs(tmp_path_factory, monkeypatch):
    """Return the options for the real images or, where they are not, for made ones."""
    if PUBLISHED.exists():
        monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "cifar10")))
        return {}
    folder = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("SGDF_DATA", str(folder))
    tiny(CIFAR10, folder, per_class=40)
    return {"official": False}


def take_steps(options):
    """Take steps in a process of their own; return what was logged, and the peak of memory."""
    torch.set_num_threads(1)
    task = {"name": "sgdf.bench.tasks.wgan.task:WGANGP", **options}
    optimizer = {"name": "sgdf", "lr": 0.01, "betas": [[0.5, 0.999]]}
    run = run_of(task, optimizer, {"batch_size": 64, "epochs": 1}, protocol="paper")
    trainer = Trainer(run, Ranks())
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    batches = iter(trainer.task.batches(64, torch.Generator().manual_seed(0)))
    logged, start = [], time.process_time()
    for _ in range(STEPS):
        numbers = trainer.task.step(next(batches), trainer.update)
        logged.append({name: value.item() for name, value in numbers.items()})
    after = dict(trainer.model.named_parameters())
    networks = {name: network.parameters() for name, network in trainer.model.items()}
    return {
        "logged": logged,
        "parameters": {name: sum(map(torch.numel, params)) for name, params in networks.items()},
        "unchanged": [name for name in after if torch.equal(after[name], before[name])],
        "finite": all(value.isfinite().all().item() for value in after.values()),
        "seconds": (time.process_time() - start) / STEPS,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / 1e9,
    }


@pytest.mark.slow
def test_steps_at_full_size(photographs):
    spawn = multiprocessing.get_context("spawn")  # so that the peak of memory is its own
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = pool.submit(take_steps, photographs).result()
    print(found)
    assert found["parameters"] == {"critic": 2_765_569, "generator": 3_576_704}
    assert [number for number, row in enumerate(found["logged"]) if "generator" in row] == [0, 5]
    assert all(math.isfinite(value) for row in found["logged"] for value in row.values())
    assert found["finite"]
    # The critic's last bias shifts all scores alike, which the loss does not see.
    assert set(found["unchanged"]) <= {"critic.layers.12.bias"}
    assert found["gigabytes"] < 2.0
