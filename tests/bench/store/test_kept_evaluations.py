"""What unfinished evaluations keep: one file for each part, as written or put aside."""

import os

import pytest

from sgdf.bench.store.kept_evaluations import KeptEvaluations


@pytest.fixture
def kept(tmp_path):
    return KeptEvaluations(tmp_path, [])


def contents(kept, step, part):
    return [content for _, content in kept.whole(step, part)]


def test_each_part_of_each_step_is_kept_apart(kept):
    for step, part, content in ((3, "a", b"1"), (3, "b/../c", b"2"), (4, "a", b"3")):
        kept.keep(step, part, content)
    assert contents(kept, 3, "a") == [b"1"]
    assert contents(kept, 3, "b/../c") == [b"2"]
    assert contents(kept, 4, "a") == [b"3"]
    assert contents(kept, 4, "b/../c") == []


def test_a_new_state_takes_the_place_of_the_one_before(kept, tmp_path):
    kept.keep(3, "a", b"1")
    kept.keep(3, "a", b"2")
    assert contents(kept, 3, "a") == [b"2"]
    assert len(os.listdir(tmp_path)) == 1


def test_of_two_that_a_kill_has_left_the_later_comes_first(kept, tmp_path, monkeypatch):
    for content in (b"1", b"2"):
        with monkeypatch.context() as killed:
            killed.setattr("sgdf.bench.store.summed_files.files.remove", lambda path: None)
            kept.keep(3, "a", content)
        for path in tmp_path.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    assert contents(kept, 3, "a") == [b"2", b"1"]


def test_a_damaged_file_is_put_aside(kept, tmp_path):
    kept.keep(3, "a", b"1")
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"x")
    assert contents(kept, 3, "a") == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".damaged"]
    (notice,) = kept.notices
    assert notice == f"what its evaluation kept, {path.name}, is damaged and was put aside"
    assert contents(kept, 3, "a") == []


def test_evaluations_that_are_over_are_dropped(kept, tmp_path):
    for step in (3, 4, 5):
        kept.keep(step, "a", b"1")
    (tmp_path / "evaluation-mine.pt").write_bytes(b"not ours")
    (tmp_path / "000000000003-0123456789abcdef.pt").write_bytes(b"a checkpoint")
    kept.drop(last=4)
    assert [contents(kept, step, "a") for step in (3, 4, 5)] == [[], [], [b"1"]]
    kept.drop()
    assert sorted(os.listdir(tmp_path)) == [
        "000000000003-0123456789abcdef.pt",
        "evaluation-mine.pt",
    ]
