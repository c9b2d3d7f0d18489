"""``sgdf run`` and ``sgdf status``: what people see, and what is kept."""

import errno
import importlib
import os
import re
import sys

from commands import SPEC, sgdf

from bench_tasks import run_of
from made_runs import begin, make_run, result_of, table_of
from sgdf.bench.errors import StoreError
from sgdf.bench.jobs.estimate import estimate
from sgdf.bench.store.run_folder import RunFolder, State, Store


def test_a_grid_from_beginning_to_end(place):
    shown = sgdf("run", "mine.toml", "--dry-run")
    assert re.search(r"^bench_tasks:Points\n.*\nsgd +1 waiting\nsgdf +1 waiting\n", shown, re.M)
    assert "Timing bench_tasks:Points for a few seconds" in shown
    assert "0 of 2 runs are done in results/mine; the others take about" in shown
    assert not (place / "results").exists()
    done = sgdf("run", "mine.toml")
    assert done.count("begins") == 2
    assert re.search(r"\[2/2\] bench_tasks:Points, sgd, seed 0: test accuracy 0\.\d+", done)
    assert "2 finished. sgdf status results/mine shows more." in done
    again = sgdf("run", "mine.toml")
    assert "2 runs, 2 done" in again
    assert "begins" not in again
    for argument in ([], ["results"], ["results/mine"], ["mine"], ["mine.toml"]):
        status = sgdf("status", *argument)
        assert "bench_tasks:Points: accuracy (%), larger is better" in status
        assert re.search(r"^sgdf +1 finished +\d+\.\d+ \(one seed\) +\d+\.\d+ ", status, re.M)
    assert "2 of 2 runs are done" in sgdf("run", "mine.toml", "--dry-run")


def test_the_spec_of_a_run_is_an_experiment_in_its_own_store(place):
    sgdf("run", "mine.toml", "--set", "optimizer.name=sgd")
    (folder,) = Store("results/mine").folders()
    assert Store("results/mine").experiments() == {"mine": "two runs"}
    assert "1 run, 1 done, in results/mine" in sgdf("run", folder.path / "spec.toml")
    sgdf("run", folder.path / "spec.toml", "--out", "again")
    assert Store("results/mine").experiments() == {"mine": "two runs"}
    assert Store("again").experiments() == {}
    (again,) = Store("again").folders()
    assert again.result()["weights"] == folder.result()["weights"]


def test_settings_from_the_command_line(place):
    sgdf(
        *("run", "mine.toml", "--set", "train.epochs=1", "--set", "seed=[4, 5]"),
        *("--set", "protocol=paper", "--threads", 2, "--precision", "bfloat16", "--device", "cpu"),
        *("--out", "elsewhere"),
    )
    tables = [folder.table() for folder in Store("elsewhere").folders()]
    assert {table["seed"] for table in tables} == {4, 5}
    assert {table["protocol"] for table in tables} == {"paper"}
    assert {table["train"]["epochs"] for table in tables} == {1}
    assert {table["train"]["threads"] for table in tables} == {2}
    assert {table["train"]["precision"] for table in tables} == {"bfloat16"}
    assert "best epoch on test" in sgdf("status", "elsewhere")


def test_failures_are_shown_and_tried_again_on_request(place):
    # At its first step, before there is a checkpoint: it would resume from one, and not raise.
    raising = SPEC.replace(':Points"', ':Raising"\nat = 1').replace('["sgdf", "sgd"]', '"sgd"')
    (place / "bad.toml").write_text(raising)
    output = sgdf("run", "bad.toml", code=1)
    assert "failed: RuntimeError: the cat is on the keyboard" in output
    assert re.search(
        r"1 run failed: RuntimeError: the cat .* \(bench_tasks.py:\d+ in step\)", output
    )
    status = sgdf("status", "bad")
    assert "failed: bench_tasks:Raising, sgd, seed 0: RuntimeError: the cat" in status
    assert "failure.json" in status
    assert "or with --retry" in status
    (folder,) = Store("results/bad").folders()
    alone = sgdf("status", folder.path)
    assert "Traceback" in alone
    assert "the cat is on the keyboard" in alone
    again = sgdf("run", "bad.toml", code=1)
    assert "begins" not in again
    assert "Correct the source and run the same command again" in again
    assert "begins" in sgdf("run", "bad.toml", "--retry", code=1)


