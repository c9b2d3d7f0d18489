"""The commit of the working directory, which is looked up and never touched."""

import os
import shutil
import subprocess

import pytest

from sgdf.bench.jobs.provenance import commit


def git(*arguments):
    names = ["-c", "user.name=me", "-c", "user.email=me@here"]
    output = subprocess.run(["git", *names, *arguments], check=True, capture_output=True, text=True)
    return output.stdout.strip()


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_the_commit_is_found_and_the_index_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() == ""
    git("init", "-q")
    assert commit() == ""
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-q", "-m", "first")
    head, index = git("rev-parse", "HEAD"), tmp_path / ".git" / "index"
    os.utime("file", (1, 1))  # which makes git want to write the index again
    before = index.read_bytes()
    assert commit() == head
    assert len(head) == 40
    assert index.read_bytes() == before
    (tmp_path / "other").write_text("untracked")
    assert commit() == head
    (tmp_path / "file").write_text("two")
    assert commit() == f"{head}+"
