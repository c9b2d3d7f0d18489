"""``--help`` of every command."""

import re

import pytest
from typer.testing import CliRunner

from sgdf.cli import app

COMMANDS = ["", *sorted(command.callback.__name__ for command in app.registered_commands)]


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_have_no_type(command):
    """A flag takes no value, and the help shows none; an option with a value shows it."""
    done = CliRunner().invoke(app, [*command.split(), "--help"])
    assert done.exit_code == 0
    assert "bool" not in done.output
    assert re.search(r"--help\s+-h\s+Show this message", done.output)


def test_values_keep_their_type():
    """Only flags are without one."""
    done = CliRunner().invoke(app, ["run", "--help"])
    assert re.search(r"--workers\s+-w\s+<int", done.output)
