"""Small data sets in the place of the published ones."""

import pytest

from made_data import tiny, write_words
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


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Let the task ptb have a small text, of some 6,000 words for training, in a folder."""
    folder = write_words(tmp_path / "data")
    monkeypatch.setenv("SGDF_DATA", str(folder))
    return folder
