"""The quickstart: what it does, and the search that its learning rates come from."""

import csv
import io
import re
import statistics
from collections import Counter
from pathlib import Path

from typer.testing import CliRunner

from sgdf.bench.spec import bundled_experiments, load
from sgdf.cli import app

ROOT = Path(__file__).parent.parent


def test_quickstart_runs_compares_and_says_what_next(tmp_path, monkeypatch):
    text = bundled_experiments()["quickstart"].read_text()
    short = tmp_path / "quickstart.toml"
    short.write_text(text.replace("epochs = 15", "epochs = 1").replace("[0, 1, 2]", "[0, 1]"))
    monkeypatch.setattr("sgdf.bench.spec.bundled_experiments", lambda: {"quickstart": short})
    place = tmp_path / "out"
    result = CliRunner().invoke(app, ["quickstart", "--out", str(place)], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    for name in ("sgdf", "sgd", "adam", "adamw", "radam"):
        assert re.search(
            rf"^{name} +\S+ +\d+\.?\d* ± \S+ +\d+\.?\d* ± \S+ +2 ", result.output, re.M
        )
    assert "10 paired t-tests" in result.output or " is better" in result.output
    assert "Next: sgdf experiments digits > mine.toml" in result.output
    assert (place / "report/index.html").exists()


def test_quickstart_has_the_best_rates_of_an_equal_search():
    # By the rule that quickstart-search.toml states, from the record of all of its runs.
    record = (ROOT / "docs/results/quickstart-search.csv").read_text()
    rows = [row for row in csv.DictReader(io.StringIO(record)) if row["state"] == "finished"]
    found = {(row["optimizer"], float(row["lr"]), int(row["seed"])): row for row in rows}
    searched, quick = load("quickstart-search").runs, load("quickstart").runs
    names = {run.optimizer.name for run in quick}
    assert Counter(run.optimizer.name for run in searched) == dict.fromkeys(names, 27)
    assert {run.seed for run in searched}.isdisjoint(run.seed for run in quick)
    scores = {}
    for run in searched:
        name, lr = run.optimizer.name, run.optimizer.options["lr"]
        row = found[name, lr, run.seed]
        score = float(row["validation accuracy"]), -float(row["validation loss"])
        scores.setdefault(name, {}).setdefault(lr, []).append(score)
    for run in quick:
        means = {
            lr: [round(statistics.fmean(column), 12) for column in zip(*values, strict=True)]
            for lr, values in scores[run.optimizer.name].items()
        }
        assert run.optimizer.options["lr"] == max(means, key=means.__getitem__)
        assert {**run.optimizer.options, "lr": 0} in [
            {**other.optimizer.options, "lr": 0} for other in searched
        ]
