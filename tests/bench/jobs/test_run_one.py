"""One run from where it was left to its end: resumed bit by bit, recorded, or failed."""

import json
import re
import threading

import pytest
import torch

from bench_tasks import equal, essence, run_of
from kept_runs import do
from sgdf.bench.jobs.provenance import differences, sources
from sgdf.bench.jobs.run_one import train_run
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training.ranks import Ranks

pytestmark = pytest.mark.usefixtures("publishing_at_once")


RESUMED = {
    "sampled curvature": {
        "task": "digits-mlp",
        "optimizer": {"name": "sophia", "lr": 1e-3, "hessian_every": 2},
        "train": {"epochs": 1, "batch_size": 256},
    },
    "measured loss": {
        "optimizer": {"name": "koala-m", "weight_decay": 0.01},
        "train": {"accumulate": 2, "precision": "float16"},
    },
    "measured losses of two networks": {"task": "bench_tasks:Pair", "optimizer": "koala-m"},
    "dropout and BatchNorm": {},
    "averaged weights": {"train": {"ema_decay": 0.9}},
    "accumulation and clipping": {"train": {"accumulate": 2, "clip_norm": 0.1}},
    "half precision": {"train": {"precision": "float16"}},
    "bfloat16 weights": {"train": {"precision": "pure-bfloat16"}},
    "schedule by step": {"schedule": {"name": "OneCycleLR", "max_lr": 0.1, "every": "step"}},
    "warm-up": {
        "schedule": {"name": "MultiStepLR", "milestones": [[5]], "every": "step", "warmup": 3}
    },
    "plateau": {"schedule": {"name": "ReduceLROnPlateau", "patience": 0}},
    "two networks": {"task": "bench_tasks:Pair", "optimizer": "adam"},
    "carried state": {
        "task": {"name": "characters", "characters": 9000, "hidden": 8, "layers": 2, "dropout": 0.3}
    },
    "paper protocol": {"protocol": "paper"},
    **{
        name: {"optimizer": name}
        for name in ("sgdf", "filter-adam", "sign-sgdf", "filter-muon", "sgd-ema", "adamw")
    },
    "sparse log": {"train": {"log_every": 3}},
    "every generator": {"task": "bench_tasks:Jittery"},
    "a loader with workers": {"task": "bench_tasks:Loaded"},
    "a loader without": {"task": {"name": "bench_tasks:Loaded", "workers": 0}},
}


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(name, tmp_path):
    settings = dict(RESUMED[name])
    settings["train"] = {"log_every": 1, "epochs": 2, **settings.get("train", {})}
    run = run_of(**settings)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    expected = essence(undisturbed)
    steps = undisturbed.result()["step"]
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps + 1):
        folder, state, line = do(run, interrupted, stop_after=step)
        if state is State.FINISHED:
            break
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert state is State.FINISHED
    assert len(folder.environments()) > 2
    for mine, other in zip(essence(folder), expected, strict=True):
        assert equal(mine, other)


def test_a_diverged_run_is_over(store):
    run = run_of("bench_tasks:Plain", {"name": "sgd-vanilla", "lr": 1e30}, {"log_every": 2})
    folder, state, line = do(run, store)
    assert state is folder.progress() is State.DIVERGED
    assert state.has_result
    assert line.startswith("diverged at step 2: the loss was the first number")
    assert folder.result()["diverged_at_step"] == 2


def test_the_record_of_a_run(store, run):
    folder, state, line = do(run, store)
    assert state is folder.state() is State.FINISHED
    assert folder.table() == run.as_table()
    result, rows = folder.result(), folder.rows()
    epochs = [row for row in rows if row["kind"] == "epoch"]
    best = max(epochs, key=lambda row: row["validation"]["accuracy"])
    assert result["selected"]["epoch"] == best["epoch"]
    assert result["selected"]["test"] == best["test"]
    assert result["last"]["epoch"] == 3
    assert result["parameters"] == 2 * 8 + 8 + 2 * 8 + 8 * 3 + 3
    assert result["state_bytes"] == 4 * result["parameters"]
    assert f"test accuracy {best['test']['accuracy']:.4g}" in line
    (environment,) = folder.environments()
    assert environment["torch"] == torch.__version__
    assert environment["threads"] == "1"
    assert {"cpu", "python", "sgdf", "commit"} <= set(environment)
    assert {"data of train", "data of test", "test rows in train"} <= set(environment)
    assert "resumed at step" not in environment
    assert len(list(folder.path.glob("*.pt"))) == 1
    assert not differences([environment], sources(run))


