"""Tables on a terminal of 80 columns: a line for each setting, no line too long, nothing twice."""

import io
import itertools
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from made_runs import begin, make_run, table_of
from sgdf.bench.catalog.optimizers import OPTIMIZERS
from sgdf.bench.spec.bundled import bundled_experiments
from sgdf.bench.tasks import TASKS
from sgdf.cli import app
from sgdf.cli.console import PlainConsole
from sgdf.cli.show.analysis import terminal_table
from sgdf.cli.show.search import search_report
from sgdf.present.table import Cell
from sgdf.present.table import Table as DocumentTable
from sgdf.present.terminal import Column, Table, _cut_longest

TASK = "a_package.of_mine.with_tasks:AVeryLongNameOfATask"
OPTIMIZERS_TRIED = [
    "sgdf", "sgd", "adam", "adamw", "radam", "a_package.of_mine:AnOptimizerWithALongName",
]  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Runs of six optimizers with long options on a task with a long name; one of them failed."""
    place = tmp_path_factory.mktemp("results") / "store"
    for (i, name), lr, seed in itertools.product(
        enumerate(OPTIMIZERS_TRIED), (0.001234, 0.1), (0, 1, 2)
    ):
        spec = {"optimizer": name, "lr": lr, "seed": seed, "task": TASK}
        if (i, lr, seed) == (2, 0.1, 2):
            begin(place, table_of(**spec)).fail("RuntimeError: no")
        else:
            make_run(place, [0.5, 0.6 + 0.05 * i + 0.01 * seed], **spec)
    return place


def printed(*arguments, columns=80):
    """Return the lines that a command prints on a terminal of a width."""
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def table_under(lines, heading):
    """Return the lines of a table from its heading on, without the notes below it."""
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    below = ("A wider terminal", "failed: ", "0 of ", "Timing ")
    return [*itertools.takewhile(lambda line: line and not line.startswith(below), lines[start:])]


def test_status_has_a_line_for_each_setting(store):
    lines = printed("status", store)
    table = table_under(lines, TASK[:20])
    assert table[0].endswith("accuracy (%), larger is better")
    assert table[1].split() == ["setting", "runs", "validation", "test"]
    assert len(table) == 2 + 12
    assert max(map(cell_len, table)) <= 80
    for name in OPTIMIZERS_TRIED[:5]:
        assert sum(line.startswith(f"{name} ") for line in table) == 2
    (line,) = [line for line in table if "failed" in line]
    assert line.split()[:6] == ["adam", "lr=0.1", "2", "finished,", "1", "failed"]
    assert line.rstrip().endswith("70.50 ± 0.71")
    assert sum("accuracy" in line or TASK[:20] in line for line in table) == 1


def test_the_report_has_a_line_for_each_optimizer(store, tmp_path):
    lines = printed("report", store, "--out", tmp_path)
    table = table_under(lines, TASK[:20])
    assert table[0].endswith("accuracy (%), larger is better")
    assert len(table) == 2 + 6
    assert max(map(cell_len, table)) <= 80
    assert "test" in table[1]
    assert sum("accuracy" in line or TASK[:20] in line for line in table) == 1
    wide = table_under(printed("report", store, "--out", tmp_path, columns=300), TASK)
    assert len(wide[1].split("  ")) > len(table[1].split("  "))
    assert "state (bytes per parameter)" in wide[1]


def test_a_plan_has_a_line_for_each_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    optimizers = "".join(
        f'[[optimizer]]\nname = "{name}"\nlr = {lr}\nbetas = [[0.912345, 0.99912345]]\n'
        for name, lr in itertools.product(("sgdf", "filter-adam", "adam"), (0.001234, 0.1))
    )
    (tmp_path / "mine.toml").write_text(
        f'[task]\nname = "digits-mlp"\nhidden = 4\n[train]\nepochs = 1\n{optimizers}'
    )
    table = table_under(printed("run", "mine.toml", "--dry-run"), "digits-mlp")
    assert len(table) == 2 + 6
    assert max(map(cell_len, table)) <= 80


def test_a_search_has_a_line_for_each_optimizer():
    options = {"lr": 0.00123456, "betas": (0.912345, 0.99912345), "weight_decay": 0.000123456}
    optimizers = [
        SimpleNamespace(
            candidate=SimpleNamespace(name=name),
            best=SimpleNamespace(options=options, value=0.98765),
            count=lambda outcome: 15,
            epochs=150,
            at_edge=(),
            failed=0,
        )
        for name in OPTIMIZERS_TRIED
    ]
    metric = SimpleNamespace(name="accuracy", direction="larger is better", is_maximized=True)
    result = SimpleNamespace(optimizers=optimizers, metric=metric, at_work=0, left=0)
    (table,) = search_report(result)
    title, head, *lines = shown(table, 80)
    assert title == "validation accuracy, larger is better"
    assert head.split()[:4] == ["optimizer", "best", "setting", "validation"]
    for name, line in zip(OPTIMIZERS_TRIED, lines, strict=False):
        assert line.startswith(name[:12])
        assert "  lr=0.00123456 " in line
        assert "  0.9877  " in line
    assert lines[len(OPTIMIZERS_TRIED)].startswith("A wider terminal also shows: ")


@pytest.mark.parametrize(
    ("command", "names"),
    [("tasks", TASKS), ("optimizers", OPTIMIZERS), ("experiments", bundled_experiments())],
)
def test_lists_have_a_line_for_each_name(command, names):
    lines = printed(command)
    assert max(map(cell_len, lines)) <= 80
    for name in names:
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    assert lines[-1].endswith(f"sgdf {command} NAME")


def shown(table, width):
    console = PlainConsole(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue().splitlines()


def test_the_least_important_columns_are_left_out_first():
    table = Table([Column("name"), Column("value", "right", 1), Column("rest", rank=2)])
    table.add_row("a name", "1.0", "much more")
    assert shown(table, 40) == ["name    value  rest", "a name    1.0  much more"]
    narrow = shown(table, 16)
    assert narrow[:2] == ["name    value", "a name    1.0"]
    assert " ".join(map(str.strip, narrow[2:])) == "A wider terminal also shows: rest."
    assert shown(table, 8)[:2] == ["name", "a name"]


def test_a_text_without_room_keeps_its_start_and_its_end():
    table = Table([Column("setting"), Column("test", "right")])
    table.add_row("sgdf lr=0.1 betas=(0.9, 0.999) gamma=0.25", "98.5")
    table.add_row("漢字" * 20, "1")
    for width in range(20, 60):
        lines = shown(table, width)
        assert len(lines) == 3
        assert max(map(cell_len, lines)) <= width
    line = shown(table, 30)[1]
    assert line.startswith("sgdf lr=0.1")
    assert line.endswith("=0.25  98.5")


@pytest.mark.parametrize("narrowest", [8, 28])
def test_the_longest_columns_are_cut_as_if_one_by_one(narrowest):
    for widths in itertools.product((0, 7, 9, 29, 30, 41), repeat=3):
        expected = dict(enumerate(widths))
        for excess in range(1, sum(widths)):
            if max(expected.values()) > narrowest:
                expected[max(expected, key=expected.__getitem__)] -= 1
            assert _cut_longest(dict(enumerate(widths)), excess, narrowest) == expected


def test_a_very_long_text_is_cut_at_once():
    assert _cut_longest({0: 10**12, 1: 20}, 10**12 - 30, 8) == {0: 30, 1: 20}


def test_the_table_of_an_analysis_keeps_two_numbers_beside_long_names():
    cells = [Cell("sgdf " + "option=value " * 8), *(Cell("123.4 ± 5.6", 123.4) for _ in range(4))]
    columns = ("setting", "trace", "largest", "smallest", "error")
    table = DocumentTable("t", "", "Curvature", "", columns, (tuple(cells),))
    console = PlainConsole(width=60, file=io.StringIO())
    console.print(terminal_table(table))
    lines = console.file.getvalue().splitlines()
    assert lines[2].count("123.4 ± 5.6") >= 2
    assert max(map(len, lines)) <= 60
