"""Comparisons from Python: bundled tasks, classes, and training functions of a user's own."""

import csv
import json
import os
import signal
import subprocess
import sys
import types

import numpy as np
import pytest
import torch

import training_functions
from bench_tasks import Points
from locations import SUPPORT
from sgdf.bench import compare
from sgdf.bench.errors import SpecError, StoreError
from sgdf.bench.store.run_folder import Store

OPTIMIZERS = {"sgd": {"lr": [0.01, 0.1]}, "sgdf": {"lr": 1.0}}


def compare_quietly(task, optimizers=OPTIMIZERS, **options):
    """Compare without a word."""
    return compare(task, optimizers, **{"say": None, "threads": 1, **options})


@pytest.fixture
def store(tmp_path):
    """Return a folder for runs."""
    return tmp_path / "store"


def test_class_is_compared_and_finished_runs_are_not_done_again(store):
    """A second call answers from the store, and prints the same."""
    said = []
    options = {"seeds": 3, "epochs": 2, "out": store, "say": said.append}
    first = compare_quietly(Points, **options)
    assert said[0] == f"9 runs, 0 done, in {store}"
    assert [line.partition(" ")[0] for line in said[1:]] == [f"[{n}/9]" for n in range(1, 10)]
    assert all("test accuracy" in line for line in said[1:])
    second = compare_quietly(Points, **options)
    assert said[10:] == [f"9 runs, 9 done, in {store}"]
    assert str(first) == str(second)
    assert "sgdf" in str(first)
    assert "test accuracy" in str(first)


def test_result_covers_the_runs_of_the_call_alone(store):
    """Other runs of the store are not part of it."""
    compare_quietly(Points, seeds=2, epochs=1, out=store)
    later = compare_quietly(Points, {"adam": {"lr": 0.01}}, seeds=2, epochs=1, out=store)
    assert {row["optimizer"] for row in later.rows} == {"adam"}
    assert len(Store(store).folders()) == 8


def test_report_is_written_and_covers_the_runs(store):
    """The page is that of the command."""
    result = compare_quietly(Points, seeds=2, epochs=1, out=store, about="Blobs & <others>")
    page = result.write_report()
    assert page == store / "report" / "index.html"
    assert "sgdf" in page.read_text()
    assert Store(store).experiments() == {"bench_tasks-Points": "Blobs & <others>"}


def test_rows_become_a_data_frame_if_pandas_is_there(store, monkeypatch):
    """Pandas is asked for when it is needed, and not before."""
    result = compare_quietly(Points, {"sgd": {}}, seeds=1, epochs=1, out=store)
    frame = types.SimpleNamespace(DataFrame=lambda rows: ("frame", rows))
    monkeypatch.setitem(sys.modules, "pandas", frame)
    assert result.to_dataframe() == ("frame", result.rows)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"\.rows"):
        result.to_dataframe()


def test_rows_have_values_and_not_texts(store):
    """What a run does not have is None, a truth value is one, and a tuple is a tuple."""
    optimizers = {"sgd": {"nesterov": True}, "adam": {"betas": (0.8, 0.9)}}
    result = compare_quietly(Points, optimizers, seeds=1, epochs=1, out=store)
    adam, sgd = sorted(result.rows, key=lambda row: row["optimizer"])
    assert sgd["nesterov"] is True
    assert sgd["betas"] is None
    assert adam["betas"] == (0.8, 0.9)
    with (result.write_report().parent / "runs.csv").open() as file:
        rows = {row["optimizer"]: row for row in csv.DictReader(file)}
    assert rows["adam"]["momentum"] == ""
    assert rows["adam"]["betas"] == "[[0.8, 0.9]]"


def test_numbers_of_numpy_are_numbers(store):
    """As np.logspace and np.arange make them."""
    optimizers = {"sgd": {"lr": np.array([0.125, 0.25])}, "sgdf": {"lr": [np.float64(0.5)]}}
    result = compare_quietly(Points, optimizers, seeds=np.arange(1), epochs=1, out=store)
    assert sorted(row["lr"] for row in result.rows) == [0.125, 0.25, 0.5]


