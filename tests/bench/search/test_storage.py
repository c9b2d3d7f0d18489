"""Where Optuna keeps trials: nothing is lost, whoever dies while writing."""

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
for _ in range(10):
    study.tell(study.ask(), 1.0)
"""
HOLDER = """
import sys, time
from pathlib import Path
from sgdf.bench.search.storage import RecordLock
RecordLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "search.journal"


def study_at(path):
    storage = open_storage(journal_url(path))
    return optuna.create_study(storage=storage, study_name="study", load_if_exists=True)


def test_several_processes_write_at_once(path):
    study_at(path)
    url = journal_url(path)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, url]) for _ in range(3)]
    assert [writer.wait(timeout=120) for writer in writers] == [0, 0, 0]
    assert sorted(trial.number for trial in study_at(path).trials) == list(range(30))


@pytest.mark.parametrize("length", [10, 10_000])
def test_a_line_that_was_cut_short_is_taken_away(path, length):
    study = study_at(path)
    study.tell(study.ask(), 1.0)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code": 6, "rest": "' + b"x" * length)
    again = study_at(path)
    assert len(again.trials) == 1
    again.tell(again.ask(), 2.0)
    assert path.read_bytes().startswith(whole)
    assert [trial.value for trial in study_at(path).trials] == [1.0, 2.0]


def test_a_journal_that_is_but_a_piece_of_a_line_begins_anew(path):
    path.parent.mkdir()
    path.write_bytes(b'{"op')
    assert study_at(path).trials == []


def test_who_dies_with_the_lock_keeps_nobody_from_writing(path):
    study = study_at(path)
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    study.tell(study.ask(), 1.0)
    assert len(study_at(path).trials) == 1


def test_a_database_will_do(tmp_path):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    study = optuna.create_study(storage=open_storage(url), study_name="study")
    study.tell(study.ask(), 1.0)
    again = optuna.load_study(storage=open_storage(url), study_name="study")
    assert len(again.trials) == 1


def test_paths_are_from_the_working_directory_and_stay_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_url("journal:///x.journal") == journal_url(tmp_path / "x.journal")
    assert absolute_url("sqlite:///x.db") == f"sqlite:///{tmp_path / 'x.db'}"
    for url in ("journal:////a/b", "sqlite:////a/b", "postgresql://me@host/x", "sqlite:///"):
        assert absolute_url(url) == url


def test_what_goes_wrong_later_is_told_like_a_disk_that_is_full(path, monkeypatch):
    study = study_at(path)
    monkeypatch.setattr("os.fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(StoreError, match=r"the storage of the trials: .*No space left"):
        study.ask()


@pytest.mark.parametrize(
    "url", ["nonsense", "", "nosuchdatabase://here/x", "sqlite:////no/such/folder/x.db"]
)
def test_what_cannot_be_opened_is_told_of(url):
    with pytest.raises(SpecError, match=r"--storage: cannot be opened: .*; allowed: journal:///"):
        open_storage(url)
