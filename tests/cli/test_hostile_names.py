"""Nothing that a file says reaches the terminal unescaped, whichever command reads it."""

import ast
import io
import json
import re
import tomllib

import pytest
import tomli_w
from commands import sgdf
from rich.text import Text

from locations import ROOT
from made_runs import begin, make_run, table_of
from sgdf.bench.spec.document import apply_changes
from sgdf.cli import progress
from sgdf.cli.console import PlainConsole, make_console, refuse, say, show
from sgdf.present.terminal import Column, Table

HOSTILE = "x[/]<b>[bold]y\x1b[2J\x1b]0;title\x07\x9b31m\r\n\u202ez\u200b\xad\ud800:smile:"
SHOWN = r"x[/]<b>[bold]y\x1b[2J\x1b]0;title\x07\x9b31m\r\n\u202ez\u200b\xad\ud800:smile:"
IN_TOML = HOSTILE.replace("\ud800", "")  # which TOML cannot hold
SHOWN_OF_TOML = SHOWN.replace(r"\ud800", "")
NOT_FOR_A_TERMINAL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")


def shown_by(*arguments, code=0):
    """Return what a command prints, which must have nothing that a terminal would obey."""
    output = sgdf(*arguments, code=code)
    assert not NOT_FOR_A_TERMINAL.search(output), repr(output)
    return output


@pytest.fixture
def hostile(place):
    """A store whose names, options, metrics and failures are hostile."""
    store = place / "results/mine"
    for seed in (0, 1):
        make_run(
            store,
            [0.5, 0.6],
            optimizer=IN_TOML,
            task=IN_TOML,
            lr=IN_TOML,
            seed=seed,
            metric=HOSTILE,
        )
    make_run(store, [0.5], optimizer="sgd", task=IN_TOML, seed=2)
    make_run(store, [0.1], optimizer=IN_TOML, task=IN_TOML, seed=3, diverged=4)
    failed = begin(store, table_of(optimizer=IN_TOML, task=IN_TOML, seed=4))
    failed.fail(f"RuntimeError: {HOSTILE}\n  in a second line {HOSTILE}")
    damaged = begin(store, table_of(optimizer=IN_TOML, task=IN_TOML, seed=5))
    (damaged.path / "result.json").write_text(json.dumps({HOSTILE: HOSTILE}))
    (store / "runs" / IN_TOML.replace("/", "")).mkdir()
    return store, failed


def test_status_escapes_what_is_not_for_a_terminal(hostile):
    store, failed = hostile
    output = shown_by("status", store)
    alone = shown_by("status", failed.path)
    assert r"in a second line x[/]<b>[bold]y\x1b[2J" in alone
    assert f"failed: {SHOWN_OF_TOML}" in output


def test_report_escapes_what_is_not_for_a_terminal(hostile):
    store, _ = hostile
    shown_by("report", store)
    page = (store / "report/index.html").read_text()
    assert "<b>" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize("key", ["optimizer.name", "task.name", "train.device", "schedule.name"])
@pytest.mark.parametrize("command", ["run", "tune"])
def test_messages_about_an_experiment_are_escaped(place, command, key):
    document = tomllib.loads((place / "mine.toml").read_text())
    document = apply_changes(document, {"optimizer.name": "sgd", key: IN_TOML})
    (place / "mine.toml").write_text(tomli_w.dumps(document))
    assert "[2J" in shown_by(command, "mine.toml", code=2)


def test_progress_and_notices_are_escaped():
    for is_terminal in (True, False):
        file = io.StringIO()
        console = PlainConsole(
            file=file, force_terminal=is_terminal, width=300, color_system=None, no_color=True
        )
        with progress.display(console, {"a": HOSTILE}, 2, 0) as screen:
            screen("a", {"event": "begin", "process": 1})
            row = {"kind": "epoch", "train": {HOSTILE: 0.5}}
            screen("a", {"event": "progress", "step": 1, "steps": 2, "row": row})
            if is_terminal:
                screen.progress.refresh()
            screen("a", {"event": "notice", "line": HOSTILE})
            screen("a", {"event": "end", "state": "failed", "line": HOSTILE})
            screen("b", {"event": "over", "name": HOSTILE, "line": HOSTILE})
        text = file.getvalue()
        assert f"{SHOWN}: failed: {SHOWN}" in text
        own = re.sub(r"\x1b\[(\?25[lh]|\d?[AK]|0m|1m)|\r", "", text)  # how bars are redrawn
        assert not NOT_FOR_A_TERMINAL.search(own), repr(own)


def test_lines_tables_titles_and_refusals_are_escaped(capsys):
    console = make_console()
    console.width = 400
    say(console, HOSTILE)
    table = Table([Column(HOSTILE)], title=HOSTILE)
    table.add_row(HOSTILE)
    console.rule(HOSTILE, align="left")
    show(console, [table, HOSTILE, Text(HOSTILE)])
    refuse(HOSTILE)
    written = capsys.readouterr()
    text = written.out + written.err
    assert not NOT_FOR_A_TERMINAL.search(text), repr(text)
    assert text.count(SHOWN) == 7  # but not in the text, whose line breaks stay


def test_commands_speak_through_the_console_alone():
    """A ``print`` or a console of rich's own would pass on what a file says."""
    allowed = {"console.py"}
    for path in (ROOT / "src/sgdf/cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            name = getattr(called, "id", getattr(called, "attr", ""))
            wrong = (isinstance(called, ast.Name) and name == "print") or name == "Console"
            assert not wrong or path.name in allowed, f"{path}:{node.lineno}"
