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
    monkeypatch.setattr("sgdf.bench.jobs.recorder.PUBLISH_SECONDS", 0.0)


@pytest.fixture(scope="module")
def filled_store(tmp_path_factory):
    """Runs to report on."""
    from made_runs import filled  # what the optimizers' tests do not need

    return filled(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def written(filled_store, tmp_path_factory):
    """The report on them, and the folder that it was written to."""
    from sgdf.bench.report.write import Report  # nor matplotlib

    report = Report.of([filled_store])
    folder = tmp_path_factory.mktemp("report")
    report.write(folder)
    return report, folder