def test_notebook_shows_the_table(store, monkeypatch):
    """The representation is what print shows, as wide as the terminal."""
    result = compare_quietly(Points, {"sgd": {}}, seeds=1, epochs=1, out=store)
    assert repr(result) == str(result)
    for columns in (60, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        widest = max(map(len, str(result).splitlines()))
        assert (60 < widest <= 200) if columns == 200 else widest <= 60


def test_optimizers_are_given_in_several_ways(store):
    """Names, classes, tables, and tuples that are one value."""
    optimizers = [
        "sgdf",
        {"name": torch.optim.NAdam, "lr": [0.001, 0.01], "betas": (0.8, 0.9)},
        torch.optim.SGD,
    ]
    result = compare_quietly(Points, optimizers, seeds=[4], epochs=1, out=store)
    names = [(row["optimizer"], row["lr"], row["seed"]) for row in result.rows]
    assert sorted(names) == [
        ("sgdf", 0.5, 4),
        ("torch.optim:NAdam", 0.001, 4),
        ("torch.optim:NAdam", 0.01, 4),
        ("torch.optim:SGD", 0.001, 4),
    ]


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("digitz-mlp", {}, "digits-mlp"),
        (lambda make, seed: {}, {}, "top level"),
        (training_functions.takes_too_little, {}, r"train\(make_optimizer, seed\)"),
        (training_functions.train, {"epochs": 3}, "argument of the function"),
        (training_functions.train, {"schedule": "CosineAnnealingLR"}, "argument of the function"),
        (training_functions.train, {"options": {"epoch": 3}}, "epochs"),
        (Points, {"by_function": True}, "is a class"),
        (Points, {"optimizers": {"sgd": 0.1}}, "write {'lr': 0.1}"),
        (Points, {"workers": 0}, "at least 1"),
        (training_functions.train, {"protocol": "paper"}, "are possible"),
        (Points, {"epochs": 0}, "at least 1"),
    ],
)
def test_mistakes_are_refused_before_any_run(task, options, message, store):
    """The message says what is allowed."""
    with pytest.raises(SpecError, match=message):
        compare_quietly(task, **{"optimizers": OPTIMIZERS, "out": store, **options})
    assert not store.exists()


def test_function_is_compared_with_its_seeds(store):
    """The function is called once for each setting and seed, and its options are recorded."""
    training_functions.CALLS.clear()
    result = compare_quietly(training_functions.train, options={"epochs": 1}, out=store)
    assert sorted(training_functions.CALLS) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    row = result.rows[0]
    assert row["state"] == "finished"
    assert 0 <= row["test accuracy"] <= 1
    assert row["steps"] == 4
    assert row["parameters"] == 4 * 8 + 8 + 8 * 2 + 2
    table = Store(store).folder(result.keys[0]).table()
    assert table["task"] == {"name": "training_functions:train", "epochs": 1, "hidden": 8}
    assert table["train"] == {"by_function": True, "threads": 1}
    assert table["protocol"] == "last"
    assert "training_functions:train" in str(result)


def test_function_has_the_result_of_the_same_loop_without_the_bench(store):
    """Nothing that the bench does changes the training."""
    result = compare_quietly(training_functions.train, {"sgd": {"lr": 0.1}}, seeds=1, out=store)
    alone = training_functions.train(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), 0)
    assert result.rows[0]["test accuracy"] == pytest.approx(float(alone["accuracy"]), abs=1e-7)


def test_function_that_seeds_nothing_is_seeded(tmp_path, monkeypatch):
    """Its seeds differ, and each gives the same again, whatever was drawn before the call."""
    losses = []
    for name in ("first", "second"):
        result = compare_quietly(training_functions.draw, {"sgd": {}}, seeds=2, out=tmp_path / name)
        losses.append([row["test loss"] for row in result.rows])
        # A module that is imported for a run may draw numbers, too.
        monkeypatch.setattr(
            "sgdf.bench.jobs.run_function.provenance", lambda run: {"drawn": float(torch.rand(()))}
        )
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[0][1]


def test_function_that_yields_has_curves_and_a_choice_on_validation(store):
    """Each epoch is a row, and the protocol chooses among them."""
    result = compare_quietly(
        training_functions.train_by_epochs, seeds=2, out=store, protocol="validation"
    )
    folder = Store(store).folder(result.keys[0])
    rows = folder.rows()
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    best = max(rows, key=lambda row: row["validation"]["accuracy"])
    assert folder.result()["selected"]["epoch"] == best["epoch"]
    curves = result.report.document.plots
    assert any(plot.name.startswith("curves") for plot in curves)


def test_without_a_choice_every_setting_is_shown(store):
    """Under the protocol "last", both rates of SGD stand in the table."""
    text = str(compare_quietly(training_functions.train, seeds=2, out=store))
    assert "sgd lr=0.01" in text
    assert "sgd lr=0.1" in text


