"""Results printed in the paper, beside those of runs."""

import itertools

from made_runs import make_run
from sgdf.bench.paper.published import Published, published
from sgdf.bench.report.findings import gather
from sgdf.bench.report.paper import deviations, fitting_columns
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import Store
from sgdf.bench.tasks.metric import known_direction


def column(**changes):
    known = {
        "label": "tab:x", "name": "Points", "about": "Something", "metric": "accuracy",
        "unit": "%", "larger_is_better": True, "seeds": (0, 1, 2), "runs": 3,
        "task": {"name": "points"}, "train": {"epochs": 200, "batch_size": 64}, "note": "",
        "values": {"SGD": (91.5, 0.2), "ADAM": (90.0,)},
        "optimizers": {"SGD": "sgd", "ADAM": "adam"}, "quoted": {"ADAM": "Somebody"},
    }  # fmt: skip
    return Published(**{**known, **changes})


def test_published_results_stand_beside_ours(tmp_path):
    for optimizer, seed in itertools.product(("sgd", "adam", "sgdf"), (0, 1)):
        make_run(tmp_path, [0.8 + 0.1 * seed], optimizer=optimizer, seed=seed)
    report = Report.of([tmp_path], beside=(column(), column(task={"name": "other"})))
    (table,) = [t for t in report.document.tables if t.name.startswith("paper-")]
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows == {
        "sgd": ["85.0 ± 7.1", "91.5 ± 0.2", "SGD", "the paper's own",
                "DIFFERS: epochs 4 instead of 200"],
        "adam": ["85.0 ± 7.1", "90", "ADAM", "quoted from Somebody",
                 "DIFFERS: epochs 4 instead of 200"],
    }  # fmt: skip
    assert "Seeds 0, 1, 2" in table.about
    assert "in the paper on test data" in table.about
    assert "For accuracy, larger is better." in table.about


def test_the_direction_of_a_published_metric_is_shown(tmp_path):
    make_run(tmp_path, [0.8], metric="fid", largest=False)
    columns = (column(metric="fid", unit="", larger_is_better=False),)
    (table,) = [
        t
        for t in Report.of([tmp_path], beside=columns).document.tables
        if t.name.startswith("paper-")
    ]
    assert "For fid, smaller is better." in table.about


def test_published_directions_agree_with_the_names_of_the_metrics():
    directions = {one.metric: one.larger_is_better for one in published()}
    assert directions["accuracy"] is directions["inception_score"] is True
    assert directions["fid"] is directions["hours"] is directions["hessian_trace"] is False
    for metric, larger_is_better in directions.items():
        assert known_direction(metric) in (None, larger_is_better), metric


def test_a_run_at_the_papers_size_is_called_so(tmp_path):
    make_run(tmp_path, [0.8], epochs=200)
    report = Report.of([tmp_path], beside=(column(),))
    (table,) = [t for t in report.document.tables if t.name.startswith("paper-")]
    assert table.rows[0][-1].text == "of the paper's size"


def test_the_column_whose_task_agrees_most_is_taken(tmp_path):
    make_run(tmp_path, [0.8], task={"name": "points", "network": "vgg11"})
    (problem,) = gather(Store(tmp_path).folders()).problems
    columns = [column(name=n, task={"name": "points", "network": n}) for n in ("vgg11", "resnet")]
    assert [one.name for one in fitting_columns(problem, tuple(columns))] == ["vgg11"]
    assert fitting_columns(problem, (column(metric="loss"),))
    assert fitting_columns(problem, (column(metric="perplexity"),)) == []


def test_all_of_the_papers_columns_load():
    columns = published()
    cifar = next(c for c in columns if c.task == {"name": "cifar10", "network": "vgg11"})
    assert cifar.values["SGDF"] == (91.61, 0.21)
    assert cifar.optimizers["SGD"] == "sgd"
    run = {"task": {"name": "cifar10", "network": "cnn"}, "train": {}, "optimizer": {"name": "m:O"}}
    assert deviations(cifar, run) == [
        "network cnn instead of vgg11",
        "epochs not set instead of 200",
        "batch_size not set instead of 128",
    ]
    hessian = next(c for c in columns if c.label == "fig:main_hessian_spectrum")
    assert "SGD" in hessian.optimizers
