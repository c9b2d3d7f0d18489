"""Small data sets in the place of the published ones."""

import pytest

from made_data import tiny
from sgdf.bench.tasks.cifar.data import CIFAR10, CIFAR100
from sgdf.bench.tasks.vit import data as data_module
from sgdf.bench.tasks.vit import pretraining


@pytest.fixture
def small_data(tmp_path, monkeypatch):
    """Let the task have a small CIFAR-10 and CIFAR-100, of 40 and 200 training images."""
    folder = tmp_path / "data"
    monkeypatch.setenv("SGDF_DATA", str(folder))
    sets = {
        "cifar10": tiny(CIFAR10, folder, per_class=4),
        "cifar100": tiny(CIFAR100, folder, per_class=2),
    }
    for name, found in sets.items():
        monkeypatch.setitem(data_module.CIFARS, name, found)
    monkeypatch.setattr(pretraining, "CIFAR100", sets["cifar100"])
    return folder