def test_metric_that_is_not_finite_is_a_divergence(store):
    """Such a run has a result, but no figures to compare."""
    result = compare_quietly(training_functions.lose, {"sgd": {}}, seeds=1, out=store)
    assert result.rows[0]["state"] == "diverged"


def test_declared_metric_is_compared_by(store):
    """A direction that no name tells is declared at the function."""
    result = compare_quietly(training_functions.earn_more, {"sgd": {}}, seeds=1, out=store)
    assert result.report.findings.problems[0].larger_is_better


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (training_functions.earn, {}, r"train\.metric = Metric"),
        (training_functions.use_another_optimizer, {}, "make_optimizer"),
        (training_functions.return_number, {}, "returned float, not metrics by name"),
        (training_functions.mix, {}, "'accuracy', which is no split"),
        (training_functions.train, {"protocol": "validation"}, "leave the protocol out"),
        (training_functions.abbreviate, {}, "none of 'test'"),
        (training_functions.name_splits, {}, "'val_acc', whose name says its split"),
        (training_functions.break_down, {}, "disk of the user's"),
    ],
)
def test_every_run_failing_raises_with_the_reason(function, options, message, store):
    """A comparison without a single result is an error."""
    with pytest.raises(RuntimeError, match=message):
        compare_quietly(function, {"sgd": {}}, seeds=1, out=store, **options)


