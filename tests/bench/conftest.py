"""A store, and a short run to keep in it."""

import pytest

from bench_tasks import run_of
from sgdf.bench.store.run_folder import Store


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def run():
    return run_of(train={"log_every": 1})
