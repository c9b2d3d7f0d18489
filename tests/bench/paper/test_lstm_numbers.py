"""The numbers of fig:lstm, which the paper does not print, and how they were made."""

import re
import tomllib
from dataclasses import fields

import pytest

from locations import ROOT
from sgdf.bench.catalog.optimizers import optimizer_options
from sgdf.bench.paper.published import column, published
from sgdf.bench.report.paper import deviations
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.spec.run import Training


def test_the_perplexities_are_those_of_the_authors_curves():
    columns = [one for one in published() if one.label == "fig:lstm"]
    assert [one.task for one in columns] == [
        {"name": "ptb", "layers": layers, "train_recurrent": False} for layers in (1, 2, 3)
    ]
    names = ("SGDF", "AdaBound", "Adam", "SGD", "AdaBelief", "AdaBelief (its own repository)")
    lowest = [
        [82.91, 84.17, 84.59, 85.04, 168.4, 84.21],
        [66.49, 67.26, 70.18, 67.36, 169.1, 66.29],
        [61.88, 63.36, 66.88, 64.05, 176.9, 61.23],
    ]
    for one, values in zip(columns, lowest, strict=True):
        assert one.values == {name: (v,) for name, v in zip(names, values, strict=True)}
        assert (one.seeds, one.runs) == ((0,), 1)


def test_only_the_perplexities_have_a_source_of_their_own():
    for one in published():
        assert one.source == ("authors' repository, one run" if one.label == "fig:lstm" else "")


def test_the_note_on_the_perplexities_says_how_they_were_made():
    note = column("fig:lstm", "1 layer").note
    for words in ("paper prints no", "lowest", "test set", "train_recurrent = false", "gain 2K"):
        assert words in note
    assert "as far as the public code tells" in note


@pytest.mark.parametrize(
    ("name", "clip", "rate", "eps"),
    [("1 layer", 0.1, 0.001, "1e-16"), ("2 layers", 0.15, 0.01, "1e-12"),
     ("3 layers", None, 0.01, "1e-12")],
)  # fmt: skip
def test_settings_of_the_perplexities_are_those_of_the_programs(name, clip, rate, eps):
    one, own = column("fig:lstm", name), "AdaBelief (its own repository)"
    assert one.train == {"epochs": 200, "batch_size": 20, "clip_norm": 0.25}
    assert one.settings.get("SGDF") == (clip and {"train": {"clip_norm": clip}})
    assert one.settings["SGD"] == {"optimizer": {"lr": 30.0, "weight_decay": 1.2e-6}}
    assert one.settings["AdaBound"] == {"optimizer": {"final_lr": 30.0}}
    assert one.settings["AdaBelief"] == {"optimizer": {"weight_decouple": True, "rectify": True}}
    assert one.settings[own] == {
        "optimizer": {"lr": rate, "weight_decay": 1.2e-6, "eps": float(eps)}
    }
    assert one.optimizers[own] == "adabelief-1e-16"
    assert one.quoted[own].startswith("AdaBelief's own repository, one run")
    assert f"eps {eps}" in one.quoted[own]
    assert (f"lr {rate:g}" in one.quoted[own]) == (rate == 0.01)


def test_settings_of_single_optimizers_are_known_to_the_bench():
    settings = [
        (one.optimizers[name], parts) for one in published() for name, parts in one.settings.items()
    ]
    assert settings
    for optimizer, parts in settings:
        assert set(parts) <= {"train", "optimizer"}
        assert set(parts.get("train", {})) <= {field.name for field in fields(Training)}
        optimizer_options(optimizer, {"lr": 1.0, **parts.get("optimizer", {})})


def test_the_first_epochs_differ_in_nothing_else():
    table = column("fig:lstm", "1 layer")
    for run in resolve_machine(load("ptb-begin"), threads=1).runs:
        (printed,) = (key for key, name in table.optimizers.items() if name == run.optimizer.name)
        assert deviations(table, printed, run.as_table()) == [
            "train_recurrent True instead of False",
            "epochs 2 instead of 200",
        ]


def test_the_note_on_the_lstms_says_where_table_and_program_differ():
    tables = tomllib.loads((ROOT / "src/sgdf/bench/paper/settings.toml").read_text())["setting"]
    (table,) = (table for table in tables if table["label"] == "tab:lstmhyperparameters")
    for sentence in (
        "SGD has no momentum",
        "AdamW has a learning rate of 0.01 with two layers",
        "Fromage has no weight decay",
        "AdaBound has a final rate of 30",
        "AdaBelief has the defaults of its package, decoupled decay and rectification",
        "All but SGDF are clipped to a norm of 0.25",
        "curves of seed 0 alone",
    ):
        assert sentence in table["note"]
    programs = {name for one in published() for name in one.settings if one.label == "fig:lstm"}
    assert {name.partition(" (")[0] for name in programs} <= set(re.findall(r"\w+", table["note"]))
