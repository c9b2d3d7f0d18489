"""Runs that cannot be compared: of other sources, data or versions."""

import json

import pytest
from typer.testing import CliRunner

from made_runs import make_run
from sgdf.bench.report.comparability import obstacle, warnings_about
from sgdf.bench.report.findings import gather
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import Store
from sgdf.cli import app

BETTER = {"sgd": 0.6, "adam": 0.5}


def make_runs(store, environment_of, seeds=4):
    """Write runs of two optimizers; the function returns the environment for a name and a seed."""
    for optimizer, level in BETTER.items():
        for seed in range(seeds):
            value = level + 0.01 * seed + 0.001 * (seed % 2) * (optimizer == "sgd")
            make_run(
                store, [value], optimizer=optimizer, seed=seed,
                environment=environment_of(optimizer, seed),
            )  # fmt: skip


def problem_in(store):
    (problem,) = gather(Store(store).folders()).problems
    return problem


def warnings_in(store):
    return warnings_about(problem_in(store))


def comparison_in(store):
    """Return the only row of the table of comparisons, as texts."""
    (table,) = [
        table for table in Report.of([store]).document.tables if table.name == "comparisons-0"
    ]
    (row,) = table.rows
    return [cell.text for cell in row]


def test_runs_of_one_source_on_one_machine_need_no_warning(tmp_path):
    make_runs(tmp_path, lambda optimizer, seed: {"task source": "a", "data of test": "d of 9 rows"})
    assert warnings_in(tmp_path) == []
    assert comparison_in(tmp_path)[-1] == "sgd is better"


def test_runs_without_a_record_of_their_source_are_compared(tmp_path):
    make_runs(tmp_path, lambda optimizer, seed: {"task source": "a"} if seed else {})
    assert warnings_in(tmp_path) == []
    assert comparison_in(tmp_path)[-1] == "sgd is better"


def test_a_mean_over_two_versions_of_the_task_is_named(tmp_path):
    make_runs(
        tmp_path,
        lambda optimizer, seed: {
            "task source": "b" if (optimizer, seed) == ("sgd", 0) else "a"
        },
    )  # fmt: skip
    mixes, not_compared = warnings_in(tmp_path)
    assert mixes == (
        "sgd: its runs were made with 2 versions of the task's source, so its mean mixes them."
    )
    assert not_compared == (
        "Runs of the same seed were made with different versions of the task's source: they are "
        "not compared."
    )
    assert comparison_in(tmp_path)[-1] == (
        "sgd is better (1 seed left out: another version of the task's source)"
    )


