"""A report as Markdown, LaTeX and CSV: nothing in a run can break it."""

import csv
import io
import json
import math
import re

import pytest

from made_runs import HOSTILE
from sgdf.bench.report.sample_cells import interval_cell, mean_cell
from sgdf.bench.report.statistics import Sample
from sgdf.bench.report.write import Report
from sgdf.present import formats
from sgdf.present.table import Cell, Table, number_cell


def parsed(markdown):
    """Return the rows of a Markdown table, unescaped."""
    lines = [line for line in markdown.split("\n") if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[re.sub(r"\\(.)", r"\1", cell.strip()) for cell in row] for row in cells]


@pytest.mark.parametrize("name", HOSTILE)
def test_text_is_text_in_markdown_latex_and_csv(name):
    table = Table("t", "section", name, name, (name, "y"), ((Cell(name), number_cell(-1.5)),))
    seen = formats.one_line(name)
    assert parsed(formats.markdown(table))[2] == [seen, "-1.5"]
    assert not re.search(r"(?<!\\)<", formats.markdown(table))
    latex = formats.latex(table)
    assert latex.count(r"\\" + "\n") == 2
    assert "$-$1.5" in latex
    assert not re.search(r"\\\\\s*\[", latex)
    assert len(re.findall(r"(?<!\\)[&]", latex)) == 2
    body = latex.replace("tab:t", "").replace("{!}{%", "")
    assert not re.search(r"(?<!\\)[%#_]", body)
    assert r"\input" not in latex
    (header, row) = csv.reader(io.StringIO(formats.comma_separated(table)))
    assert header[0].lstrip("'") == seen
    assert row == [f"'{seen}" if seen[0] in "=+-@" else seen, "-1.5"]


def test_csv_has_no_words_among_its_numbers():
    rows = ((number_cell(1.0),), (Cell("missed", math.inf),))
    text = formats.comma_separated(Table("t", "", "", "", ("steps",), rows))
    assert text.splitlines() == ["steps", "1.0", '""']


def test_csv_has_the_numbers_behind_a_cell():
    cells = (Cell("a"), mean_cell(Sample((1.0, 2.0))), interval_cell(Sample((1.0, 2.0))))
    empty = (Cell("b"), mean_cell(Sample(())), interval_cell(Sample(())))
    table = Table("t", "", "", "", ("name", "loss", "95 %"), (cells, empty))
    rows = list(csv.DictReader(io.StringIO(formats.comma_separated(table))))
    assert float(rows[0]["loss sd"]) == pytest.approx(math.sqrt(0.5))
    assert float(rows[0]["95 % low"]) == pytest.approx(Sample((1.0, 2.0)).interval[0])
    assert rows[1]["loss mean"] == ""


def test_every_form_is_written(written):
    _, folder = written
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    figures = ["curves-seconds-0", "curves-steps-0", "curves-seconds-1", "curves-steps-1",
               "profile", "rates-0", "rates-1", "results-0", "results-1"]  # fmt: skip
    tables = ["comparisons-0", "comparisons-1", "profile", "results-0", "results-1",
              "settings-0", "settings-1", "target-0", "target-1", "trouble"]  # fmt: skip
    assert names == sorted(
        ["index.html", "report.md", "results.json", "runs.csv", "tables.tex"]
        + [f"figures/{name}.{kind}" for name in figures for kind in ("png", "pdf")]
        + [f"tables/{name}.csv" for name in tables]
    )
    for figure_path in (folder / "figures").iterdir():
        kind = {".png": b"\x89PNG", ".pdf": b"%PDF"}[figure_path.suffix]
        assert figure_path.read_bytes().startswith(kind)


def test_markdown_names_only_figures_that_exist(written):
    _, folder = written
    named = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (folder / "report.md").read_text())
    assert len(named) == 9
    assert all((folder / path).exists() for path in named)


def test_runs_csv_has_every_run(written):
    report, folder = written
    rows = list(csv.DictReader(io.StringIO((folder / "runs.csv").read_text())))
    assert {row["run"] for row in rows} == {run.key for run in report.findings.runs}
    row = next(
        r for r in rows if r["optimizer"] == "sgdf" and r["lr"] == "0.1" and r["seed"] == "2"
    )
    assert float(row["test accuracy"]) == pytest.approx(0.906)
    assert row["epoch"] == "3"


def test_results_json_has_every_setting_and_no_nan(written):
    report, folder = written
    text = (folder / "results.json").read_text()
    problems = json.loads(text, parse_constant=pytest.fail)
    assert text == json.dumps(problems, indent=1) + "\n"
    assert [problem["problem"] for problem in problems] == [
        p.name for p in report.findings.problems
    ]
    for record, problem in zip(problems, report.findings.problems, strict=True):
        assert record["problem"] == problem.name
        assert record["largest is best"] is True
        first = [s["optimizer"]["name"] for s in record["settings"] if s["shown first"]]
        assert sorted(first) == sorted(setting.optimizer for setting in problem.headline)
        for entry, setting in zip(record["settings"], problem.settings, strict=True):
            name = f"test {problem.metric}"
            if name in entry["figures"]:
                sample = setting.sample("test", problem.metric)
                assert entry["figures"][name]["mean"] == pytest.approx(sample.mean)
                assert list(entry["figures"][name]["by seed"].values()) == list(sample.values)
            assert entry["lost runs"] == sum(run.lost for run in setting.runs)


def test_the_same_runs_make_the_same_report(filled_store, written, tmp_path):
    _, folder = written
    Report.of([filled_store]).write(tmp_path)
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*.*"))
    assert len(paths) == 33
    for path in paths:
        assert (folder / path).read_bytes() == (tmp_path / path).read_bytes()