def test_equal_failures_are_one_line_and_the_rest_is_not_begun(place):
    (place / "bad.toml").write_text(
        SPEC.replace(":Points", ":Raising").replace("about", "seed = [0, 1, 2]\nabout")
    )
    output = sgdf("run", "bad.toml", code=1)
    alike = r"2 runs failed alike: RuntimeError: the cat .* \(bench_tasks.py:\d+ in step\)"
    assert re.search(alike, output)
    assert "2 failed" in output
    assert "4 other runs were not begun; --keep-going tries them too" in output
    assert "4 waiting" in output
    status = sgdf("status", "bad")
    assert re.search(
        r"failed: \S+, sgd, seed 0 and 1 other run alike: RuntimeError: the cat is on the "
        r"keyboard \(bench_tasks.py:\d+ in step\)",
        status,
    )
    assert "begins" not in sgdf("run", "bad.toml", code=1)
    output = sgdf("run", "bad.toml", "--keep-going", code=1)
    assert "6 runs failed alike" in output
    assert "not begun" not in output


TASK = """
from bench_tasks import Points

class Mine(Points):
    def step(self, batch, update):
        return self.advance(batch, update)

    def advance(self, batch, update):
        if {broken}:
            raise ValueError("shapes do not match")
        return super().step(batch, update)
"""


def test_failed_runs_are_tried_again_once_their_source_has_changed(place):
    (place / "broken_task.py").write_text(TASK.format(broken=True))
    (place / "mine.toml").write_text(SPEC.replace("bench_tasks:Points", "broken_task:Mine"))
    again = ("run", "mine.toml")
    output = sgdf(*again, code=1)
    assert "2 runs failed alike: ValueError: shapes do not match (broken_task.py:10 in" in output
    assert "begins" not in sgdf(*again, code=1)
    (place / "broken_task.py").write_text(TASK.format(broken=False))
    del sys.modules["broken_task"]  # as in a new process
    importlib.invalidate_caches()
    assert "the others take about" in sgdf(*again, "--dry-run")
    output = sgdf(*again)
    assert "2 failed runs will be tried again: the source of the task or optimizer has" in output
    assert "2 finished" in output


def test_divergence_is_shown(place):
    wild = ("run", "mine.toml", "--set", "optimizer.lr=1e30", "--set", "train.diverges_at=2.0")
    output = sgdf(*wild, code=1)
    assert "diverged at step" in output
    assert "Every run diverged." in output
    assert "Try a smaller lr" in output
    assert "Every run diverged." in sgdf(*wild, code=1)  # though nothing is left to do
    some = sgdf("run", "mine.toml", "--set", "optimizer.lr=[1e30, 0.1]", "--out", "some")
    assert "2 finished, 2 diverged" in some
    assert "Every run" not in some
    assert re.search(r"diverged: bench_tasks:Points, sgd, seed 0: at step \d", sgdf("status"))


def test_runs_made_with_another_source_are_mentioned(place, monkeypatch):
    sgdf("run", "mine.toml")
    assert "another version" not in sgdf("run", "mine.toml")
    monkeypatch.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
    assert "2 of the runs done had another version" in sgdf("run", "mine.toml")


def test_damage_is_shown_and_repaired(place):
    sgdf("run", "mine.toml")
    folder, other = Store("results/mine").folders()
    (folder.path / "metrics.jsonl").write_text("{")
    (other.path / "spec.toml").write_text("seed = 1")
    status = sgdf("status", "mine")
    assert "damaged: bench_tasks:Points" in status
    assert "metrics.jsonl has other rows than those that the result is about" in status
    assert "spec.toml: is not the table of this run; sgdf run of its experiment repairs" in status
    sgdf("run", "mine.toml")
    assert {folder.state() for folder in Store("results/mine").folders()} == {State.FINISHED}


def test_a_running_run_that_cannot_be_read_is_one_line(place, monkeypatch):
    store = place / "results/mine"
    make_run(store, [0.5], optimizer="adam")
    folder = begin(store, table_of())

    def refuse(folder):
        raise StoreError("cannot read metrics.jsonl: Stale file handle")

    monkeypatch.setattr(RunFolder, "rows", refuse)
    with folder.claim():
        shown = sgdf("status", "mine")
    assert re.search(r"^running: .*: cannot read metrics.jsonl: Stale file handle$", shown, re.M)
    assert re.search(r"^adam +1 finished", shown, re.M)


def test_times_are_estimated_by_a_moment_of_training_or_by_finished_runs(place):
    slow = {"name": "bench_tasks:Points", "delay": 0.02}
    run, other = (run_of(slow, train={"epochs": 100}, seed=seed) for seed in (0, 1))
    expected = 100 * 4 * 0.02
    (seconds,) = estimate([run], Store("nothing")).values()
    assert expected < seconds < 2 * expected
    folder = Store("known").folder(other.key)
    folder.prepare(other.as_table())
    seconds = {"step": 3.0, "data": 4.0, "evaluation": 0.5}
    folder.finish(State.FINISHED, {**result_of([]), "seconds": seconds}, [])
    assert estimate([run], Store("known")) == {run.key: 7.5}
    folder.finish(State.DIVERGED, result_of([], diverged=3), [])
    (seconds,) = estimate([run], Store("known")).values()
    assert seconds > expected


