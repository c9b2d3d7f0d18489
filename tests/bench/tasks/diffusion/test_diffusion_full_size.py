"""Steps of DiT-B/4 and SiT-B/4 at full size. They are slow: 130 million parameters."""

import multiprocessing
import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from sgdf import SignSGDF
from sgdf.bench.tasks.diffusion.ddpm import Diffusion
from sgdf.bench.tasks.diffusion.flow import Flow
from sgdf.bench.tasks.diffusion.transformer import SIZES, DiffusionTransformer

STEPS, BATCH = 3, 2
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def take_steps(process):
    """Train on one batch, in a process of its own; return losses, time and the peak of memory."""
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = DiffusionTransformer(32, 4, 4, *SIZES["b"], classes=1000)
    before = {name: values.clone() for name, values in model.named_parameters()}
    optimizer = SignSGDF(model.parameters(), lr=1e-4)
    images, noise = torch.randn(2, BATCH, 4, 32, 32)
    times, classes = process.draw_times(BATCH), torch.tensor([3, 999])
    losses, began = [], time.perf_counter()
    for _ in range(STEPS):
        parts = process.losses(model, images, classes, times, noise)
        loss = sum(parts.values()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append({name: part.mean().item() for name, part in parts.items()})
    after = dict(model.named_parameters())
    return {
        "losses": losses,
        "parameters": sum(map(torch.numel, after.values())),
        "unchanged": [name for name in after if torch.equal(after[name], before[name])],
        "finite": all(values.isfinite().all().item() for values in after.values()),
        "seconds": round((time.perf_counter() - began) / STEPS, 2),
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT / 1e9,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("process", "first"), [(Diffusion(), 1.0), (Flow(), 2.0)])
def test_steps_at_full_size(process, first):
    spawn = multiprocessing.get_context("spawn")  # so that the peak of memory is its own
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        found = pool.submit(take_steps, process).result()
    print(f"{type(process).__name__}: {found}")
    assert found["parameters"] == 130_426_496
    # The output is 0 at first, so the error is the variance of the noise, or of the velocity.
    assert found["losses"][0]["squared_error"] == pytest.approx(first, rel=0.1)
    assert found["losses"][-1]["squared_error"] < found["losses"][0]["squared_error"]
    assert found["finite"]
    assert found["unchanged"] == []
    assert found["gigabytes"] < 3.5
