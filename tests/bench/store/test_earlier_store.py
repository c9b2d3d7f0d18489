"""Runs that an earlier version (0.1.0, before the folders) has left are read and resumed.

``tests/support/earlier_store`` has a finished, a paused, a diverged and a failed run of it.
"""

import hashlib
import json
import shutil

import pytest

from bench_tasks import run_of
from kept_runs import do
from locations import SUPPORT
from sgdf.bench.report.findings import gather
from sgdf.bench.spec.bundled import bundled_experiments
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.store.run_folder import State, Store

TRAIN = {"log_every": 1}
RUNS = {
    State.FINISHED: {"train": TRAIN},
    State.PAUSED: {"optimizer": "sgdf", "train": TRAIN, "seed": 1},
    State.DIVERGED: {"optimizer": {"name": "sgd", "lr": 1e30}, "train": TRAIN},
    State.FAILED: {"task": "bench_tasks:Unsaveable", "train": TRAIN},
}


@pytest.fixture
def earlier(tmp_path):
    shutil.copytree(SUPPORT / "earlier_store", tmp_path / "earlier")
    return Store(tmp_path / "earlier")


@pytest.mark.parametrize("state", RUNS)
def test_the_same_settings_find_the_run_of_before(state, earlier):
    run = run_of(**RUNS[state])
    folder = earlier.folder(run.key)
    assert folder.table() == run.as_table()
    assert folder.state() is state


def test_a_paused_run_is_resumed_where_it_was(earlier):
    run = run_of(**RUNS[State.PAUSED])
    before = earlier.folder(run.key).rows()
    folder, state, _ = do(run, earlier)
    assert state is State.FINISHED
    assert folder.rows()[: len(before)] == before
    assert len(folder.environments()) == 2
    # As the earlier version finished it, but for the rounding of another machine.
    selected = folder.result()["selected"]
    assert (selected["epoch"], selected["step"]) == (2, 8)
    assert selected["train"]["loss"] == pytest.approx(0.713525116443634, rel=1e-4)
    assert selected["test"]["loss"] == pytest.approx(0.753653347492218, rel=1e-4)


def test_a_report_has_them_all(earlier):
    findings = gather(earlier.folders())
    states = sorted(run.state.value for run in findings.runs)
    assert states == ["diverged", "failed", "finished", "paused"]
    assert not findings.unreadable


def test_keys_of_the_bundled_experiments_are_those_of_before():
    """A key names a folder: if it changed, every finished run would be trained again.

    Those with optimizers of other libraries are left out: their defaults are part of the key.
    """
    golden = json.loads((SUPPORT / "run_keys.json").read_text())
    for name, expected in golden.items():
        runs = resolve_machine(load(name, {"train.device": "cpu"}), threads=1).runs
        keys = "\n".join(sorted(run.key for run in runs))
        assert hashlib.sha256(keys.encode()).hexdigest()[:16] == expected, name
    assert set(golden) <= set(bundled_experiments())
