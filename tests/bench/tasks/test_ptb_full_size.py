"""Steps of the task ptb at its full size. They are slow: 24 million parameters, on a processor."""

import math
import multiprocessing
import resource
import sys
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from bench_tasks import run_of
from made_data import PUBLISHED, unpacked
from sgdf.bench.tasks.ptb.data import PTB, SPLITS
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

STEPS = 2
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@pytest.fixture
def ten_thousand_words(tmp_path_factory, monkeypatch):
    """Return the options for the real text or, where it is not, for as many generated words."""
    if PUBLISHED.exists():
        monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "ptb")))
        return {}
    monkeypatch.setenv("SGDF_DATA", str(tmp_path_factory.mktemp("data")))
    PTB.place.mkdir()
    common = torch.randperm(9_998, generator=torch.Generator().manual_seed(0)).tolist()
    lines = [" ".join(f"word{n}" for n in common[start::300]) for start in range(300)]
    for name in SPLITS.values():
        (PTB.place / name).write_text("\n".join(lines) + "\n<unk>\n")
    return {"official": False}


def take_steps(options):
    """Take steps in a process of their own; return losses, parameters and the peak of memory."""
    train = {"batch_size": 20, "clip_norm": 0.1, "epochs": 1}
    trainer = Trainer(
        run_of({"name": "ptb", **options}, {"name": "sgdf", "lr": 60.0}, train), Ranks()
    )
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.model.train()
    batches, losses = iter(trainer.task.batches(20, torch.Generator().manual_seed(0))), []
    for _ in range(STEPS):
        losses.append(trainer.task.step(next(batches), trainer.update)["loss"].item())
    after = dict(trainer.model.named_parameters())
    return {
        "losses": losses,
        "parameters": sum(map(torch.numel, after.values())),
        "unchanged": [name for name in after if torch.equal(after[name], before[name])],
        "finite": all(value.isfinite().all().item() for value in after.values()),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / 1e9,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "parameters", "gigabytes"),
    [(1, 5_293_200, 1.1), (2, 13_632_400, 1.5), (3, 24_221_600, 1.9)],
)
def test_two_steps_at_full_size(layers, parameters, gigabytes, ten_thousand_words):
    spawn = multiprocessing.get_context("spawn")  # so that the peak of memory is its own
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = pool.submit(take_steps, {"layers": layers, **ten_thousand_words}).result()
    print(f"{layers} layers: {found}")
    assert found["parameters"] == parameters
    assert found["losses"][0] == pytest.approx(math.log(10_000), rel=0.02)  # and small penalties
    assert found["losses"][1] < math.inf
    assert found["finite"]
    assert found["unchanged"] == []
    assert found["gigabytes"] < gigabytes
