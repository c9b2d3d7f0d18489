"""Evaluations that take long: they tell how far they are, and go on where they were killed."""

import io
import os
import signal
import subprocess
import sys
import threading
import time

import matplotlib.image
import pytest
import torch

from bench_tasks import Points, equal, essence, run_of
from evaluating_tasks import DRAWS, Drawing
from grids import Diary, command, experiment, plan_of
from kept_runs import do
from locations import SUPPORT
from sgdf.bench.jobs.local import Workers
from sgdf.bench.jobs.run_one import train_run
from sgdf.bench.jobs.signals import stop_on_signals
from sgdf.bench.store.identity import digest
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("publishing_at_once")
DRAWING = "evaluating_tasks:Drawing"
TRAIN = {"epochs": 2, "costly_every": 1, "batch_size": 64, "threads": 1}


@pytest.fixture(autouse=True)
def _count_afresh(monkeypatch):
    monkeypatch.setattr(Drawing, "drawn", 0)


@pytest.fixture
def expected(tmp_path):
    """What an undisturbed run comes to, whose draws are not counted."""
    found = essence(do(drawing_run(), Store(tmp_path / "undisturbed"))[0])
    Drawing.drawn = 0
    return found


@pytest.fixture
def _every_evaluation_is_long(monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.recorder.LONG_EVALUATION", 0.0)


def drawing_run(**more):
    return run_of(DRAWING, train={**TRAIN, "log_every": 1}, **more)


def kept_files(folder):
    return sorted(path.name for path in folder.path.glob("evaluation-*.pt"))


def interrupted(store, at, every=0.0, run=None):
    """Stop a run at one of its draws as Ctrl-C does; return its folder and how it ended."""
    run = run or drawing_run()
    folder, events, stop = store.folder(run.key), [], threading.Event()
    folder.prepare(run.as_table())

    def tell(event):
        events.append(event)
        if event["event"] == "evaluating" and Drawing.drawn == at:
            stop.set()

    with folder.claim() as ours:
        assert ours
        options = {"checkpoint_every": every, "stop": stop, "tell": tell}
        state, _ = train_run(run, folder, Ranks(), **options)
    return folder, state, events


# Killed, and continued


def test_a_killed_evaluation_continues_and_comes_to_the_same(tmp_path, monkeypatch):
    """Two kills: in the first split of the first evaluation, and in the last of the second."""
    path = experiment(
        tmp_path, task={"name": DRAWING}, optimizer={"name": "sgdf"}, train=TRAIN, seeds=(0,)
    )
    undisturbed = plan_of(path, tmp_path / "undisturbed")
    undisturbed.work(Diary(), threading.Event())
    assert Drawing.drawn == 4 * DRAWS
    (run,) = undisturbed.runs

    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    store = Store(tmp_path / "store")
    folder = store.folder(run.key)
    left = 0
    for kill_at, in_progress in ((DRAWS // 2, 1), (3 * DRAWS, 2)):
        monkeypatch.setenv("SGDF_TEST_KILL_AT", str(kill_at))
        sgdf = command(path, store.path, "--checkpoint-every", "0.000001")
        killed = subprocess.run(sgdf, capture_output=True, timeout=120)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(kept_files(folder)) == in_progress
        left += kill_at - 1  # nothing but the draw that it was killed in is lost
    monkeypatch.delenv("SGDF_TEST_KILL_AT")
    Drawing.drawn = 0
    plan_of(path, store.path).work(Diary(), threading.Event())
    assert Drawing.drawn == 4 * DRAWS - left
    assert equal(essence(folder), essence(Store(tmp_path / "undisturbed").folder(run.key)))
    assert not kept_files(folder)


@pytest.mark.parametrize("at", [1, 7, DRAWS, DRAWS + 1, 3 * DRAWS])
@pytest.mark.usefixtures("_every_evaluation_is_long")
def test_a_stop_in_an_evaluation_loses_no_draw(at, store, expected):
    folder, state, _ = interrupted(store, at)
    assert state is State.PAUSED
    assert kept_files(folder)
    folder, state, _ = do(drawing_run(), store)
    assert state is State.FINISHED
    assert Drawing.drawn == 4 * DRAWS
    assert equal(essence(folder), expected)
    assert not kept_files(folder)


def test_a_state_counts_even_if_the_steps_before_it_are_taken_again(store, expected, monkeypatch):
    folder, state, _ = interrupted(store, 7, every=1e9)
    assert (state, folder.saved()) == (State.PAUSED, 0)
    monkeypatch.setattr("sgdf.bench.jobs.recorder.LONG_EVALUATION", 0.0)  # saved before it, now
    folder, _, _ = do(drawing_run(), store)
    assert Drawing.drawn == 4 * DRAWS
    assert equal(essence(folder), expected)


@pytest.mark.usefixtures("_every_evaluation_is_long")
def test_parts_of_one_name_are_kept_apart(store, monkeypatch):
    """As those of a task that names its part alike for each split."""
    evaluate = Drawing.evaluate_costly

    def alike(task, split):
        shift = 0 if split == "validation" else 1000
        task.seed += shift
        found = evaluate(task, "any")
        task.seed -= shift
        return found

    monkeypatch.setattr(Drawing, "evaluate_costly", alike)
    whole, _, _ = do(drawing_run(), Store(store.path / "whole"), every=0.0)
    rows = [row for row in whole.rows() if row["kind"] == "epoch"]
    assert rows[-1]["test"]["drawn"] != rows[-1]["validation"]["drawn"]
    Drawing.drawn = 0
    interrupted(store, DRAWS + 3)
    folder, _, _ = do(drawing_run(), store)
    assert Drawing.drawn == 4 * DRAWS
    assert equal(essence(folder), essence(whole))


def test_time_of_an_interrupted_evaluation_counts(store, monkeypatch):
    advance = Points.evaluate

    def slow(task, split):
        time.sleep(0.01 * (Drawing.drawn < DRAWS))
        return advance(task, split)

    monkeypatch.setattr(Drawing, "evaluate", slow)
    draw = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *size, **o: time.sleep(0.01) or draw(*size, **o))
    interrupted(store, DRAWS - 2)
    monkeypatch.setattr(torch, "randn", draw)
    folder, _, _ = do(drawing_run(), store)
    assert folder.result()["seconds"]["evaluation"] > 0.01 * (DRAWS - 2)


@pytest.mark.usefixtures("_every_evaluation_is_long")
@pytest.mark.parametrize("soon", [True, False])
def test_ctrl_c_ends_an_evaluation_and_it_continues(soon, store, expected, monkeypatch, capfd):
    """When it has kept what it has, or at once if it has not told for long how far it is."""
    monkeypatch.setattr("sgdf.bench.jobs.recorded_evaluation.SOON", 1e9 if soon else 0.0)
    run = drawing_run()
    folder = store.folder(run.key)
    folder.prepare(run.as_table())

    def tell(event):
        if event["event"] == "evaluating" and event["done"] == 5:
            signal.raise_signal(signal.SIGINT)

    with folder.claim(), stop_on_signals() as stop:
        state, _ = train_run(run, folder, Ranks(), checkpoint_every=0, stop=stop, tell=tell)
    assert state is State.PAUSED
    assert Drawing.drawn == (6 if soon else 5)
    said = capfd.readouterr().err
    assert ("as soon as the evaluation has kept" in said) is soon
    folder, _, _ = do(run, store)
    # At once, the draw that was not kept yet is lost.
    assert Drawing.drawn == (4 * DRAWS if soon else 4 * DRAWS + 1)
    assert equal(essence(folder), expected)


@pytest.mark.usefixtures("_every_evaluation_is_long")
@pytest.mark.parametrize("worth", [0.0, 1e9])
def test_the_end_of_a_part_is_kept_if_it_took_some_time(worth, store, expected, monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.recorded_evaluation.WORTH_KEEPING", worth)
    monkeypatch.setattr("sgdf.bench.jobs.recorder.KEEP_SECONDS", 1e9)
    interrupted(store, DRAWS + 3, every=1e9)
    monkeypatch.setattr("sgdf.bench.jobs.recorder.LONG_EVALUATION", 0.0)
    folder, _, _ = do(drawing_run(), store)
    assert Drawing.drawn == (4 if worth == 0.0 else 5) * DRAWS
    assert equal(essence(folder), expected)


@pytest.mark.usefixtures("_every_evaluation_is_long")
def test_where_there_is_nothing_to_keep_a_stop_keeps_what_was_kept_before(store, monkeypatch):
    def evaluate(task, split):
        kept = task.evaluation.kept("one")
        task.evaluation.advance("one", 1, 2, lambda: {"done": 1})
        Drawing.drawn += 1
        task.evaluation.advance("one", 1, 2, None)
        task.evaluation.advance("other", 1, 2)
        return {"known": 0.0 if kept is None else 1.0}

    monkeypatch.setattr(Drawing, "evaluate_costly", evaluate)
    folder, state, _ = interrupted(store, 1)
    assert state is State.PAUSED
    (name,) = kept_files(folder)
    assert torch.load(folder.path / name, weights_only=True)["state"] == {"done": 1}
    folder, state, line = do(drawing_run(), store)
    assert state is State.FINISHED, line
    first = next(row for row in folder.rows() if row["kind"] == "epoch")
    assert (first["validation"]["known"], first["test"]["known"]) == (1.0, 0.0)


def test_a_task_that_swallows_the_stop_records_nothing_wrong(store, expected, monkeypatch):
    evaluate = Drawing.evaluate_costly

    def careless(task, split):
        try:
            return evaluate(task, split)
        except Exception:
            return {"drawn": 0.0}

    with monkeypatch.context() as patched:
        patched.setattr(Drawing, "evaluate_costly", careless)
        _, state, _ = interrupted(store, 3)
    assert state is State.PAUSED
    assert equal(essence(do(drawing_run(), store)[0]), expected)


@pytest.mark.usefixtures("_every_evaluation_is_long")
def test_the_step_of_an_evaluation_is_told_before_it(store, monkeypatch):
    monkeypatch.setattr("sgdf.bench.jobs.recorder.PUBLISH_SECONDS", 1e9)
    run, events = drawing_run(), []
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    with folder.claim():
        options = {"checkpoint_every": 1e9, "stop": threading.Event(), "tell": events.append}
        train_run(run, folder, Ranks(), **options)
    told = [event["step"] for event in events if event["event"] == "progress"]
    assert 2 in told


# What counts, and what does not


def another_weight(state):
    state["weights"] = digest(b"others")


def nothing_in_it(state):
    state.clear()


@pytest.mark.parametrize("change", [another_weight, nothing_in_it])
def test_a_state_of_other_weights_does_not_count(change, store, expected):
    folder, _, _ = interrupted(store, 7)
    (name,) = kept_files(folder)
    path = folder.path / name
    state, buffer = torch.load(path, weights_only=True), io.BytesIO()
    change(state)
    torch.save(state, buffer)
    path.unlink()
    start = name.rpartition("-")[0]
    (folder.path / f"{start}-{digest(buffer.getvalue())}.pt").write_bytes(buffer.getvalue())
    Drawing.drawn = 0
    folder, _, _ = do(drawing_run(), store)
    assert Drawing.drawn == 4 * DRAWS
    assert equal(essence(folder), expected)
    assert len(folder.notices) == (change is nothing_in_it)


def test_a_damaged_state_is_put_aside_with_a_notice(store, expected):
    folder, _, _ = interrupted(store, 7)
    (name,) = kept_files(folder)
    (folder.path / name).write_bytes(b"damaged")
    folder, state, _ = do(drawing_run(), store)
    assert state is State.FINISHED
    (notice,) = folder.notices
    assert notice == f"what its evaluation kept, {name}, is damaged and was put aside"
    assert equal(essence(folder), expected)
    assert [path.name for path in folder.path.glob("*.damaged")] == [f"{name[:-3]}.damaged"]


def test_a_state_that_cannot_be_loaded_again_is_a_failure_at_once(store, monkeypatch):
    def evaluate(task, split):
        task.evaluation.advance("what", 1, 2, lambda: {"class": Points})
        return {}

    monkeypatch.setattr(Drawing, "evaluate_costly", evaluate)
    _, state, line = do(drawing_run(), store, every=0.0)
    assert state is State.FAILED
    assert "Weights only load failed" in line


@pytest.mark.usefixtures("_every_evaluation_is_long")
def test_kept_files_are_no_checkpoints(store):
    folder, _, _ = interrupted(store, 7)
    assert kept_files(folder)
    assert folder.saved() == 2
    assert all("evaluation" not in path.name for path, _ in folder.whole_checkpoints())


def test_nothing_is_kept_or_digested_where_an_evaluation_is_short(store, monkeypatch):
    monkeypatch.setattr(
        "sgdf.bench.jobs.recorded_evaluation.digest_of_weights", lambda weights: pytest.fail("slow")
    )
    monkeypatch.setattr("sgdf.bench.jobs.recorder.PUBLISH_SECONDS", 60.0)
    folder, events = store.folder(drawing_run().key), []
    run = drawing_run()
    folder.prepare(run.as_table())
    with folder.claim():
        options = {"checkpoint_every": 60.0, "stop": threading.Event(), "tell": events.append}
        state, _ = train_run(run, folder, Ranks(), **options)
    assert state is State.FINISHED
    assert not [event for event in events if event["event"] == "evaluating"]


def test_what_a_thrown_away_cheap_attempt_keeps_is_its_own(store, monkeypatch):
    """The first evaluation begins again as a costly one if the metric that decides is costly."""
    from sgdf.bench.tasks import Metric

    monkeypatch.setattr(Drawing, "metric", Metric("drawn", larger_is_better=True))
    found, evaluate = [], Points.evaluate

    def keeping(task, split):
        if split == "validation":
            found.append((task.begun[-1], task.evaluation.kept("cheap")))
            task.evaluation.advance("cheap", 1, 1, lambda: {"costly": task.begun[-1]})
        return evaluate(task, split)

    monkeypatch.setattr(Drawing, "evaluate", keeping)
    run = run_of(DRAWING, train={**TRAIN, "epochs": 3, "costly_every": 0})
    interrupted(store, DRAWS // 2, run=run)
    folder, state, line = do(run, store, every=0.0)
    assert state is State.FINISHED, line
    assert Drawing.drawn == 4 * DRAWS  # of the first evaluation and the last one
    known = [(costly, state) for costly, state in found if state is not None]
    # Of the evaluation that was interrupted: its attempt, and what it became.
    assert known == [(False, {"costly": False}), (True, {"costly": True})]
    rows = [row for row in folder.rows() if row["kind"] == "epoch"]
    assert ["drawn" in row["test"] for row in rows] == [True, False, True]


# Events and pictures


def test_events_tell_how_far_it_is(store):
    _, state, events = interrupted(store, at=-1)
    assert state is State.FINISHED
    told = [event for event in events if event["event"] == "evaluating"]
    assert len(told) == 4 * DRAWS
    assert told[1] == {
        "event": "evaluating", "what": "drawing, validation", "done": 2, "total": DRAWS
    }  # fmt: skip


@pytest.mark.slow
def test_workers_pass_the_events_on(tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(
        "import sgdf.bench.jobs.recorder as recorder\nrecorder.PUBLISH_SECONDS = 0.0\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), str(tmp_path)]))
    train = {**TRAIN, "epochs": 1}
    task, optimizer = {"name": DRAWING}, {"name": "sgd"}
    path = experiment(tmp_path, task=task, optimizer=optimizer, train=train, seeds=(0,))
    plan, diary = plan_of(path, tmp_path / "store"), Diary()
    Workers(plan, 1, diary).work(threading.Event())
    (run,) = plan.runs
    told = diary.of("evaluating")
    assert {key for key, _ in told} == {run.key}
    assert told[-1][1]["done"] == DRAWS


def test_pictures_are_kept_for_each_evaluated_epoch(store, run):
    folder, _, _ = do(drawing_run(), store)
    files = folder.pictures.known()["noise"]
    assert [path.name for path in files.values()] == ["noise-000001.png", "noise-000002.png"]
    assert files[1].read_bytes() == files[2].read_bytes()  # the same noise each time
    assert matplotlib.image.imread(files[1]).shape == (6, 8, 3)


def test_a_picture_that_cannot_be_written_is_noticed_once_and_done_without(store, expected):
    run = drawing_run()
    folder = store.folder(run.key)
    folder.prepare(run.as_table())
    (folder.path / "pictures").write_text("in the way")
    folder, state, _ = do(run, store)
    assert state is State.FINISHED
    (notice,) = folder.notices
    assert notice.startswith("its pictures 'noise' are not complete: cannot write ")
    assert equal(essence(folder), expected)


WRONG = {
    "a name with a path": ("../up", torch.zeros(2, 2, dtype=torch.uint8)),
    "a name with a line": ("up\n", torch.zeros(2, 2, dtype=torch.uint8)),
    "a long name": ("a" * 41, torch.zeros(2, 2, dtype=torch.uint8)),
    "numbers": ("a", torch.zeros(2, 2)),
    "two colours": ("a", torch.zeros(2, 2, 2, dtype=torch.uint8)),
    "colours first": ("a", torch.zeros(3, 8, 8, dtype=torch.uint8)),
    "a row": ("a", torch.zeros(2, dtype=torch.uint8)),
    "nothing": ("a", torch.zeros(0, 2, dtype=torch.uint8)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_picture_is_an_error(what, store, monkeypatch):
    monkeypatch.setattr(
        Drawing, "begin_evaluation", lambda task, costly: task.evaluation.show(*WRONG[what])
    )
    _, state, line = do(drawing_run(), store)
    assert state is State.FAILED
    assert line.startswith("ValueError: picture ")
    assert "letters" in line or "uint8" in line


# Without a recorder


def test_a_task_is_evaluated_outside_of_a_run_as_in_it():
    trainer = Trainer(drawing_run(), Ranks())
    before = trainer.task.evaluation
    first = trainer.evaluate(costly=True)
    assert first == trainer.evaluate(costly=True)
    assert trainer.task.evaluation is before is Drawing.evaluation
    assert "sgdf.bench.jobs.recorded_evaluation" in sys.modules
