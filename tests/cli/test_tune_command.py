"""The command ``sgdf tune``: what people see, and what they meet when they are wrong."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import optuna
import pytest
from commands import sgdf

from locations import SUPPORT
from sgdf.bench.catalog.optimizers import ALL
from sgdf.bench.search.file import read_search
from sgdf.bench.spec.bundled import bundled_searches
from sgdf.bench.spec.read import load, load_document
from sgdf.bench.store.run_folder import Store

SPEC = """
seed = [0, 1]
[task]
name = "bench_tasks:Points"
[train]
epochs = 2
batch_size = 40
threads = 1
[[optimizer]]
name = "sgdf"
lr = 0.5
[[optimizer]]
name = "sgd"
momentum = 0.5
search = { lr = { low = 0.01, high = 1.0 } }
"""


@pytest.fixture
def place(tmp_path, monkeypatch, publishing_at_once):
    """Return a folder with a spec, where commands are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    (tmp_path / "mine.toml").write_text(SPEC)
    before = optuna.logging.get_verbosity()
    yield tmp_path
    optuna.logging.set_verbosity(before)


def start(*arguments):
    """Return a command that runs in a process of its own."""
    command = [sys.executable, "-m", "sgdf", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def read_until(words, process):
    """Return what a process prints up to a line with these words."""
    seen = ""
    for line in process.stdout:
        seen += line
        if words in line:
            return seen
    raise AssertionError(f"{words!r} was never printed, but: {seen}")


def test_from_a_search_to_a_comparison(place):
    shown = sgdf("tune", "mine.toml", "--trials", 3, "--dry-run")
    assert re.search(r"sgdf +lr from 0.01 to 100", shown)
    assert re.search(r"sgd +momentum=0.5 +lr from 0.01 to 1\b", shown)
    assert "2 optimizers, 3 trials of up to 2 epochs for each (tpe, seed 2)" in shown
    assert "for a few seconds: loading, 1 s of training" in shown
    assert "0 of 6 trials are done in results/mine-tune; the others take up to" in shown
    assert not (place / "results").exists()

    done = sgdf("tune", "mine.toml", "--trials", 3)
    assert "0 of 6 trials are done in results/mine-tune" in done
    assert re.search(r"\[6/6\] sgd trial 2, lr=\S+: validation accuracy 0\.\d+", done)
    assert "\nvalidation accuracy, larger is better\n" in done
    assert re.search(r"^optimizer +best setting +validation +finished", done, re.M)
    assert re.search(r"^sgd +lr=\S+ +0\.\d+ +3 ", done, re.M)
    assert "wrote results/mine-tune/mine-tuned.toml" in done
    assert "Next: sgdf run results/mine-tune/mine-tuned.toml" in done

    again = sgdf("tune", "mine.toml", "--trials", 3)
    assert "6 of 6 trials are done" in again
    assert "begins" not in again

    best = json.loads(Path("results/mine-tune/search.json").read_text())["optimizers"]
    for run in load("results/mine-tune/mine-tuned.toml").runs:
        record = best[run.optimizer.name]
        options = record["trials"][record["best"]]["options"]
        assert run.optimizer.options["lr"] == options["lr"]
        assert run.optimizer.options.get("momentum") in (None, 0.5)
    assert "4 finished" in sgdf("run", "results/mine-tune/mine-tuned.toml")
    assert "sgdf" in sgdf("report", "results/mine-tune")


@pytest.fixture
def said_by_optuna():
    """Return what Optuna writes into its log, which it does in a new process."""
    level, logger, written = optuna.logging.get_verbosity(), logging.getLogger("optuna"), StringIO()
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    yield written
    optuna.logging.set_verbosity(level)
    logger.removeHandler(handler)


@pytest.mark.parametrize("option", [[], ["--dry-run"]])
def test_optuna_adds_no_lines_of_its_own(place, said_by_optuna, option):
    command = ["tune", "mine.toml", "--trials", 1, "--optimizer", "sgd"]
    sgdf(*command)
    optuna.logging.set_verbosity(optuna.logging.INFO)
    assert "1 of 1 trials are done in results/mine-tune" in sgdf(*command, *option)
    assert said_by_optuna.getvalue() == ""


def test_trials_of_another_process_are_left_to_it(place, monkeypatch):
    command = ["tune", "mine.toml", "--trials", "1", "--optimizer", "sgd"]
    command += ["--set", "train.epochs=1"]
    monkeypatch.setenv("SGDF_TEST_DELAY", "1.5")
    other = start(*command)
    read_until("begins", other)
    assert "1 trial is running in another process." in sgdf(*command)
    other.communicate(timeout=60)
    assert "mine-tuned.toml" in sgdf(*command)


def test_trials_made_with_another_source_are_mentioned(place, monkeypatch):
    command = ("tune", "mine.toml", "--trials", 1)
    sgdf(*command)
    assert "another version" not in sgdf(*command)
    monkeypatch.setattr("sgdf.bench.jobs.provenance.source_digest", lambda target: "another")
    assert "2 of the runs done had another version" in sgdf(*command)


def test_another_search_in_the_same_folder_is_refused(place):
    sgdf("tune", "mine.toml", "--trials", 1)
    output = sgdf("tune", "mine.toml", "--trials", 1, "--set", "train.epochs=3", code=2)
    assert "results/mine-tune holds a search with another train.epochs, 2 instead of 3" in output
    shown = sgdf("tune", "mine.toml", "--trials", 2, "--dry-run")
    assert "2 of 4 trials are done in results/mine-tune; the others take up to" in shown


def test_workers_and_other_processes_share_it(place):
    assert "[4/4]" in sgdf("tune", "mine.toml", "--trials", 2, "--workers", 2)
    assert "begins" not in sgdf("tune", "mine.toml", "--trials", 2)


def test_the_file_may_say_how(place):
    text = SPEC.replace(
        "[task]", '[search]\ntrials = 2\nsampler = "random"\nseeds = [8, 9]\n[task]'
    )
    (place / "mine.toml").write_text(text)
    assert "2 trials of up to 2 epochs for each (random, seeds 8, 9)" in sgdf(
        "tune", "mine.toml", "--dry-run"
    )
    shown = sgdf("tune", "mine.toml", "--dry-run", "--trials", 3, "--sampler", "tpe")
    assert "3 trials of up to 2 epochs for each (tpe, seeds 8, 9)" in shown


def test_optimizers_by_name_in_the_file_or_not(place):
    shown = sgdf("tune", "mine.toml", "--dry-run", "--optimizer", "sgd", "--optimizer", "lion")
    assert re.search(r"^sgd +momentum=0.5", shown, re.M)
    assert re.search(r"^lion ", shown, re.M)
    assert not re.search(r"^sgdf ", shown, re.M)
    everything = sgdf("tune", "mine.toml", "--dry-run", "--optimizer", "all")
    assert f"{len(ALL)} optimizers" in everything


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch.toml"], "nosuch.toml: no such file"),
        (["mine.toml", "--sampler", "best"], "mine.toml: search.sampler = 'best': must be one of"),
        (["mine.toml", "--optimizer", "nosuch"], "optimizer 'nosuch'"),
        (["mine.toml", "--sampler", "grid", "--optimizer", "sgd"], "a range is no grid"),
        (["mine.toml", "--storage", "nonsense"], "--storage: cannot be opened"),
        (["mine.toml", "--set", "protocol=paper"], "holds back no data to choose by"),
        (["mine.toml", "--set", "train.batch_size=[8, 16]"], "train.batch_size: is a list"),
        (["mine.toml", "--set", "name=../x"], "names a folder"),
        (["mine.toml", "--out", "mine.toml/x"], "cannot write mine.toml/x"),
    ],
)
def test_mistakes_are_named_in_a_line(place, arguments, message):
    output = sgdf("tune", *arguments, code=2)
    assert message in output
    assert "Traceback" not in output
    assert not (place / "results").exists() or "--storage" in arguments


