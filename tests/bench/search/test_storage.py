"""Optuna's storage: nothing is lost, even if a process dies while it writes."""

import os
import signal
import subprocess
import sys
from unittest import mock

import optuna
import pytest

from sgdf.bench.errors import SpecError, StoreError
from sgdf.bench.search.storage import absolute_url, journal_url, open_storage

WRITER = """
import optuna, sys
from sgdf.bench.search.storage import open_storage
optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.load_study(storage=open_storage(sys.argv[1]), study_name="study")
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    study.tell(study.ask(), 1.0)
"""
HOLDER = """
import sys, time
from pathlib import Path
from sgdf.bench.store import lock
with lock.wait_for(Path(sys.argv[1] + ".lock")):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "search.journal"


def study_at(path):
    storage = open_storage(journal_url(path))
    return optuna.create_study(storage=storage, study_name="study", load_if_exists=True)


def test_several_processes_write_at_once(path):
    study = study_at(path)
    command = [sys.executable, "-c", WRITER, journal_url(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    writers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    assert [writer.stdout.readline() for writer in writers] == [b"ready\n"] * 2
    for writer in writers:
        writer.stdin.write(b"begin\n")
        writer.stdin.flush()
    for _ in range(10):  # and this process is the third
        study.tell(study.ask(), 1.0)
    for writer in writers:
        writer.communicate(timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0]
    trials = study_at(path).trials
    assert sorted(trial.number for trial in trials) == list(range(30))
    assert {trial.value for trial in trials} == {1.0}


@pytest.mark.parametrize("length", [10, 10_000])
def test_an_incomplete_last_line_is_removed(path, length):
    study = study_at(path)
    study.tell(study.ask(), 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 6, "rest": "' + b"x" * length)
    again = study_at(path)
    assert len(again.trials) == 1
    again.tell(again.ask(), 2.0)
    assert path.read_bytes().startswith(whole)
    assert [trial.value for trial in study_at(path).trials] == [1.0, 2.0]


def test_a_journal_of_one_incomplete_line_becomes_empty(path):
    path.parent.mkdir()
    path.write_bytes(b'{"op')
    assert study_at(path).trials == []


def test_a_process_that_dies_with_the_lock_keeps_no_other_from_writing(path):
    study = study_at(path)
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    study.tell(study.ask(), 1.0)
    assert len(study_at(path).trials) == 1


def test_a_database_can_be_the_storage(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    study = optuna.create_study(storage=open_storage(url), study_name="study")
    study.tell(study.ask(), 1.0)
    again = optuna.load_study(storage=open_storage(url), study_name="study")
    assert len(again.trials) == 1


def test_relative_paths_are_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_url("journal:///x.journal") == journal_url(tmp_path / "x.journal")
    assert absolute_url("sqlite:///x.db") == f"sqlite:///{tmp_path / 'x.db'}"
    for url in ("journal:////a/b", "sqlite:////a/b", "postgresql://me@host/x", "sqlite:///"):
        assert absolute_url(url) == url


def test_later_errors_of_the_storage_are_store_errors(path, monkeypatch):
    study = study_at(path)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
        with pytest.raises(StoreError, match=rf"cannot write {path}: No space left"):
            study.ask()


def test_a_journal_that_cannot_be_opened_is_not_locked_for_good(path):
    study, aside = study_at(path), path.with_name("aside")
    path.rename(aside)
    with pytest.raises(StoreError):
        study.ask()
    aside.rename(path)
    study.tell(study.ask(), 1.0)  # which would wait forever for a lock that is still held
    assert [trial.value for trial in study_at(path).trials] == [1.0]


@pytest.mark.parametrize(
    "url", ["nonsense", "", "nosuchdatabase://here/x", "sqlite:////no/such/folder/x.db"]
)
def test_a_url_that_cannot_be_opened_is_refused(url):
    with pytest.raises(SpecError, match=r"--storage: cannot be opened: .*; allowed: journal:///"):
        open_storage(url)