def test_versions_that_all_optimizers_share_by_seed_are_compared(tmp_path):
    make_runs(tmp_path, lambda optimizer, seed: {"task source": str(seed // 2)})
    (mixes,) = warnings_in(tmp_path)
    assert mixes == (
        "adam and sgd: their runs were made with 2 versions of the task's source, so their means "
        "mix them."
    )
    assert comparison_in(tmp_path)[-1] == "sgd is better"


def test_settings_of_different_versions_are_not_compared(tmp_path):
    make_runs(tmp_path, lambda optimizer, seed: {"task source": optimizer})
    (line,) = warnings_in(tmp_path)
    assert "they are not compared" in line
    row = comparison_in(tmp_path)
    assert row[-1] == "not compared: another version of the task's source"
    assert row[2:5] == ["–"] * 3


@pytest.mark.parametrize(
    ("key", "values", "reason"),
    [
        ("data of test", ("a of 9 rows", "b of 9 rows"), "other test data"),
        ("data of train", ("a of 9 rows", "b of 9 rows"), "other training data"),
        ("data", ("a", "b"), "other data"),
        ("torch", ("2.13.0", "2.12.1"), "another version of torch"),
        ("torch", ("2.13.0", "2.13.1+cpu"), ""),
        ("sgdf", ("0", "1"), ""),
        ("optimizer source", ("a", "b"), ""),
        ("task source", ("a", ""), ""),
        ("imported source", ("a", "b"), "another version of the task's own modules"),
    ],
)
def test_what_makes_two_runs_incomparable(tmp_path, key, values, reason):
    make_runs(tmp_path, lambda name, seed: {key: values[name == "sgd"]}, seeds=1)
    assert obstacle(*problem_in(tmp_path).runs) == reason


@pytest.mark.parametrize(
    ("entry", "versions"),
    [
        ("torch", "versions of torch (2.12 and 2.13)"),
        ("imported source", "versions of the task's own modules"),
    ],
)
def test_other_versions_of_what_a_task_uses_are_named(tmp_path, entry, versions):
    make_runs(
        tmp_path,
        lambda name, seed: {entry: "2.12.1" if (name, seed) == ("sgd", 0) else "2.13.0"},
    )
    assert warnings_in(tmp_path) == [
        f"sgd: its runs were made with 2 {versions}, so its mean mixes them.",
        f"Runs of the same seed were made with different {versions}: they are not compared.",
    ]


def test_the_optimizers_source_and_sgdf_are_mentioned(tmp_path):
    make_runs(
        tmp_path, lambda name, seed: {"optimizer source": f"{name}{seed}", "sgdf": str(seed % 2)}
    )
    source, version = warnings_in(tmp_path)
    assert "were made with 4 versions of the optimizer's source" in source
    assert version == (
        "adam and sgd: their runs were made with 2 versions of sgdf (0 and 1), so their means mix "
        "them."
    )
    assert comparison_in(tmp_path)[-1] == "sgd is better"


def test_settings_of_one_optimizer_with_two_versions_of_it_are_mentioned(tmp_path):
    for lr in (0.1, 1.0):
        make_run(tmp_path, [0.5], lr=lr, environment={"optimizer source": str(lr)})
    assert warnings_in(tmp_path) == [
        "The settings of sgd were run with 2 versions of the optimizer's source."
    ]


def test_times_of_different_machines(tmp_path):
    make_runs(tmp_path, lambda name, seed: {"cpu": name})
    assert warnings_in(tmp_path) == [
        "The runs were made on 2 kinds of CPU (adam and sgd): their times cannot be compared."
    ]


def test_data_that_differ_by_seed_are_compared_and_said(tmp_path):
    make_runs(
        tmp_path,
        lambda name, seed: {
            f"data of {split}": f"{split}{seed} of 9 rows" for split in ("train", "test")
        },
    )
    assert warnings_in(tmp_path) == [
        "The training and test data differ from seed to seed: runs of the same seed are compared, "
        "and the spread over the seeds includes that of the data."
    ]
    assert comparison_in(tmp_path)[-1] == "sgd is better"


def test_data_that_differ_within_a_seed_are_not_compared(tmp_path):
    make_runs(tmp_path, lambda name, seed: {"data of test": f"{name}{seed} of 9 rows"})
    assert warnings_in(tmp_path) == [
        "Runs of the same seed had different test data: they are not compared."
    ]
    assert comparison_in(tmp_path)[-1] == "not compared: other test data"


def test_digests_of_another_machine_count_by_their_number_of_rows(tmp_path):
    def environment(name, seed):
        rows = 8 if (name, seed) == ("sgd", 0) else 9
        return {"cpu": name, "data of test": f"{name} of {rows} rows"}

    make_runs(tmp_path, environment)
    runs = problem_in(tmp_path).runs
    by_seed = {run.seed: run for run in runs if run.table["optimizer"]["name"] == "sgd"}
    adam = [run for run in runs if run.table["optimizer"]["name"] == "adam"]
    assert [obstacle(by_seed[run.seed], run) for run in adam] == ["other test data", "", "", ""]


def test_test_rows_that_were_trained_on(tmp_path):
    make_runs(tmp_path, lambda name, seed: {"test rows in train": f"{1200 + seed:,} of 2,000"})
    assert warnings_in(tmp_path) == [
        "1,203 of 2,000 test rows are also training rows: the test figures are too good."
    ]


def test_test_rows_that_were_not_trained_on(tmp_path):
    make_runs(tmp_path, lambda name, seed: {"test rows in train": "0 of 2,000"})
    assert warnings_in(tmp_path) == []


def test_only_attempts_that_the_weights_come_from_count(tmp_path):
    retried, resumed = (
        make_run(tmp_path, [0.5], seed=seed, environment={"task source": "old"}) for seed in (0, 1)
    )
    retried.add_environment({"task source": "new"})
    resumed.add_environment({"task source": "new", "resumed at step": "5"})
    by_seed = {run.seed: run for run in problem_in(tmp_path).runs}
    assert [len(by_seed[seed].attempts) for seed in (0, 1)] == [1, 2]
    (line,) = warnings_in(tmp_path)
    assert "2 versions of the task's source" in line


@pytest.mark.parametrize("content", ['[{"task source": ["x"]}]', '[{"data of test": 3}]', "[[]]"])
def test_an_environment_of_another_shape_is_no_obstacle_to_the_report(tmp_path, content):
    make_runs(tmp_path, lambda name, seed: {})
    for path in tmp_path.glob("runs/*/environment.json"):
        path.write_text(content)
    assert warnings_in(tmp_path) == []


def test_many_settings_are_counted_not_listed(tmp_path):
    for lr in range(1, 8):
        for seed in (0, 1):
            make_run(tmp_path, [0.5], lr=lr, seed=seed, environment={"task source": str(seed)})
    (line,) = warnings_in(tmp_path)
    assert line.startswith("sgd lr=1, sgd lr=2, sgd lr=3 and 4 others: their runs were made")


def test_warnings_are_at_the_top_of_every_format(tmp_path):
    make_runs(tmp_path / "store", lambda name, seed: {"data of test": f"{name} of 9 rows"})
    result = CliRunner().invoke(app, ["report", str(tmp_path / "store")])
    line = "Runs of the same seed had different test data: they are not compared."
    assert result.exit_code == 0
    assert line in result.output
    folder = tmp_path / "store/report"
    for name in ("index.html", "report.md", "tables.tex"):
        text = (folder / name).read_text()
        assert f"Warning: {line}" in text
        assert text.index(line) < text.index("Results")
    (problem,) = json.loads((folder / "results.json").read_text())
    assert problem["verdict"]["warnings"] == [line]


def test_a_warning_names_its_problem_among_several(tmp_path):
    for task in ("points", "lines"):
        make_run(tmp_path, [0.5], task=task, environment={"test rows in train": "1 of 9"})
    summary = Report.of([tmp_path]).document.summary
    assert any(line.startswith("Warning: points: 1 of 9 test rows") for line in summary)
