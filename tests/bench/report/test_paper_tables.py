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


def paper_table(folder, *columns):
    """Return the one table of published results in the report on a store."""
    tables = Report.of([folder], beside=columns).document.tables
    (table,) = [table for table in tables if table.name.startswith("paper-")]
    return table


def test_published_results_stand_beside_ours(tmp_path):
    for optimizer, seed in itertools.product(("sgd", "adam", "sgdf"), (0, 1)):
        make_run(tmp_path, [0.8 + 0.1 * seed], optimizer=optimizer, seed=seed)
    table = paper_table(tmp_path, column(), column(task={"name": "other"}))
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
    table = paper_table(tmp_path, *columns)
    assert "For fid, smaller is better." in table.about


def test_published_directions_agree_with_the_names_of_the_metrics():
    directions = {one.metric: one.larger_is_better for one in published()}
    assert directions["accuracy"] is directions["inception_score"] is True
    assert directions["fid"] is directions["hours"] is directions["hessian_trace"] is False
    for metric, larger_is_better in directions.items():
        assert known_direction(metric) in (None, larger_is_better), metric


def test_a_run_at_the_papers_size_is_called_so(tmp_path):
    make_run(tmp_path, [0.8], epochs=200)
    table = paper_table(tmp_path, column())
    assert table.rows[0][-1].text == "of the paper's size"


def test_results_that_the_paper_does_not_print_are_not_called_its_own(tmp_path):
    make_run(tmp_path, [0.8], optimizer="sgd", epochs=200, batch_size=32)
    make_run(tmp_path, [0.8], optimizer="adam", epochs=200)
    source = "authors' repository, one run"
    table = paper_table(tmp_path, column(source=source, seeds=(0,), runs=1))
    assert table.title == "Beside tab:x (Points): authors' repository, one run"
    assert table.columns[2:4] == ("published, accuracy (%)", "name there")
    assert [[cell.text for cell in row[2:]] for row in table.rows] == [
        ["91.5 ± 0.2", "SGD", source, "DIFFERS: batch_size 32 instead of 64"],
        ["90", "ADAM", "quoted from Somebody", "of the same size"],
    ]
    assert " Seed 0. " in table.about
    assert "Here the epoch was chosen on validation data, there on test data." in table.about
    assert "paper" not in " ".join([table.title, table.about, *table.columns])


def test_an_optimizer_may_have_settings_of_its_own(tmp_path):
    make_run(tmp_path, [0.8], optimizer="sgd", epochs=200, clip_norm=0.25)
    make_run(tmp_path, [0.8], optimizer="adam", epochs=200, clip_norm=0.25)
    settings = {"SGD": {"train": {"clip_norm": 0.1}, "optimizer": {"lr": 0.5}}}
    train = {"epochs": 200, "clip_norm": 0.25}
    table = paper_table(tmp_path, column(train=train, settings=settings))
    differing = {row[3].text: row[-1].text for row in table.rows}
    assert differing["ADAM"] == "of the paper's size"
    assert differing["SGD"].startswith("DIFFERS: clip_norm 0.25 instead of 0.1; lr 0.1 instead of")
    assert "lr 0.1 instead of 0.5" in differing["SGD"]


def test_perplexities_stand_beside_those_of_the_authors_curves(tmp_path):
    task = {"name": "ptb", "layers": 2, "train_recurrent": True}
    for optimizer in ("sgdf", "sgd-vanilla", "adabelief", "adabelief-1e-16"):
        make_run(tmp_path, [80.0], optimizer=optimizer, task=task, metric="perplexity",
                 largest=False, epochs=200, batch_size=20, clip_norm=0.25)  # fmt: skip
    table = paper_table(tmp_path, *published())
    assert table.title == "Beside fig:lstm (2 layers): authors' repository, one run"
    assert table.columns[2] == "published, perplexity"
    rows = {row[3].text: [cell.text for cell in row[2:5]] for row in table.rows}
    own = "AdaBelief (its own repository)"
    assert {name: value for name, (value, *_) in rows.items()} == {
        "SGDF": "66.49", "SGD": "67.36", "AdaBelief": "169.1", own: "66.29",
    }  # fmt: skip
    assert [row[0].optimizer for row in table.rows if row[3].text == own] == ["adabelief-1e-16"]
    assert {rows[name][-1] for name in rows if name != own} == {"authors' repository, one run"}
    assert rows[own][-1].startswith("quoted from AdaBelief's own repository, one run")
    differing = {row[3].text: row[-1].text for row in table.rows}
    for words in differing.values():
        assert words.startswith("DIFFERS: train_recurrent True instead of False")
    assert "clip_norm 0.25 instead of 0.15; lr 0.1 instead of 60.0" in differing["SGDF"]
    assert "clip_norm" not in differing["SGD"]
    assert "lr 0.1 instead of 30.0" in differing["SGD"]
    assert "rectify not set instead of True" in differing["AdaBelief"]
    assert "lr 0.1 instead of 0.01" in differing[own]
    assert "eps not set instead of 1e-12" in differing[own]


def test_the_column_whose_task_agrees_most_is_taken(tmp_path):
    make_run(tmp_path, [0.8], task={"name": "points", "network": "vgg11"})
    (problem,) = gather(Store(tmp_path).folders()).problems
    columns = [column(name=n, task={"name": "points", "network": n}) for n in ("vgg11", "resnet")]
    assert [one.name for one in fitting_columns(problem, tuple(columns))] == ["vgg11"]
    assert fitting_columns(problem, (column(metric="loss"),))
    assert fitting_columns(problem, (column(metric="perplexity"),)) == []


def test_scores_that_only_some_options_give_are_beside_no_others(tmp_path):
    for extractor in ("inception", "cnn"):
        make_run(tmp_path / extractor, [0.8], task={"name": "points", "extractor": extractor})
        (problem,) = gather(Store(tmp_path / extractor).folders()).problems
        one = column(only_with={"extractor": ("inception", "inception-2")})
        assert bool(fitting_columns(problem, (one,))) is (extractor == "inception")


def test_all_of_the_papers_columns_load():
    columns = published()
    cifar = next(c for c in columns if c.task == {"name": "cifar10", "network": "vgg11"})
    assert cifar.values["SGDF"] == (91.61, 0.21)
    assert cifar.optimizers["SGD"] == "sgd"
    run = {"task": {"name": "cifar10", "network": "cnn"}, "train": {}, "optimizer": {"name": "m:O"}}
    assert deviations(cifar, "SGDF", run) == [
        "network cnn instead of vgg11",
        "epochs not set instead of 200",
        "batch_size not set instead of 128",
    ]
    hessian = next(c for c in columns if c.label == "fig:main_hessian_spectrum")
    assert "SGD" in hessian.optimizers