def test_a_run_that_would_fail_is_named_before(place):
    (place / "bad.toml").write_text(SPEC.replace(":Points", ":Raising"))
    shown = sgdf("run", "bad.toml", "--dry-run", code=1)
    assert "will fail: bench_tasks:Raising, sgdf, seed 0: RuntimeError: the cat" in shown


def test_names_with_brackets_are_text(place):
    assert "x[/foo]" in sgdf("run", "mine.toml", "--out", "x[/foo]")
    assert "x[/foo]" in sgdf("status", "x[/foo]")


def test_locks_that_do_not_work_are_named(place, monkeypatch):
    def lockf(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("sgdf.bench.store.lock.fcntl.lockf", lockf)
    for command in (["run", "mine.toml"], ["run", "mine.toml"], ["status", "mine"]):
        assert "is locking enabled on this disk?" in sgdf(*command, code=2)


def test_settings_are_sorted_by_their_numbers(place):
    sgdf("run", "mine.toml", "--set", "optimizer.lr=[10.0, 2.0, 0.5]", "--set", "train.epochs=1")
    rates = re.findall(r"^sgdf lr=(\S+)", sgdf("status", "mine"), re.M)
    assert rates == ["0.5", "2.0", "10.0"]


def test_the_state_of_a_finished_run_is_asked_once(place, monkeypatch):
    """Each time, its metrics are read and hashed."""
    sgdf("run", "mine.toml")
    asked = []
    judge = RunFolder.state_and_result
    monkeypatch.setattr(
        RunFolder, "state_and_result", lambda folder: asked.append(folder.key) or judge(folder)
    )
    assert "2 finished." in sgdf("run", "mine.toml")
    assert len(asked) == len(set(asked)) == 2


def test_the_direction_of_the_metric_is_shown(place):
    make_run(place, [0.5, 0.75])
    status = sgdf("status", ".")
    assert "points: accuracy (%), larger is better" in status
    make_run(place, [0.5, 0.25], metric="perplexity", largest=False, task="words")
    status = sgdf("status", ".")
    assert "points: accuracy (%), larger is better" in status
    assert "words: perplexity, smaller is better" in status


def test_the_folder_of_one_run_can_be_shown_from_inside(place, monkeypatch):
    folder = make_run(place / "results/mine", [0.5])
    monkeypatch.chdir(folder.path)
    assert re.search(r"^sgd +1 finished +50\.00", sgdf("status", "."), re.M)


def test_milestones_after_the_end_of_a_run_are_mentioned_at_once(place):
    milestones = ("--set", "schedule.name=MultiStepLR", "--set", "schedule.milestones=[[1, 2, 30]]")
    line = (
        "Warning: schedule 'MultiStepLR': milestones = 2, 30: never reached, "
        "the run ends after 2 epochs"
    )
    for more in ("--dry-run", "--retry"):
        shown = sgdf("run", "mine.toml", *milestones, more)
        assert shown.count("Warning") == shown.count(line) == 1
    warmed_up = sgdf("run", "mine.toml", *milestones, "--set", "schedule.warmup=1", "--dry-run")
    assert "milestones = 1, 2, 30: never reached" in warmed_up
    assert "Warning" not in sgdf(
        "run", "mine.toml", *milestones[:2], "--set", "schedule.milestones=[[1]]"
    )
    by_step = ("--set", "schedule.every=step", "--set", "train.steps=4")
    assert "milestones = 30: never reached, the run ends after 4 steps" in sgdf(
        "run", "mine.toml", *milestones, *by_step, "--dry-run"
    )


def test_a_probe_that_comes_after_the_runs_is_said_to_have_no_numbers(place):
    sgdf("run", "mine.toml")
    probe = '[[probe]]\nname = "gradient-norm"\nevery = 1\n'
    (place / "mine.toml").write_text(SPEC + probe)
    said = " ".join(sgdf("run", "mine.toml").split())
    assert "2 runs with a result have no numbers of the probe gradient-norm" in said
    assert "no numbers" not in sgdf("run", "mine.toml", "--out", "new")
    assert "no numbers" not in sgdf("run", "mine.toml", "--out", "new")


def test_a_probe_that_had_nothing_to_look_at_is_not_said_to_be_missing(place):
    (place / "mine.toml").write_text(SPEC + '[[probe]]\nname = "gradient-norm"\nevery = 100000\n')
    sgdf("run", "mine.toml")
    assert "no numbers" not in sgdf("run", "mine.toml")
