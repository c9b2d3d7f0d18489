"""Steps of ViT-B/32 and ViT-L/32 at full size. They are slow: up to 306 million parameters."""

import math
import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from bench_tasks import run_of
from sgdf.bench.tasks.vit.google import write_weights
from sgdf.bench.tasks.vit.transformer import SIZES, VisionTransformer
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

STEPS, BATCH = 2, 2  # the first one moves the head alone, which is zero before it
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
BEGUN = {  # parameters with ten classes, the largest number of gigabytes, weights
    "vit-b-32": (87_528_192 + 7_690, 2.6, "weights.npz"),
    "vit-l-32": (305_607_680 + 10_250, 7.0, "random"),
}


def write(path):
    torch.manual_seed(0)
    path.write_bytes(write_weights(VisionTransformer(SIZES["vit-b-32"], 224)))


def totals(model):
    return {name: value.double().sum().item() for name, value in model.named_parameters()}


def take_steps(network, weights):
    """Train in a process of its own; return losses, time and the peak of memory."""
    torch.set_num_threads(2)
    task = {"name": "vit", "network": network, "data": "digits", "weights": weights}
    train = {"batch_size": BATCH, "clip_norm": 1.0, "epochs": 1}
    optimizer = {"name": "sgdf", "lr": 0.5}
    trainer = Trainer(run_of(task, optimizer, train), Ranks())
    before = totals(trainer.model)
    batches = iter(trainer.task.batches(BATCH, torch.Generator().manual_seed(0)))
    losses, began = [], time.perf_counter()
    for _ in range(STEPS):
        losses.append(trainer.task.step(next(batches), trainer.update)["loss"].item())
    after = totals(trainer.model)
    return {
        "losses": losses,
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "positions": trainer.model.backbone.positions.shape,
        "unchanged": [name for name in after if after[name] == before[name]],
        "finite": all(map(math.isfinite, after.values())),
        "seconds": round((time.perf_counter() - began) / STEPS, 2),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / 1e9,
    }


@pytest.mark.slow
@pytest.mark.parametrize("network", BEGUN)
def test_steps_at_full_size(network, tmp_path, monkeypatch):
    parameters, gigabytes, weights = BEGUN[network]
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    if weights != "random":
        write(tmp_path / weights)
    spawn = multiprocessing.get_context("spawn")  # so that the peak of memory is its own
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = pool.submit(take_steps, network, weights).result()
    print(f"{network}: {found}")
    assert found["parameters"] == parameters
    assert found["positions"] == (1, 145, SIZES[network].hidden)
    assert found["losses"][0] == pytest.approx(math.log(10))  # the head is zero
    assert all(map(math.isfinite, found["losses"]))
    assert found["finite"]
    assert found["unchanged"] == []
    assert found["gigabytes"] < gigabytes
