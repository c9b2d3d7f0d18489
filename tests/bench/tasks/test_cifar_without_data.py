"""What happens where CIFAR's files are missing, move or vanish."""

import json
import os
import shutil
import sys
import threading

import pytest
from typer.testing import CliRunner

from bench_tasks import run_of
from kept_runs import do
from made_data import NOWHERE
from sgdf.bench.errors import DataError
from sgdf.bench.jobs.job import job_line, read_job
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks.assets import data_folder
from sgdf.bench.tasks.cifar.data import CIFAR10
from sgdf.bench.tasks.cifar.networks import NETWORKS
from sgdf.bench.tasks.cifar.task import Cifar10
from sgdf.cli import app


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder where commands are given that change nothing elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))  # and what --data sets is undone
    return tmp_path


def sgdf(*arguments, code=0):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output + repr(result.exception)
    assert "Traceback" not in result.output
    return " ".join(result.output.split())


FEW = ("--set", "seed=0", "--set", "task.network=vgg11", "--set", "task.name=cifar10")


def test_missing_data_are_told_of_before_any_run_begins(place, data):
    shutil.rmtree(data)
    for options, folder in (([], data), (["--data", "elsewhere"], place / "elsewhere")):
        output = sgdf("run", "cifar", *FEW, *options, code=2)
        assert f"CIFAR-10: {folder}/cifar-10-batches-bin lacks data_batch_1.bin" in output
        assert f"Get {NOWHERE} (SHA-256 {CIFAR10.archive.sha256})" in output
        assert f"unpack it in {folder}; or name another folder with --data FOLDER" in output
        assert not (place / "results").exists()


def test_a_search_without_its_data_does_not_begin(place, data):
    shutil.rmtree(data)
    output = sgdf("tune", "cifar-search", "--data", "elsewhere", code=2)
    assert f"CIFAR-10: {place / 'elsewhere'}/cifar-10-batches-bin lacks" in output
    assert not (place / "results").exists()


@pytest.mark.parametrize("levels", ["too high", "too deep", "beside", "two too high"])
def test_a_folder_near_the_data_is_not_downloaded_to(levels, place, data, capfd):
    (place / "far").mkdir()
    data.rename(place / "far/data")
    (place / "far/data/empty").mkdir()
    given = {
        "too high": "far",
        "too deep": "far/data/cifar-10-batches-bin",
        "beside": "far/data/empty",
        "two too high": ".",
    }[levels]
    before = sorted(place.rglob("*"))
    output = sgdf("run", spec(place), "--data", given, code=2)
    found = f"did you mean --data {place / 'far/data'}?" in output
    assert found is (levels != "two too high")
    if found:
        assert "Downloading" not in output
        assert "Get " not in output
        assert [path for path in sorted(place.rglob("*")) if path != place / "mine.toml"] == before


def test_files_in_a_folder_of_another_name_are_found(place, data):
    (data / "cifar-10-batches-bin").rename(place / "images")
    output = sgdf("run", spec(place), "--data", "images", code=2)
    assert f"rename it to cifar-10-batches-bin, and say --data {place}" in output


def test_a_folder_that_does_not_exist_is_not_made(place, data):
    output = sgdf("run", spec(place), "--data", "typo", code=2)
    assert f"there is no folder {place / 'typo'}; make it first" in output
    assert "Downloading" not in output
    assert not (place / "typo").exists()


@pytest.mark.parametrize("command", [("run", "cifar"), ("tune", "cifar-search")])
def test_a_dry_run_without_data_says_so_once(command, place, data):
    shutil.rmtree(data)
    data.mkdir()
    output = sgdf(*command, "--dry-run", code=2)
    assert output.count("Downloading") == output.count("Get ") == 1
    assert all(sha256 in output for sha256 in Cifar10.data_set.archive.files.values())


def test_a_task_that_cannot_be_made_leaves_no_runs_behind(place, data, monkeypatch):
    def fails(classes, width):
        raise MemoryError("too wide")

    monkeypatch.setitem(NETWORKS, "resnet8", fails)
    output = sgdf("run", spec(place), code=2)
    assert "task 'cifar10': MemoryError: too wide" in output
    assert not (place / "results").exists()


def spec(place):
    path = place / "mine.toml"
    path.write_text(
        '[task]\nname = "cifar10"\nnetwork = "resnet8"\nwidth = 0.1\ntrain_images = 24\n'
        "validation_images = 16\n[train]\nepochs = 2\nbatch_size = 8\nthreads = 1\nlog_every = 1\n"
        '[optimizer]\nname = ["sgdf", "sgd"]\nlr = 0.1\n'
    )
    return path


def test_data_are_found_where_the_command_line_says(place, data):
    data.rename(place / "moved")
    sgdf("run", spec(place), code=2)
    assert "2 finished" in sgdf("run", spec(place), "--data", "moved")
    assert data_folder() == place / "moved"


def test_finished_runs_need_no_data(place, data):
    sgdf("run", spec(place))
    shutil.rmtree(data)
    assert "2 runs, 2 done" in sgdf("run", spec(place))
    more = sgdf("run", spec(place), "--set", "seed=[0, 1]", code=2)
    assert "lacks data_batch_1.bin" in more


@pytest.mark.usefixtures("publishing_at_once")
@pytest.mark.parametrize(("steps", "left"), [(0, State.WAITING), (2, State.PAUSED)])
def test_a_run_whose_data_vanish_waits_for_them(steps, left, place, data):
    plan = Plan(resolve_machine(load(spec(place)), threads=1).runs[:1], place / "store")
    plan.prepare()
    (run,) = plan.runs
    if steps:
        do(run, Store(plan.store), stop_after=steps)
    data.rename(place / "away")
    events = []
    plan.work(lambda key, event: events.append(event), threading.Event())
    assert events[-1]["event"] == "end"
    assert events[-1]["state"] == "paused"
    assert "lacks data_batch_1.bin" in events[-1]["line"]
    folder = Store(plan.store).folder(run.key)
    assert folder.state() is left
    assert folder.failure() is None
    with pytest.raises(DataError):
        plan.prepare()
    assert not data.exists()
    (place / "away").rename(data)
    plan.prepare()
    plan.work(lambda key, event: None, threading.Event())
    assert folder.state() is State.FINISHED


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_data_folder_needs_a_name(command, place):
    assert "a folder needs a name" in sgdf(command, "cifar", "--data", "", code=2)
    assert os.environ["SGDF_DATA"] == str(place / "data")


def test_a_worker_finds_the_data_where_its_starter_does(place, data, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("SGDF_DATA", "relative")
    plan = Plan((run_of(),), place / "store")
    line = job_line("sgdf.bench.jobs.plan:Plan.from_table", json.loads(plan.as_json()))
    assert json.loads(plan.as_json())["data"] == str(place / "relative")
    monkeypatch.delenv("SGDF_DATA")
    monkeypatch.chdir("/")
    assert read_job(line).keys == plan.keys
    assert data_folder() == place / "relative"
    monkeypatch.setenv("SGDF_DATA", "/own")
    read_job(line)
    assert os.environ["SGDF_DATA"] == "/own"
