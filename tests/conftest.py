"""Options and settings of the whole suite."""

import hypothesis
import pytest
import torch

# The same examples on every machine: a test run is a fact, not a lottery.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


@pytest.fixture
def told_at_once(monkeypatch):
    """Let runs in this process tell of every step that they log, not once in a second."""
    monkeypatch.setattr("sgdf.bench.attempt.PUBLISH_SECONDS", 0.0)