def test_an_edge_is_pointed_out(place):
    grid = ["--sampler", "grid", "--trials", 3]
    grid += ["--set", "optimizer.search={lr = [1e-6, 1e-5, 0.1]}"]
    output = sgdf("tune", "mine.toml", "--optimizer", "sgd", *grid)
    assert (
        "sgd: the best lr is at the edge of the search space; a better value may lie beyond. Widen "
        "[optimizer.search]."
    ) in output
    assert "lr at the edge" in Path("results/mine-tune/mine-tuned.toml").read_text()


def test_failures_are_shown_and_tried_again(place, monkeypatch):
    arguments = ["tune", "mine.toml", "--trials", 2, "--optimizer", "sgd"]
    arguments += ["--set", "task.name=bench_tasks:Raising"]
    output = sgdf(*arguments, code=1)
    assert "sgd: 2 failed; --retry tries them again." in output
    assert "the cat is on the keyboard" in output
    assert not Path("results/mine-tune/mine-tuned.toml").exists()
    monkeypatch.setenv("SGDF_TEST_CALM", "1")
    assert "begins" not in sgdf(*arguments, code=1)
    assert "mine-tuned.toml" in sgdf(*arguments, "--retry")


def test_a_range_test(place):
    output = sgdf("tune", "mine.toml", "--range-test", "--optimizer", "sgd")
    assert re.search(r"^sgd +\S+ +\S+ +\d+", output, re.M)
    assert "wrote results/mine-range/range.png" in output
    assert "test accuracy" not in output
    (folder,) = Store("results/mine-range").folders()
    assert folder.progress().has_result
    assert "begins" not in sgdf("tune", "mine.toml", "--range-test", "--optimizer", "sgd")


