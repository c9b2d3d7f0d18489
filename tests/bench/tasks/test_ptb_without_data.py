"""What is said where the files of the Penn Treebank are missing, or too short for a batch."""

import pytest
from typer.testing import CliRunner

from sgdf.bench.tasks.ptb.data import PTB
from sgdf.cli import app


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder where commands are given, and where there are no data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path


def sgdf(*arguments, code):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output + repr(result.exception)
    return " ".join(result.output.split())


@pytest.mark.parametrize("command", [("run", "ptb-begin"), ("tune", "ptb-search")])
def test_missing_files_are_named_with_where_to_get_them(command, place):
    output = sgdf(*command, code=2)
    assert f"{place}/data/ptb lacks ptb.train.txt, ptb.valid.txt, ptb.test.txt. Nothing" in output
    assert "Nothing is downloaded, because the text is licensed for research only" in output
    assert f"simple-examples.tgz. Copy them to {place}/data/ptb; or name another folder" in output
    assert all(f"{sha256} {name}" in output for name, sha256 in PTB.files.items())
    assert not (place / "results").exists()


def test_a_folder_that_does_not_exist_is_not_offered_for_a_download(place):
    output = sgdf("run", "ptb-begin", "--data", "typo", code=2)
    assert f"lacks {', '.join(PTB.files)}: there is no folder {place / 'typo'}. Nothing" in output
    assert "make it first" not in output


def test_a_text_shorter_than_the_batch_makes_no_step(place, words):
    few = ("--set", "task.official=false", "--set", "train.batch_size=100000")
    output = sgdf("run", "ptb-begin", *few, code=1)
    assert "the training data do not make up one whole step" in output
    assert "RNN" not in output
