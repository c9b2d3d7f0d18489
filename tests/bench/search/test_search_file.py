"""The file of a search: what it may say, and what is refused."""

import pytest
import tomli_w

from searches import RANGE, document_of, search_of
from sgdf.bench.errors import SpecError
from sgdf.bench.jobs.job import read_job
from sgdf.bench.search.file import read_search
from sgdf.bench.search.job import SearchJob
from sgdf.bench.search.storage import journal_url, open_storage
from sgdf.bench.search.trials import Trials
from sgdf.bench.spec.document import select_optimizers
from sgdf.bench.spec.read import load, load_document


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocol": "paper"}, "holds back no data to choose by"),
        ({"task": {"name": "bench_tasks:Points", "hidden": [4, 8]}}, "task.hidden: is a list, but"),
        ({"probe": [{"name": "histogram"}]}, r"\[\[probe\]\]: is for sgdf run"),
        ({"probe": [{"name": "one"}, {"name": "two"}]}, r"\[\[probe\]\]: is for sgdf run"),
        (
            {"optimizer": [{"name": "sgd"}, {"name": "adam", "train": {"accumulate": 3}}]},
            "must be a multiple of 3",
        ),
        ({"seed": []}, r"seed = \[\]: needs an item"),
        ({"search": {"seeds": [1]}}, "must be none of those that are compared with"),
        ({"search": {"seeds": 5}}, "must be a list of different whole numbers"),
        ({"search": {"seeds": [5, 5]}}, "must be a list of different whole numbers"),
        ({"search": {"seeds": [[5]]}}, "must be a list of different whole numbers"),
        ({"search": {"sampler": "best"}}, "search.sampler = 'best': must be one of tpe"),
        ({"search": {"budget": 5}}, "search.budget = 5: no such key; allowed: .*seeds"),
        ({"trials": 0}, "search.trials = 0: must be a whole number of at least 1"),
        ({"optimizer": [{"name": "sgd"}, {"name": "sgd", "nesterov": True}]}, "more than once"),
        ({"optimizer": [{"name": "adam", "amsgrad": [True, False]}]}, "amsgrad: is a list; is it"),
        ({"optimizer": {"name": "sgd", "search": {"rate": [1.0]}}}, "rate = 1.0: no such option"),
        ({"optimizer": {"name": "sgd", "search": {"lr": [0.1, -1.0]}}}, "Invalid learning rate"),
        ({"optimizer": {"name": "sgd", "search": {"lr": [0.1, "x"]}}}, "'x': must be a number"),
        ({"optimizer": {"name": "sgd", "search": {"lr": 1}}}, "must be a list of values, or"),
        ({"optimizer": {"name": "sgd", "search": 1}}, "must be a table, .optimizer.search."),
        ({"optimizer": {"name": "nosuch"}}, "'nosuch': no such optimizer"),
        ({"optimizer": {"lr": 1.0}}, "optimizer.name = None: must be a string"),
        ({"name": "../points"}, "names a folder"),
        (
            {"optimizer": [{"name": "sgd", "train": {"epochs": 9}}, {"name": "adam"}]},
            r"must be the same for all optimizers, .* 9 epochs \(sgd\), 2 epochs \(adam\)",
        ),
        (
            {
                "train": {"batch_size": 40, "threads": 1},
                "optimizer": [{"name": "sgd", "train": {"steps": 9}}, {"name": "adam"}],
            },
            r"must be the same for all optimizers, .* 9 steps \(sgd\), 10 epochs \(adam\)",
        ),
        ({"train": {"device": "cuda"}}, "'cuda': not available"),
        ({"train": 5}, "must be a table"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path, changes, message):
    with pytest.raises(SpecError, match=message):
        search_of(tmp_path, **changes)


def test_sgdf_run_ignores_searched_values_only_if_the_options_are_set_too(tmp_path):
    path = tmp_path / "points.toml"
    document = document_of()
    path.write_text(tomli_w.dumps(document))
    with pytest.raises(SpecError, match=r"\[search\]: is for sgdf tune"):
        load(path)
    del document["search"]
    path.write_text(tomli_w.dumps(document))
    with pytest.raises(SpecError, match=r"optimizer.search.lr: is for sgdf tune.*; or set lr too"):
        load(path)
    optimizer = {"name": "sgd", "lr": 0.5, "search": {"lr": [0.1, 0.2]}}
    for tables, rates in ((optimizer, {0.5}), ([optimizer, {"name": "adam"}], {0.5, 0.001})):
        path.write_text(tomli_w.dumps({**document, "optimizer": tables}))
        assert {run.optimizer.options["lr"] for run in load(path).runs} == rates


