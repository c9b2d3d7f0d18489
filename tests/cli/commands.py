"""Commands as people type them, in this process."""

from typer.testing import CliRunner

from sgdf.cli import app

SPEC = """
about = "two runs"
[task]
name = "bench_tasks:Points"
[train]
epochs = 2
threads = 1
[optimizer]
name = ["sgdf", "sgd"]
lr = 0.1
"""


def sgdf(*arguments, code=0):
    """Return what a command prints, which has to end with an exit code."""
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output