def test_interrupting_saves_and_the_same_command_resumes(place, monkeypatch):
    monkeypatch.setenv("SGDF_TEST_DELAY", "0.05")
    command = ["tune", "mine.toml", "--trials", "2", "--set", "optimizer.lr=0.1"]
    process = start(*command)
    seen = read_until("validation accuracy", process)
    os.kill(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130, seen + rest
    assert "Stopped; run the same command again to resume." in rest
    assert "unfinished: run the same command again to resume." in rest
    monkeypatch.delenv("SGDF_TEST_DELAY")
    done = sgdf(*command)
    assert not re.search("^0 of 4 trials are done", done, re.M)
    assert "wrote results/mine-tune/mine-tuned.toml" in done


def test_a_moved_folder_is_resumed(place):
    arguments = ["tune", "mine.toml", "--optimizer", "sgd", "--set", "train.epochs=1"]
    sgdf(*arguments, "--trials", 2)
    Path("results").rename("moved")
    done = sgdf(*arguments, "--trials", 4, "--out", "moved/mine-tune")
    assert "2 of 4 trials are done in moved/mine-tune" in done
    assert done.count("begins") == 2
    Path("link").symlink_to("moved")
    again = sgdf(*arguments, "--trials", 4, "--out", "link/mine-tune")
    assert "4 of 4 trials are done in link/mine-tune" in again
    assert "begins" not in again


@pytest.mark.parametrize("name", ["search.journal", "search/id", "search.json"])
def test_a_damaged_file_of_a_search_is_named(place, name):
    arguments = ["tune", "mine.toml", "--trials", 1, "--optimizer", "sgd"]
    arguments += ["--set", "train.epochs=1", "--out", "store"]
    sgdf(*arguments)
    path = Path("store", name)
    whole = path.read_bytes()
    path.write_bytes(b"\xff" + whole[1:])
    for option in ([], ["--dry-run"]):
        output = sgdf(*arguments, *option, code=2)
        assert re.search(rf"^sgdf: \S*{path}: ", output, re.M)
        assert "runs of all trials are in store/runs" in output or "No trial is lost" in output
    path.write_bytes(whole)
    assert "1 of 1 trials are done" in sgdf(*arguments)


@pytest.mark.parametrize("name", bundled_searches())
def test_bundled_searches_are_in_order(name, tmp_path):
    search = read_search(load_document(name), store=tmp_path, storage="")
    assert search.name == name
    few = {
        "bccd-search": 5,
        "cifar-search": 10,
        "cifar10-small-search": 6,
        "cifar100-small-search": 6,
        "dit-digits-search": 7,
        "gain-ablation-cifar-search": 3,
        "gain-ablation-characters-search": 3,
        "ptb-search": 10,
        "ptb-small-search": 6,
        "sit-digits-search": 4,
        "vit-search": 1,
        "wgan-small-search": 5,
    }
    assert len(search.candidates) == few.get(name, len(ALL))
    assert search.problem["about"]
    three, one = ("cifar", "gain-ablation-cifar", "ptb", "vit"), ("bccd", "dit", "sit", "wgan")
    seeds = 3 if name.startswith(three) else 1 if name.startswith(one) else 5
    assert len(search.seeds) == seeds


def test_a_file_with_parts_is_refused(place):
    (place / "parts.toml").write_text(
        '[task]\nname = "logistic"\n[[part]]\noptimizer = { name = "sgdf" }\n'
    )
    for more in ((), ("--optimizer", "sgd"), ("--range-test",)):
        said = " ".join(sgdf("tune", "parts.toml", *more, code=2).split())
        assert "[[part]]: a search has one grid; give each part a file of its own" in said