@pytest.mark.parametrize("sampler", ["tpe", "grid"])
def test_a_job_is_the_same_after_it_was_sent_as_json(tmp_path, sampler):
    optimizer = [{"name": "adam", "betas": [[0.8, 0.99]], "train": {"clip_norm": 1.0}}]
    search = search_of(tmp_path, optimizer=optimizer, search={"sampler": sampler})
    assert read_job(SearchJob(search).as_json()) == SearchJob(search)
    parts = SearchJob(search).parts()
    assert {part.limit for part in parts} == {1}
    assert [read_job(part.as_json()) for part in parts] == parts


def test_all_processes_open_the_same_studies_even_if_the_file_sets_no_threads(tmp_path):
    document = document_of(train={"epochs": 1})
    search = read_search(document, store=tmp_path, storage=journal_url(tmp_path / "x"))
    again = read_job(SearchJob(search).as_json()).search
    names = [
        Trials(one, one.candidates[0], open_storage(one.storage)).name for one in (search, again)
    ]
    assert names[0] == names[1]
    assert search.threads == again.threads == 1


def test_a_searched_value_replaces_the_one_that_is_set(tmp_path):
    optimizer = [{"name": "sgd", "lr": 7.0, "momentum": 0.5}]
    search = search_of(tmp_path, optimizer=optimizer)
    (run,) = search.runs(search.candidates[0], {"lr": 0.1})
    assert (run.optimizer.options["lr"], run.optimizer.options["momentum"]) == (0.1, 0.5)
    assert run.seed == 2  # the first that the comparison does not use


def test_a_list_for_a_searched_option_is_ignored(tmp_path):
    optimizer = [
        {"name": ["sgd", "adam"], "lr": [0.1, 1.0]},
        {"name": "sgdf", "gamma": [0.5, 1.0], "search": {**RANGE, "gamma": [0.5, 1.0]}},
    ]
    search = search_of(tmp_path, optimizer=optimizer)
    tables = [candidate.table for candidate in search.candidates]
    assert tables == [{"name": "sgd"}, {"name": "adam"}, {"name": "sgdf"}]


def test_only_the_selected_optimizers_are_searched(tmp_path):
    document = document_of(
        optimizer=[{"name": ["sgd", "adam"], "weight_decay": 0.5}, {"name": "sgdf"}]
    )
    selected = select_optimizers(document, ["sgd", "lion"])
    assert selected["optimizer"] == [{"name": "sgd", "weight_decay": 0.5}, {"name": "lion"}]
    twice = document_of(optimizer=[{"name": "sgd"}, {"name": "sgd", "nesterov": True}])
    with pytest.raises(SpecError, match="more than once"):
        read_search(select_optimizers(twice, ["sgd"]), store=tmp_path, storage="")


@pytest.mark.parametrize("name", ["digits", "quickstart", "characters", "convex"])
def test_bundled_experiments_can_be_searched(name, tmp_path):
    assert read_search(load_document(name), store=tmp_path, storage="").candidates


def test_a_declared_metric_needs_no_data(tmp_path, monkeypatch):
    task = {"name": "searches:DeclaredMetric"}
    search = search_of(tmp_path, task=task)
    assert (search.metric.name, search.metric.is_maximized, search.epochs) == ("loss", False, 2)
    assert len(SearchJob(search).parts()) == 12
    monkeypatch.setenv("SGDF_TEST_DATA", "1")
    undeclared = search_of(tmp_path / "undeclared")
    assert (undeclared.metric.name, undeclared.metric.is_maximized) == ("accuracy", True)


def test_a_length_in_steps_is_counted_in_epochs_by_the_data(tmp_path):
    train = {"steps": 7, "batch_size": 40, "threads": 1}
    search = search_of(tmp_path, train=train)
    assert search.example.train.steps == 7
    assert search.epochs == 3  # of three steps each, the last one cut short
