"""The WGAN-GP on photographs: small made ones and, where they are, the published ones."""

import pytest
import torch

from made_data import real_data, tiny, unpacked
from sgdf.bench.errors import SpecError, StoreError
from sgdf.bench.tasks.cifar.data import CIFAR10
from sgdf.bench.tasks.wgan.task import WGANGP

SMALL = {"side": 64, "channels": 2, "latent": 4}


@pytest.fixture
def photographs(tmp_path, monkeypatch):
    """Let the task have 40 made training images, and 20 for testing."""
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    made = tiny(CIFAR10, tmp_path, per_class=4)
    monkeypatch.setattr("sgdf.bench.tasks.images.pixels.CIFAR10", made)


@pytest.mark.usefixtures("photographs")
def test_photographs_are_resized_and_held_back_as_the_options_say():
    task = WGANGP(**SMALL)
    assert task.splits == ("test",)
    assert task.count_examples() == {"train": 40, "test": 40}  # compared with what is trained on
    (batch,) = task.batches(64, torch.Generator().manual_seed(0))
    assert batch.shape == (40, 3, 64, 64)
    numbers = task.step(batch, lambda loss, name: None)
    assert all(value.isfinite() for value in numbers.values())
    options = {"train_images": 20, "validation_images": 15, "compared_with": "test"}
    counts = {"train": 20, "validation": 15, "test": 20}
    assert WGANGP(**SMALL, **options).count_examples() == counts
    with pytest.raises(SpecError, match="train_images = 40 and validation_images = 15"):
        WGANGP(**SMALL, **{**options, "train_images": 40})


def test_missing_photographs_are_noticed_before_a_run_begins(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: (_ for _ in ()).throw(OSError))
    with pytest.raises(StoreError, match="CIFAR-10"):
        WGANGP(**SMALL)


@pytest.mark.slow
@real_data
def test_an_epoch_of_the_published_size(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "cifar10")))
    task = WGANGP(channels=2)
    batches = task.batches(64, torch.Generator().manual_seed(0))
    assert len(batches) == 782
    assert len(batches) % task.generator_every == 2  # so that the count must begin anew
    (last,) = batches.skip(781)
    assert last.shape == (16, 3, 64, 64)
    assert task.count_examples() == {"train": 50_000, "test": 50_000}