def test_interrupted_function_starts_again(store, monkeypatch):
    """Ctrl-C stops it at its next step; a later call does it from the beginning."""
    said = []
    with monkeypatch.context() as patch:
        patch.setattr(training_functions, "before_steps", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            compare_quietly(
                training_functions.train, {"sgd": {}}, seeds=1, out=store, say=said.append
            )
    assert "no checkpoints" in said[1]
    result = compare_quietly(training_functions.train, {"sgd": {}}, seeds=1, out=store)
    assert result.rows[0]["state"] == "finished"


def test_function_that_catches_the_interruption_is_not_finished(store, monkeypatch):
    """A half-trained result would never be done again."""
    monkeypatch.setattr(training_functions, "before_steps", press_ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        compare_quietly(training_functions.catch_everything, {"sgd": {}}, seeds=1, out=store)
    (folder,) = Store(store).folders()
    assert folder.result() is None
    assert folder.rows() == []


def test_optimizer_that_is_made_anew_is_counted(store):
    """The first one takes no step."""
    result = compare_quietly(training_functions.make_twice, {"sgd": {}}, seeds=1, out=store)
    assert result.rows[0]["steps"] == 8
    assert result.rows[0]["parameters"] == 4 * 8 + 8 + 8 * 2 + 2


def test_wrong_metric_is_noticed_at_the_first_epoch(store):
    """Not after hours of training."""
    training_functions.CALLS.clear()
    with pytest.raises(RuntimeError, match=r"yield_late\.metric"):
        compare_quietly(training_functions.yield_late, {"sgd": {}}, seeds=1, out=store)
    assert training_functions.CALLS == [0]


def test_store_that_cannot_be_written_is_an_error(tmp_path):
    """A comparison without results is none."""
    (tmp_path / "store").write_text("in the way")
    with pytest.raises((StoreError, RuntimeError), match="store"):
        compare_quietly(Points, {"sgd": {}}, seeds=1, epochs=1, out=tmp_path / "store")


def test_nothing_that_a_terminal_obeys_is_printed(store):
    """An error message may come from anywhere."""
    said = []
    with pytest.raises(RuntimeError) as error:
        compare_quietly(training_functions.beep, {"sgd": {}}, seeds=1, out=store, say=said.append)
    assert "\x1b" not in str(error.value) + "".join(said)
    assert r"\x1b[31m" in said[1]


def press_ctrl_c():
    """Do what a person at the terminal does."""
    os.kill(os.getpid(), signal.SIGINT)


def test_equal_failures_of_the_first_runs_stop_the_rest(store):
    """One run of each optimizer shows that the function cannot work."""
    said = []
    with pytest.raises(RuntimeError, match=r"2 runs failed alike.*\n.*7 other runs were not begun"):
        compare_quietly(training_functions.return_number, seeds=3, out=store, say=said.append)
    assert len(said) == 3


def test_failed_runs_are_tried_if_that_is_asked_for(store):
    """Again by retry, and by keep_going those that were not begun."""

    def tried(failed, **options):
        said = []
        with pytest.raises(RuntimeError, match=f"{failed} runs failed alike"):
            compare_quietly(
                training_functions.return_number, seeds=3, out=store, say=said.append, **options
            )
        return len(said) - 1

    assert tried(2) == 2
    assert tried(2) == 0
    assert tried(2, retry=True) == 2
    assert tried(9, keep_going=True) == 7


def test_every_run_diverging_is_explained(store):
    """The result has no figures, so the lines say what to look at."""
    said = []
    compare_quietly(training_functions.lose, seeds=1, out=store, say=said.append)
    assert said[-2] == "Every run diverged."
    assert "its loss ended as a value that is not finite" in said[-1]


def test_changed_function_is_mentioned(store, monkeypatch):
    """Finished runs are not done again, but it is said that they are of another version."""
    compare_quietly(training_functions.train, {"sgd": {}}, seeds=2, out=store)
    monkeypatch.setattr(training_functions, "fit", lambda *arguments: [])
    with pytest.warns(UserWarning, match="2 finished runs of .* had another version"):
        again = compare_quietly(training_functions.train, {"sgd": {}}, seeds=2, out=store)
    assert str(again).startswith("2 finished runs of")


def test_mean_over_two_versions_is_printed_with_a_warning(store, monkeypatch):
    """The line is that of the report, and it comes before the table."""
    compare_quietly(training_functions.train, {"sgd": {}}, seeds=1, out=store)
    monkeypatch.setattr("sgdf.bench.jobs.provenance.function_digest", lambda function: "another")
    with pytest.warns(UserWarning, match="had another version"):
        mixed = compare_quietly(training_functions.train, {"sgd": {}}, seeds=2, out=store)
    text = " ".join(str(mixed).split())
    warning = "Warning: sgd: its runs were made with 2 versions of the task's source"
    assert text.index(warning) < text.index("optimizer lr test")


def test_milestones_after_the_end_are_mentioned(store):
    """They change nothing, which nobody means."""
    schedule = {"name": "MultiStepLR", "milestones": [[1, 5]]}
    with pytest.warns(UserWarning, match="milestones = 5: never reached"):
        compare_quietly(Points, {"sgd": {}}, seeds=1, epochs=2, schedule=schedule, out=store)


def test_scripts_have_folders_of_their_own(tmp_path, monkeypatch):
    """Every script has a function train."""
    monkeypatch.chdir(tmp_path)
    result = compare_quietly(training_functions.train, {"sgd": {}}, seeds=1)
    assert str(result.store) == "results/training_functions-train"


def test_losses_with_a_graph_are_numbers(store, recwarn):
    """A loop that returns its loss as it is need not detach it."""
    compare_quietly(training_functions.return_graph, {"sgd": {}}, seeds=1, out=store)
    assert not [warning for warning in recwarn if "requires_grad" in str(warning.message)]


def test_runs_with_other_threads_are_mentioned(store):
    """They are other runs, which surprises those who change the number of workers."""
    compare_quietly(Points, {"sgd": {}}, seeds=2, epochs=1, out=store, threads=1)
    with pytest.warns(UserWarning, match=r"2 finished runs of .*; threads=1 counts them"):
        compare_quietly(Points, {"sgd": {}}, seeds=2, epochs=1, out=store, threads=2)


SCRIPT = """
import json

from sgdf.bench import compare
from training_functions import fit


def train(make_optimizer, seed, epochs=1):
    return list(fit(make_optimizer, seed, epochs, 8))[-1]["test"]

"""
CALL = 'compare(train, ["sgd", "sgdf"], seeds=2, workers=2, threads=1, out="store")'


def run_script(tmp_path, text):
    """Run a script that defines its own training function."""
    script = tmp_path / "my_script.py"
    script.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    return subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=300,
    )


def test_workers_import_a_script_by_its_name(tmp_path):
    """What a script defines reaches the workers."""
    text = f'{SCRIPT}\nif __name__ == "__main__":\n    print(json.dumps({CALL}.rows))\n'
    done = run_script(tmp_path, text)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])
    assert [row["state"] for row in rows] == ["finished"] * 4
    tables = [folder.table() for folder in Store(tmp_path / "store").folders()]
    assert {table["task"]["name"] for table in tables} == {"my_script:train"}


def test_script_without_a_guard_learns_what_to_add(tmp_path):
    """The workers would compare again, without end."""
    done = run_script(tmp_path, f"{SCRIPT}\n{CALL}\n")
    assert done.returncode != 0
    assert SpecError.__name__ in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr
