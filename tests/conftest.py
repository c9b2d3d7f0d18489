"""Options and settings of the whole suite."""

import hypothesis
import pytest
import torch

# The same examples on every machine: a test run is a fact, not a lottery.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow(reason): takes minutes; run by make test-slow")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow"):
        return
    for item in items:
        if marker := item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason=f"make test-slow: {marker.kwargs['reason']}"))


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
