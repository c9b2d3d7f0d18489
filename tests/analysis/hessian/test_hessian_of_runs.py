"""The Hessian of finished runs: the numbers of the library, kept through a kill, on a page."""

import json
import re
from dataclasses import replace
from functools import partialmethod

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from sgdf.analysis.conduct import Measured
from sgdf.analysis.examples import training_batches
from sgdf.analysis.hessian import Hessian, RecordedProducts
from sgdf.analysis.hessian.of_runs import HessianOfRuns
from sgdf.analysis.hessian.page import contents
from sgdf.analysis.record import Record
from sgdf.analysis.runs import AnalysedRun, trained_runs
from sgdf.bench.errors import SpecError, StoreError
from sgdf.bench.jobs.conduct import Conduct, Crew
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.jobs.signals import stop_on_signals
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read
from sgdf.bench.store.run_folder import Store
from sgdf.cli import app
from sgdf.present.table import NOTHING

DOCUMENT = {
    "seed": [0, 1],
    "task": {"name": "bench_tasks:Points"},
    "optimizer": [{"name": ["sgdf", "adamw"], "lr": 0.1}],
    "train": {"epochs": 2, "threads": 1, "device": "cpu"},
}
SMALL = HessianOfRuns(examples=100, top=5, tolerance=1e-9, probes=6, power=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a folder of four finished runs."""
    place = tmp_path_factory.mktemp("runs")
    plan = Plan(resolve_machine(read(DOCUMENT), threads=1).runs, place, 60.0)
    conduct = Conduct(plan)
    conduct.prepare(retry=False)
    with stop_on_signals() as stop:
        conduct.work(Crew(1, None), lambda run, event: None, stop)
    return Store(place)


def measured(run, folder, analysis=SMALL):
    record = Record(folder, run.run.key, analysis.settings)
    analysis.measure(run, record, lambda share: None)
    return record


def test_values_are_those_of_the_dense_matrix(store, tmp_path):
    run = trained_runs(store.folders())[0]
    record = measured(run, tmp_path)
    task, model = run.open()
    batches = training_batches(task, 100)
    exact = np.linalg.eigvalsh(Hessian(model, lambda _, batch: task.loss(batch), batches).dense())
    largest = exact[::-1]
    np.testing.assert_allclose(record["largest"]["values"], largest[:5], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(record["smallest"]["values"], exact[:1], rtol=1e-3, atol=1e-6)
    assert abs(record["trace"]["value"] - exact.sum()) < 6 * record["trace"]["error"] + 1e-6
    assert record["parameters"] == len(exact)
    weights = np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])
    np.testing.assert_allclose(record["weight norm"], np.linalg.norm(weights), rtol=1e-5)


def test_an_interrupted_measurement_continues(store, tmp_path):
    run = trained_runs(store.folders())[0]
    whole = measured(run, tmp_path / "whole")
    interrupted = Record(tmp_path / "again", run.run.key, SMALL.settings)
    shares = []

    def interrupt(share):
        shares.append(share)
        if len(shares) == 25:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SMALL.measure(run, interrupted, interrupt)
    begun = len(shares)
    SMALL.measure(run, interrupted, shares.append)
    all_at_once = []
    SMALL.measure(run, Record(tmp_path / "count", run.run.key, SMALL.settings), all_at_once.append)
    # One product more than without the interruption checks that it is the same Hessian.
    assert len(shares) - begun <= len(all_at_once) - begun + 3
    assert interrupted.values == whole.values


def test_the_page_shows_settings_and_the_papers_numbers(store, tmp_path):
    runs = trained_runs(store.folders())
    shown = contents(SMALL.settings, [Measured(run, measured(run, tmp_path)) for run in runs])
    spectrum = shown.tables[0]
    assert [row[0].text for row in spectrum.rows] == ["adamw", "sgdf"]
    paper = spectrum.columns.index("paper: trace")
    assert [row[paper].order for row in spectrum.rows] == [0.39, 192.47]
    assert {plot.name for plot in shown.plots} == {"hessian-histogram", "hessian-ranks"}
    assert [table.name for table in shown.tables][-1] == "hessian-power"
    errors = [row[1].order for row in shown.tables[-1].rows]
    assert max(map(abs, errors)) < 5.0  # per cent: the first value of the paper's way is close


def break_file(run, record, monkeypatch):
    (record.make_scratch() / "products.bin").mkdir()


def leave_products_of_another_matrix(run, record, monkeypatch):
    size = sum(param.numel() for param in run.open()[1].parameters())
    RecordedProducts(np.eye(size), record.make_scratch()).close()


def spoil_weights(run, record, monkeypatch):
    task, model = run.open()
    torch.nn.init.constant_(next(model.parameters()), float("nan"))
    monkeypatch.setattr(AnalysedRun, "open", lambda run: (task, model))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (break_file, "cannot write .*products.bin: Is a directory"),
        (leave_products_of_another_matrix, "adamw, seed 0: .*remove the file to start anew"),
        (spoil_weights, "adamw, seed 0: the product is not finite"),
    ],
)
def test_what_cannot_be_measured_is_named(store, tmp_path, monkeypatch, spoil, message):
    run = trained_runs(store.folders())[0]
    spoil(run, Record(tmp_path, run.key, SMALL.settings), monkeypatch)
    with pytest.raises((SpecError, StoreError), match=message):
        measured(run, tmp_path)


def test_eigenvalues_that_do_not_converge_are_named_and_all_else_is_shown(
    store, tmp_path, monkeypatch
):
    runs = trained_runs(store.folders())
    whole = [Measured(run, measured(run, tmp_path)) for run in runs[1:]]
    top = RecordedProducts.top
    monkeypatch.setattr(RecordedProducts, "top", partialmethod(top, iterations=1))
    poor = Measured(runs[0], measured(runs[0], tmp_path))
    assert poor.record["largest"]["values"] == []
    assert "trace" in poor.record
    shown = contents(SMALL.settings, [poor, *whole])
    (line,) = [line for line in shown.summary if "could not be found" in line]
    assert re.search(r"^The 5 largest eigenvalues .* for adamw, seed 0 \(\d of 5 converged\)", line)
    assert line.endswith("A larger --tolerance, or fewer of them (--top), may help.")
    rows = [dict(zip(shown.tables[0].columns, row, strict=True)) for row in shown.tables[0].rows]
    assert [row["largest eigenvalue"].parts["seeds"] for row in rows] == [1, 2]
    assert all("±" in row["trace"].text for row in rows)
    alone = contents(SMALL.settings, [poor])
    assert alone.tables[0].rows[0][2].text == NOTHING
    assert all(plot.svg() for plot in alone.plots)
    assert "values are more than" not in power_table(alone).about, "it has no values"
    assert re.search(
        r"\d+ of \d+ values (is|are) more than 1e-07 % too small, \d+ more than 1e-07 % too large",
        power_table(shown).about,
    )


def power_table(shown):
    (table,) = [one for one in shown.tables if one.name == "hessian-power"]
    return table


def test_fewer_eigenvalues_are_no_advice_for_the_smallest(store, tmp_path):
    run = trained_runs(store.folders())[0]
    poor = Measured(run, measured(run, tmp_path))
    poor.record.values["smallest"] = {**poor.record["smallest"], "converged": []}
    (line,) = [x for x in contents(SMALL.settings, [poor]).summary if "could not be found" in x]
    assert line.endswith("A larger --tolerance may help.")


def test_the_order_of_settings_is_stated_with_its_significance(store, tmp_path):
    runs = trained_runs(store.folders())
    found = [Measured(run, measured(run, tmp_path)) for run in runs]
    lines = contents(SMALL.settings, found).summary
    assert [line for line in lines if line.startswith("Mean trace: ")]
    assert any(
        "difference in trace is significant needs at least 3 seeds" in line for line in lines
    )


def test_bars_of_one_hue_differ_and_their_numbers_are_readable(store, tmp_path):
    one = Measured((run := trained_runs(store.folders())[0]), measured(run, tmp_path))
    settings = [replace(one.run, setting=f"adamw {number}") for number in range(3)]
    shown = contents(SMALL.settings, [replace(one, run=run) for run in settings])
    figure = next(plot for plot in shown.plots if plot.name == "hessian-histogram").figure
    assert len({panel.patches[0].get_hatch() for panel in figure.axes}) == 3
    figure.canvas.draw()
    for panel in figure.axes:
        assert all(tick == int(tick) for tick in panel.get_yticks())
        (text,) = panel.texts
        box = text.get_window_extent()
        assert not any(bar.get_window_extent().overlaps(box) for bar in panel.patches)


def test_the_errors_of_the_papers_way_are_counted_by_their_sign(store, tmp_path):
    run = trained_runs(store.folders())[0]
    one = Measured(run, measured(run, tmp_path))
    exact = one.record["largest"]["values"]
    one.record.values["power"]["values"] = [0.9 * exact[0], 0.9 * exact[1], 1.05 * exact[2]]
    about = contents(SMALL.settings, [one]).tables[-1].about
    assert "2 of 3 values are more than 1e-07 % too small, 1 more than 1e-07 % too large" in about


def test_the_page_says_which_loss_it_is(store, tmp_path):
    run = trained_runs(store.folders())[0]
    one = Measured(run, measured(run, tmp_path))

    def note(settings):
        return contents(settings, [one]).notes["Hessian"][0]

    text = note(SMALL.settings)
    assert "The loss is that of 100 training examples, without augmentation, at" in text
    assert "BatchNorm uses its stored statistics, dropout is off" in text
    text = note({**SMALL.settings, "batch_statistics": True})
    assert "BatchNorm uses the statistics of each batch, dropout is on" in text


def test_the_command_writes_everything_and_measures_nothing_twice(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    arguments = ["analyze", "hessian", str(store.path), "--out", str(out), "--top", "4"]
    arguments += ["--probes", "3", "--examples", "60", "--threads", "1"]
    for expected in (4, 0):
        result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120"})
        assert result.exit_code == 0, result.output
        assert result.output.count("measured ") == expected
    assert "Content-Security-Policy" in (out / "index.html").read_text()
    assert (out / "figures" / "hessian-histogram.png").stat().st_size > 5000
    assert (out / "figures" / "hessian-ranks.pdf").exists()
    numbers = json.loads((out / "results.json").read_text())
    assert len(numbers["runs"]) == 4
    assert numbers["settings"]["top"] == 4
    assert numbers["environment"]["torch"]
