"""A small CIFAR in the place of the published one."""

import pytest

from made_data import tiny
from sgdf.bench.tasks.cifar.data import CIFAR10, CIFAR100
from sgdf.bench.tasks.cifar.task import Cifar10, Cifar100


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Let the tasks have small data sets, of 40 and 200 training images, in a folder."""
    folder = tmp_path / "data"
    monkeypatch.setenv("SGDF_DATA", str(folder))
    monkeypatch.setattr(Cifar10, "data_set", tiny(CIFAR10, folder, per_class=4))
    monkeypatch.setattr(Cifar100, "data_set", tiny(CIFAR100, folder, per_class=2))
    return folder
