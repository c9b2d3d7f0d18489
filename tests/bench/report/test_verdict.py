"""The verdict: the leader, what differs from it, seeds that are needed, edges of grids."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from made_runs import begin, make_run, result_of, rows_of, table_of
from sgdf.bench.report.findings import gather
from sgdf.bench.report.verdict import Verdict
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State, Store
from sgdf.cli import app

NOISE = (0.0, 0.02, -0.01, 0.01, -0.02)
"""By seed, what a run of any optimizer is better by."""


def make_runs(store, levels, seeds=5, jitter=0.001, **spec):
    """Write a run for each optimizer and seed, around these accuracies.

    The seeds have their own effect, which pairs do not see, and each pair a small one.
    """
    for number, (optimizer, level) in enumerate(levels.items()):
        for seed in range(seeds):
            own = jitter * ((3 * seed + number * (seed + 1)) % 5)
            make_run(store, [level + NOISE[seed] + own], optimizer=optimizer, seed=seed, **spec)


def verdict_on(store):
    (problem,) = gather(Store(store).folders()).problems
    return Verdict(problem)


def names(settings):
    return [setting.name for setting in settings]


def test_the_leader_and_what_is_worse_and_what_is_not(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.8995, "radam": 0.7, "lion": 0.6})
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "sgd"
    assert names(verdict.alike) == ["adam"]
    assert names(verdict.worse) == ["radam", "lion"]
    leads, alike, worse, also, seeds = verdict.lines
    assert leads == ("sgd leads: its mean test accuracy, 90.2 ± 1.7 %, is the best of 4 settings.")
    assert alike == (
        "Not significantly different from it: adam (6 paired t-tests over the seeds, corrected by "
        "Holm)."
    )
    assert worse.startswith("Significantly worse than it: radam (by 20.0")
    assert " and lion (by 30.0" in worse
    assert also == (
        "Also significant: adam is better than radam, adam is better than lion and radam is better "
        "than lion."
    )
    assert seeds.startswith("A difference like that between sgd and adam (")


def test_smaller_can_be_better(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.3}, metric="perplexity", largest=False)
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "adam"
    assert names(verdict.worse) == ["sgd"]
    assert "sgd (by 0.60" in verdict.lines[1]


def test_the_leader_is_the_best_on_test_data_among_those_chosen_on_validation_data(tmp_path):
    for optimizer, lr, validation, test in (
        ("sgd", 0.1, 0.9, 0.5),
        ("sgd", 1.0, 0.8, 0.99),
        ("adam", 0.1, 0.7, 0.6),
    ):
        for seed in range(3):
            rows = rows_of([validation])
            rows[0]["test"]["accuracy"] = test + NOISE[seed]
            folder = begin(tmp_path, table_of(optimizer, lr, seed))
            folder.finish(State.FINISHED, result_of(rows), rows)
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "adam"
    assert (
        "is the best of 2 settings, each chosen on validation data for its optimizer."
        in (verdict.lines[0])
    )


def test_no_verdict_from_two_seeds(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.6, "lion": 0.89}, seeds=2, jitter=0.002)
    verdict = verdict_on(tmp_path)
    leads, none, seeds = verdict.lines
    assert leads.startswith("sgd leads")
    assert none == "With 2 seeds no difference can be judged; run at least 3."
    assert seeds.startswith("A difference like that between sgd and lion (")
    assert seeds.endswith("seeds to be significant (one paired t-test at 5 %, power 80 %).")
    assert not verdict.worse
    (table,) = [t for t in Report.of([tmp_path]).document.tables if t.name == "comparisons-0"]
    assert [row[-1].text for row in table.rows] == ["not judged: 2 seeds"] * 3
    assert [row[4].text for row in table.rows] == ["–"] * 3


def test_no_verdict_from_one_seed(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.6}, seeds=1)
    leads, none = verdict_on(tmp_path).lines
    assert leads == "sgd leads: its mean test accuracy, 90.00 %, is the best of 2 settings."
    assert none == "With 1 seed no difference can be judged; run at least 3."


def test_the_seeds_that_a_difference_needs_are_those_of_the_measured_spread(tmp_path):
    for seed, difference in enumerate((0.01, -0.01, 0.02, 0.0)):
        make_run(tmp_path, [0.5 + difference], optimizer="sgd", seed=seed)
        make_run(tmp_path, [0.5], optimizer="adam", seed=seed)
    verdict = verdict_on(tmp_path)
    # The mean 0.005 over the standard deviation 0.0129 is 0.387; G*Power: 55 pairs.
    assert verdict.seeds_needed == {"adam": 55}
    assert verdict.lines[-1] == (
        "A difference like that between sgd and adam (0.5 ± 1.3) would need about 55 seeds to be "
        "significant (one paired t-test at 5 %, power 80 %)."
    )


def test_a_difference_that_only_the_correction_hides(tmp_path):
    differences = {
        "sgd": (0.0, 0.0, 0.0, 0.0, 0.0),
        "adam": (0.0074, 0.0137, 0.02, 0.0263, 0.0326),  # twice its standard deviation
        "lion": (0.3, -0.3, 0.2, -0.2, 0.15),
        "muon": (-0.3, 0.2, 0.25, -0.2, 0.25),
    }
    for optimizer, values in differences.items():
        for seed, value in enumerate(values):
            make_run(tmp_path, [0.5 - value], optimizer=optimizer, seed=seed)
    verdict = verdict_on(tmp_path)
    assert names(verdict.alike) == ["adam", "lion", "muon"]
    assert verdict.seeds_needed["adam"] == 5
    assert verdict.lines[-1] == (
        "Compared alone, without a correction for the other pairs, sgd would be significantly "
        "better than adam."
    )


def test_a_setting_that_lost_runs_does_not_lead(tmp_path):
    make_runs(tmp_path, {"sgd": 0.6})
    for seed in range(4):
        make_run(tmp_path, [0.9 + NOISE[seed] + 0.001 * seed], optimizer="adam", seed=seed)
    make_run(tmp_path, [], optimizer="adam", seed=4, diverged=3)
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "sgd"
    assert names(verdict.better) == ["adam"]
    assert "Significantly better on the seeds that both have: adam." in verdict.lines


def test_an_unfinished_grid_has_a_leader_so_far(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.6})
    begin(tmp_path, table_of("lion"))
    assert verdict_on(tmp_path).lines[0].startswith("sgd leads so far")


def test_what_cannot_be_compared_with_the_leader_is_named(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.6})
    make_runs(tmp_path, {"lion": 0.5}, jitter=0.002, environment={"data of test": "a of 9 rows"})
    make_runs(tmp_path, {"muon": 0.4}, jitter=0.003, environment={"data of test": "b of 9 rows"})
    make_runs(tmp_path, {"sgdf": 0.95}, jitter=0.004, environment={"data of test": "b of 9 rows"})
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "sgdf"
    assert verdict.unjudged == {"lion": "not compared: other test data"}
    assert "Without a test against it: lion (not compared: other test data)." in verdict.lines


def test_many_settings_are_listed_compactly(tmp_path):
    make_runs(tmp_path, {f"o{i:02}:O": 0.9 - 0.05 * i for i in range(12)}, seeds=4)
    for line in verdict_on(tmp_path).lines:
        assert len(line) < 400
        assert line.count(" (by ") <= 6


# Edges


def make_grid(store, best, rates=(0.01, 0.1, 1.0), optimizer="sgd", seed=0):
    for lr in rates:
        make_run(store, [0.9 if lr == best else 0.5], optimizer=optimizer, lr=lr, seed=seed)


@pytest.mark.parametrize(
    ("best", "line"),
    [
        (1.0, "The best lr is the largest that was tried for sgd (1): try larger ones."),
        (0.01, "The best lr is the smallest that was tried for sgd (0.01): try smaller ones."),
        (0.1, None),
    ],
)
def test_best_rates_at_the_edge_of_their_grid(tmp_path, best, line):
    make_grid(tmp_path, best)
    assert verdict_on(tmp_path).lines == ([line] if line else [])


def test_edges_of_several_optimizers_are_one_line(tmp_path):
    for optimizer in ("sgd", "adam", "lion"):
        make_grid(tmp_path, 1.0, optimizer=optimizer)
    assert verdict_on(tmp_path).lines[-1] == (
        "The best lr is the largest that was tried for adam (1), lion (1) and sgd (1): try larger "
        "ones."
    )


def test_a_rate_that_diverged_is_beyond_the_edge_and_one_that_waits_is_not(tmp_path):
    make_grid(tmp_path, 1.0)
    begin(tmp_path, table_of(lr=10.0))
    assert len(verdict_on(tmp_path).edges) == 1
    make_run(tmp_path, [], lr=100.0, diverged=2)
    assert verdict_on(tmp_path).edges == []


def test_a_value_as_good_as_one_within_the_grid_is_no_edge(tmp_path):
    for lr, value in ((0.01, 0.5), (0.1, 0.9), (1.0, 0.9)):
        make_run(tmp_path, [value], lr=lr)
    assert verdict_on(tmp_path).edges == []


def test_zero_is_no_edge(tmp_path):
    make_grid(tmp_path, 0.0, rates=(0.0, 0.1))
    assert verdict_on(tmp_path).edges == []


@pytest.mark.parametrize(
    ("protocol", "end"), [("paper", "at epochs chosen on the same data."), ("last", "2 settings.")]
)
def test_protocols_that_choose_no_setting(tmp_path, protocol, end):
    for lr, seed in itertools.product((0.1, 1.0), (0, 1, 2)):
        make_run(tmp_path, [0.5 + 0.1 * lr + NOISE[seed]], lr=lr, seed=seed, protocol=protocol)
    verdict = verdict_on(tmp_path)
    assert verdict.lines[0].startswith("sgd lr=1.0 leads")
    assert verdict.lines[0].endswith(end)
    assert [(edge.value, edge.is_largest) for edge in verdict.edges] == [(1.0, True)]


# Where it is shown


def test_the_verdict_is_on_the_terminal_in_markdown_and_in_json(tmp_path):
    store = tmp_path / "store"
    make_runs(store, {"sgd": 0.9, "adam": 0.7}, seeds=4)
    for seed in range(4):
        make_run(store, [0.2 + NOISE[seed]], lr=1.0, seed=seed)
    result = CliRunner().invoke(app, ["report", str(store)])
    assert result.exit_code == 0
    lines = verdict_on(store).lines
    assert len(lines) == 3
    markdown = (store / "report/report.md").read_text()
    for line in lines:
        assert line in result.output
        assert line.replace("(", "\\(")[:20] in markdown or line[:20] in markdown
    (problem,) = json.loads((store / "report/results.json").read_text())
    assert problem["verdict"] == {
        "leader": "sgd lr=0.1",
        "not significantly different": [],
        "significantly worse": ["adam"],
        "significantly better on shared seeds": [],
        "not judged": {},
        "seeds needed": {},
        "edges": [{"setting": "sgd lr=0.1", "option": "lr", "value": 0.1, "edge": "smallest"}],
        "warnings": [],
    }
