"""All bundled probes: they leave a run as it is, and a resumed run has the rows of a whole one."""

import pytest

from bench_tasks import equal, essence, run_of
from kept_runs import do
from sgdf.bench.catalog.probes import PROBES
from sgdf.bench.jobs import recorder
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.store.run_folder import State, Store

OPTIONS = {"estimate": {"examples": 96, "batch_size": 32}, "sharpness": {"examples": 96}}
ALL = [ProbeSpec(name, OPTIONS.get(name, {}), every=3) for name in PROBES]
RUNS = {
    "dropout and BatchNorm": {"task": "bench_tasks:Points", "train": {"epochs": 3}},
    "digits": {"task": "digits-mlp", "train": {"epochs": 1, "batch_size": 128}},
    "digits with BatchNorm": {
        "task": {"name": "digits-cnn", "width": 2, "batch_norm": True},
        "train": {"epochs": 1, "batch_size": 128},
    },
}


def essence_without_probes(store, run):
    result, rows, kept, state = essence(store.folder(run.key))
    return result, rows, kept, {key: value for key, value in state.items() if key != "probes"}


@pytest.mark.parametrize("optimizer", ["sgdf", "sgd"])
@pytest.mark.parametrize("which", RUNS)
def test_a_run_with_all_probes_is_the_run_without_to_the_last_bit(
    which, optimizer, tmp_path, monkeypatch
):
    monkeypatch.setattr(recorder, "PUBLISH_SECONDS", 0.0)  # so that it stops at the step
    settings = {**RUNS[which], "train": {**RUNS[which]["train"], "log_every": 1}}
    run = run_of(optimizer=optimizer, **settings)
    plain, whole, parts = (Store(tmp_path / name) for name in "abc")
    do(run, plain)
    folder, state, line = do(run, whole, probes=ALL)
    assert state is State.FINISHED, line
    rows = folder.probe_rows()
    assert {row["probe"] for row in rows} == set(PROBES)
    folder, state, _ = do(run, parts, stop_after=5, probes=ALL)
    assert state is State.PAUSED
    assert 5 <= folder.saved() < max(row["step"] for row in rows)
    do(run, parts, probes=ALL)
    assert folder.probe_rows() == rows
    expected = essence_without_probes(plain, run)
    assert equal(essence_without_probes(whole, run), expected)
    assert equal(essence_without_probes(parts, run), expected)