def test_events_for_tensorboard(store, run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    do(run, store, stop_after=5)
    folder, _, _ = do(run, store)
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    rows = [row for row in folder.rows() if row["kind"] == "epoch"]
    seen = [(event.step, event.value) for event in events.Scalars("test/accuracy")]
    assert seen == [(row["step"], pytest.approx(row["test"]["accuracy"])) for row in rows]
    assert [event.step for event in events.Scalars("train/loss by step")] == list(range(1, 13))


def test_events_that_cannot_be_written_are_done_without(store, run):
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    (folder.path / "tensorboard").write_text("in the way")
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    (notice,) = folder.notices
    assert "the run continues without TensorBoard's events" in notice


def test_sources_that_changed_are_noticed(store, run, monkeypatch):
    folder, _, _ = do(run, store)
    monkeypatch.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
    assert differences(folder.environments(), sources(run)) == ["task source", "optimizer source"]


def test_other_data_are_noticed_on_resuming(store, run, monkeypatch):
    do(run, store, stop_after=5)
    monkeypatch.setattr(
        "bench_tasks.Points.describe_data", lambda task: {"data of test": "others of 60 rows"}
    )
    folder, _, _ = do(run, store)
    assert "it resumes with other data of test than before" in folder.notices
    first, second = folder.environments()
    assert "resumed at step" not in first
    assert second["resumed at step"] == "5"


def test_a_description_of_the_data_that_raises_fails_no_run(store, run, monkeypatch):
    def fail(task):
        raise KeyError("rows")

    monkeypatch.setattr("bench_tasks.Points.describe_data", fail)
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    (environment,) = folder.environments()
    assert environment["describe_data"] == "KeyError: 'rows'"
    assert environment["torch"]


@pytest.mark.parametrize(
    ("described", "recorded"),
    [
        ({"data of test": torch.tensor(3), 5: None}, {"data of test": "tensor(3)", "5": "None"}),
        ({"data of test": {"rows": {1}}}, {"data of test": "{'rows': {1}}"}),
        (None, {"describe_data": "AttributeError: 'NoneType' object has no attribute 'items'"}),
    ],
)
def test_a_description_of_the_data_is_recorded_as_text(
    described, recorded, store, run, monkeypatch
):
    monkeypatch.setattr("bench_tasks.Points.describe_data", lambda task: described)
    monkeypatch.setattr("bench_tasks.Points.digest", 7, raising=False)
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    (environment,) = folder.environments()
    assert environment.items() >= {**recorded, "data": "7"}.items()


def test_going_on_with_another_source_is_noticed(store, run, monkeypatch):
    do(run, store, stop_after=5)
    monkeypatch.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
    folder, _, _ = do(run, store)
    assert folder.notices == [
        "it resumes with another task source than before",
        "it resumes with another optimizer source than before",
    ]


def test_going_on_with_other_data_is_refused(store, run, monkeypatch):
    monkeypatch.setattr("bench_tasks.Points.digest", "these", raising=False)
    do(run, store, stop_after=5)
    monkeypatch.setattr("bench_tasks.Points.digest", "those", raising=False)
    _, state, line = do(run, store)
    assert (state, "begun on other data" in line) == (State.PAUSED, True)
    monkeypatch.setattr("bench_tasks.Points.digest", "these", raising=False)
    _, state, _ = do(run, store)
    assert state is State.FINISHED


def test_a_task_that_raises_is_a_failure_with_its_reason(store):
    run = run_of("bench_tasks:Raising")
    folder, state, line = do(run, store)
    assert state is folder.state() is State.FAILED
    assert not state.has_result
    written = json.loads((folder.path / "failure.json").read_text())
    assert written["error"] == "RuntimeError: the cat is on the keyboard"
    assert re.fullmatch(r"bench_tasks.py:\d+ in step", written["place"])
    assert line == folder.failure() == f"{written['error']} ({written['place']})"
    assert written["sources"] == sources(run)
    assert "bench_tasks.py" in written["traceback"]
    folder.clear_failure()
    assert folder.state() is State.WAITING


def test_state_that_cannot_be_loaded_safely_is_a_failure_now_and_not_later(store):
    _, state, line = do(run_of("bench_tasks:Unsaveable"), store, stop_after=1)
    assert state is State.FAILED
    assert "Weights only load failed" in line


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("[third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed", State.WAITING),
        ("the cat is on the keyboard", State.FAILED),
    ],
)
def test_that_another_process_was_killed_is_no_failure(message, expected, store, run, monkeypatch):
    def fail(*arguments):
        raise RuntimeError(message)

    ranks = Ranks(alone=True)
    ranks.count = 2
    monkeypatch.setattr("sgdf.bench.jobs.run_one.resumed_trainer", fail)
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    with folder.claim(), pytest.raises(RuntimeError, match=r"cat|gloo"):
        train_run(
            run, folder, ranks, checkpoint_every=1, stop=threading.Event(), tell=lambda event: None
        )
    assert folder.progress() is expected
