"""What the tests of the commands share."""

import pytest
from commands import SPEC


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder with a spec, where commands are given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(SPEC)
    return tmp_path
