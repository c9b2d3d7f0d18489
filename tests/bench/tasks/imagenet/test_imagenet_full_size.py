"""A step of every network of ImageNet at its full size. They are slow: 133 million parameters."""

import math
import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest

from bench_tasks import run_of
from made_pictures import let_it_settle, write_photographs
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

CLASSES, BATCH = 1000, 4
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
GIGABYTES = {
    "resnet18": 0.8,
    "resnet34": 1.0,
    "resnet50": 1.4,
    "resnet101": 1.7,
    "vgg11_bn": 3.2,
    "vgg13_bn": 3.2,
    "densenet121": 1.3,
    "densenet161": 2.0,
}
"""The memory that a process may need for pictures of 224 pixels, four in a batch, with SGDF."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return a folder with as many classes as ImageNet has, and two pictures of each."""
    folder = tmp_path_factory.mktemp("data")
    names = [f"n{number:04}" for number in range(CLASSES)]
    write_photographs(folder / "pictures", train=2, test=1, classes=names, size=(250, 200))
    let_it_settle(folder / "pictures")
    return folder


def take_step(network):
    """Take a step in a process of its own; return loss, parameters and the peak of memory."""
    task = {"name": "imagenet", "network": network, "folder": "pictures", "official": False}
    run = run_of(
        {**task, "validation_images": CLASSES},
        {"name": "sgdf", "lr": 0.5, "weight_decay": 1e-4},
        {"batch_size": BATCH, "epochs": 1},
    )
    trainer = Trainer(run, Ranks())
    before = {name: value.norm().item() for name, value in trainer.model.named_parameters()}
    trainer.model.train()
    batches = iter(trainer._order(0))
    loss = trainer.task.step(next(batches), trainer.update)["loss"].item()
    batches.close()
    after = {name: value.norm().item() for name, value in trainer.model.named_parameters()}
    return {
        "loss": loss,
        "parameters": sum(value.numel() for value in trainer.model.parameters()),
        "unchanged": [name for name in after if after[name] == before[name]],
        "finite": all(map(math.isfinite, after.values())),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / 1e9,
    }


@pytest.mark.slow
@pytest.mark.parametrize("network", GIGABYTES)
def test_a_step_at_full_size(network, root, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(root))
    spawn = multiprocessing.get_context("spawn")  # so that the peak of memory is its own
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = pool.submit(take_step, network).result()
    print(f"{network}: {found}")
    assert 4 < found["loss"] < 12  # about log(1000), which is 6.9
    assert found["finite"]
    assert found["unchanged"] == []
    assert found["gigabytes"] < GIGABYTES[network]
