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
    assert verdict.lines[1].startswith("Significantly worse than it: sgd (by 0.60")
    assert verdict.lines[1].endswith("); 1 paired t-test over the seeds.")


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
    none, leads = verdict.lines
    assert none == "With 2 seeds no difference can be judged; run at least 3."
    assert leads.startswith("sgd leads")
    assert not verdict.worse
    assert verdict.seeds_needed == {}  # a spread from two numbers says too little
    (table,) = [t for t in Report.of([tmp_path]).document.tables if t.name == "comparisons-0"]
    assert [row[-1].text for row in table.rows] == ["not judged: 2 seeds"] * 3
    assert [row[4].text for row in table.rows] == ["–"] * 3


def test_no_verdict_from_one_seed(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.6}, seeds=1)
    none, leads = verdict_on(tmp_path).lines
    assert leads == "sgd leads: its mean test accuracy, 90.00 %, is the best of 2 settings."
    assert none == "With 1 seed no difference can be judged; run at least 3."


def test_the_seeds_that_a_difference_needs_are_those_of_the_measured_spread(tmp_path):
    for seed, difference in enumerate((0.01, -0.01, 0.02, 0.0)):
        make_run(tmp_path, [0.5 + difference], optimizer="sgd", seed=seed)
        make_run(tmp_path, [0.5], optimizer="adam", seed=seed)
    verdict = verdict_on(tmp_path)
    # The mean 0.005 over the standard deviation 0.0129 is 0.387; G*Power: 55 pairs.
    assert verdict.seeds_needed == {"adam": 55}
    assert verdict.lines == [
        "No difference between the 2 settings is significant at 5 % (1 paired t-test over "
        "the seeds).",
        "sgd leads: its mean test accuracy, 50.5 ± 1.3 %, is the best of 2 settings.",
        "A difference like that between sgd and adam (0.5 ± 1.3) would need about 55 seeds to be "
        "found significant in 80 % of all cases.",
    ]


def test_a_lead_within_the_noise_begins_with_that(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.8995, "radam": 0.8999}, jitter=0.003)
    verdict = verdict_on(tmp_path)
    none, leads, seeds = verdict.lines
    assert none == (
        "No difference between the 3 settings is significant at 5 % (3 paired t-tests over "
        "the seeds, corrected by Holm)."
    )
    assert leads.startswith(f"{verdict.leader.name} leads: ")
    assert seeds.endswith(
        " seeds to be found significant in 80 % of all cases, and more with the correction for "
        "3 tests."
    )


def test_a_lead_within_the_noise_where_others_differ(tmp_path):
    """The leader varies so much that nothing can be said of it; the other two differ."""
    own = {"sgd": (0.3, -0.2, 0.2, -0.1, 0.0), "adam": (0.0,) * 5, "lion": (0.0,) * 5}
    levels = {"sgd": 0.6, "adam": 0.55, "lion": 0.5}
    for optimizer, seed in itertools.product(levels, range(5)):
        value = levels[optimizer] + own[optimizer][seed] + 0.001 * (optimizer == "adam") * seed
        make_run(tmp_path, [value], optimizer=optimizer, seed=seed)
    none, leads, also, *_ = verdict_on(tmp_path).lines
    assert none == (
        "The differences of the leader from adam and lion are not significant at 5 % (3 paired "
        "t-tests over the seeds, corrected by Holm)."
    )
    assert leads.startswith("sgd leads: ")
    assert also == "Also significant: adam is better than lion."


# Ties


def make_tie(store, **spec):
    """Write runs of two optimizers with the same mean, and of a worse one."""
    for seed, (one, other) in enumerate(((0.7, 0.9), (0.8, 0.8), (0.9, 0.7))):
        make_run(store, [one], optimizer="sgd", seed=seed, **spec)
        make_run(store, [other], optimizer="adam", seed=seed, **spec)
        make_run(store, [0.3 + 0.001 * seed], optimizer="lion", seed=seed, **spec)


def test_settings_with_the_same_best_mean_share_it(tmp_path):
    make_tie(tmp_path)
    verdict = verdict_on(tmp_path)
    assert verdict.leader is None
    assert sorted(names(verdict.best)) == ["adam", "sgd"]
    share, *_ = verdict.lines
    assert share == "adam and sgd share the best mean test accuracy of 3 settings: 80.00 %."
    assert verdict.as_record()["leader"] is None
    assert verdict.as_record()["tied"] == ["adam", "sgd"]
    (table,) = [t for t in Report.of([tmp_path]).document.tables if t.name == "results-0"]
    assert {row[0].text: row[0].mark for row in table.rows} == {
        "adam": "tied", "sgd": "tied", "lion": ""
    }  # fmt: skip
    assert 'those that share the best mean on test data are marked as "tied"' in table.about


def test_what_is_significant_beside_a_tie(tmp_path):
    for seed in range(5):
        for optimizer, value in (("sgd", 0.8), ("adam", 0.8), ("lion", 0.3)):
            make_run(tmp_path, [value + 0.001 * seed * (optimizer == "lion")],
                     optimizer=optimizer, seed=seed)  # fmt: skip
    share, significant = verdict_on(tmp_path).lines
    assert share.startswith("adam and sgd share the best mean test accuracy")
    assert significant == (
        "Significant: adam is better than lion and sgd is better than lion (3 paired t-tests over "
        "the seeds, corrected by Holm)."
    )


def test_a_tie_within_the_noise_and_one_of_single_seeds(tmp_path):
    for seed in range(3):
        for optimizer in ("sgd", "adam"):
            make_run(tmp_path / "noise", [0.5 + 0.1 * seed], optimizer=optimizer, seed=seed)
            if not seed:
                make_run(tmp_path / "one", [0.5], optimizer=optimizer)
    none, share = verdict_on(tmp_path / "noise").lines
    assert none.startswith("No difference between the 2 settings is significant")
    assert share == "adam and sgd share the best mean test accuracy of 2 settings: 60.00 %."
    none, share = verdict_on(tmp_path / "one").lines
    assert none == "With 1 seed no difference can be judged; run at least 3."
    assert share == "adam and sgd share the best mean test accuracy of 2 settings: 50.00 %."


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
    assert verdict.lines == [
        "sgd leads: its mean test accuracy, 60.2 ± 1.7 %, is the best of 2 settings, except for "
        "adam (its mean is better, but is over 4 of 5 runs).",
        "Significantly better on the seeds that both have: adam (1 paired t-test over the seeds).",
    ]


def test_a_setting_that_lost_runs_leads_only_if_all_have(tmp_path):
    make_runs(tmp_path, {"sgd": 0.9, "adam": 0.6}, seeds=3)
    make_run(tmp_path, [], optimizer="sgd", seed=3, diverged=3)
    begin(tmp_path, table_of("adam", seed=3)).fail("no")
    verdict = verdict_on(tmp_path)
    assert verdict.lines[0].endswith(
        "is the best of 2 settings. Every setting has lost or unfinished runs; the leader's mean "
        "is over 3 of 4 runs."
    )


def test_a_mean_over_several_versions_does_not_lead(tmp_path):
    for seed in range(3):
        source = {"task source": str(seed // 2)}
        make_run(tmp_path, [0.9], optimizer="sgd", seed=seed, environment=source)
        make_run(tmp_path, [0.6], optimizer="adam", seed=seed, environment={"task source": "0"})
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "adam"
    assert verdict.lines[0].endswith(
        ", except for sgd (its mean is better, but mixes 2 versions of the task's source)."
    )


def test_a_mean_over_several_versions_leads_only_if_all_are(tmp_path):
    for seed, optimizer in itertools.product(range(4), ("sgd", "adam")):
        value = (0.9 if optimizer == "sgd" else 0.6) + NOISE[seed]
        source = {"task source": str(seed // 2)}
        make_run(tmp_path, [value], optimizer=optimizer, seed=seed, environment=source)
    verdict = verdict_on(tmp_path)
    leads = next(line for line in verdict.lines if " leads: " in line)
    assert leads.endswith(
        " Every mean mixes versions or data; the leader's mean mixes 2 versions of the task's "
        "source."
    )


def test_a_mean_over_other_data_does_not_lead_but_data_may_depend_on_the_seed(tmp_path):
    for seed in range(3):
        for store, of_sgd, of_adam in (("changed", seed // 2, 0), ("by seed", seed, seed)):
            for optimizer, value, data in (("sgd", 0.9, of_sgd), ("adam", 0.6, of_adam)):
                make_run(
                    tmp_path / store, [value + NOISE[seed]], optimizer=optimizer, seed=seed,
                    environment={"data of test": f"{data} of 9 rows"},
                )  # fmt: skip
    assert verdict_on(tmp_path / "changed").leader.name == "adam"
    text = "except for sgd (its mean is better, but mixes different test data)."
    assert text in " ".join(verdict_on(tmp_path / "changed").lines)
    assert verdict_on(tmp_path / "by seed").leader.name == "sgd"


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
    for name, tie in (("below", (0.1, 1.0)), ("above", (0.01, 0.1))):
        for lr in (0.01, 0.1, 1.0):
            make_run(tmp_path / name, [0.9 if lr in tie else 0.5], lr=lr)
        assert verdict_on(tmp_path / name).edges == []


def make_momenta(store, momenta, best):
    """Write runs with these momenta; the setting with the best one is the best."""
    for momentum in momenta:
        table = table_of()
        table["optimizer"]["momentum"] = momentum
        rows = rows_of([0.9 if momentum == best else 0.5])
        begin(store, table).finish(State.FINISHED, result_of(rows), rows)


def test_an_option_that_is_on_or_off_has_no_edge_but_a_rate_has(tmp_path):
    make_momenta(tmp_path / "two", (0.0, 0.9), best=0.9)
    assert verdict_on(tmp_path / "two").edges == []
    make_momenta(tmp_path / "three", (0.0, 0.5, 0.9), best=0.9)
    assert [edge.option for edge in verdict_on(tmp_path / "three").edges] == ["momentum"]
    make_grid(tmp_path / "rates", 1.0, rates=(0.1, 1.0))
    assert [edge.option for edge in verdict_on(tmp_path / "rates").edges] == ["lr"]


def test_zero_is_no_edge(tmp_path):
    make_grid(tmp_path, 0.0, rates=(0.0, 0.1))
    assert verdict_on(tmp_path).edges == []


@pytest.mark.parametrize(
    ("protocol", "end"),
    [
        ("paper", "at epochs chosen on the same data. "),
        ("last", "is the best of 2 settings. "),
    ],
)
def test_protocols_that_choose_no_setting(tmp_path, protocol, end):
    for lr, seed in itertools.product((0.1, 1.0), (0, 1, 2)):
        make_run(tmp_path, [0.5 + 0.1 * lr + NOISE[seed]], lr=lr, seed=seed, protocol=protocol)
    verdict = verdict_on(tmp_path)
    assert verdict.lines[0].startswith("sgd lr=1.0 leads")
    assert verdict.lines[0].endswith(end + "The leader was found on the test data themselves.")
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
        "tied": [],
        "not significantly different": [],
        "significantly worse": ["adam"],
        "significantly better on shared seeds": [],
        "not judged": {},
        "seeds needed": {},
        "edges": [{"setting": "sgd lr=0.1", "option": "lr", "value": 0.1, "edge": "smallest"}],
        "warnings": [],
    }


# Seeds that not all settings have, and differences on those that both have


def make_values(store, **values):
    """Write a run for each optimizer and value; the seeds count from 0, None is no run."""
    for optimizer, of_seeds in values.items():
        for seed, value in enumerate(of_seeds):
            if value is not None:
                make_run(store, [value], optimizer=optimizer, seed=seed)


def test_the_better_one_is_that_of_the_shared_seeds(tmp_path):
    """The mean of sgd is the best, but on the seeds that it shares with adam, adam is better."""
    make_values(
        tmp_path,
        sgd=[0.50, 0.51, 0.52, 0.99, 0.99, 0.99, None, None, None],
        adam=[0.53, 0.55, 0.575, None, None, None, 0.55, 0.56, 0.57],
        lion=[0.53, 0.40, 0.60, 0.3, 0.2, 0.4, None, None, None],
    )
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "sgd"
    pair = next(p for p in verdict.pairs if {p.first.name, p.second.name} == {"sgd", "adam"})
    assert pair.comparison.p < 0.05 < pair.comparison.corrected
    (alone,) = [line for line in verdict.lines if line.startswith("Compared alone")]
    assert alone.endswith("adam would be significantly better than sgd.")


def test_equal_differences_need_no_number_of_seeds(tmp_path):
    make_values(tmp_path, sgd=[0.3, 0.4, 0.5], adam=[0.2, 0.3, 0.4])
    verdict = verdict_on(tmp_path)
    assert verdict.seeds_needed == {}
    assert not any("would need" in line for line in verdict.lines)
    assert verdict.unjudged == {"adam": "not tested: no spread over the seeds"}


def test_fewer_seeds_than_another_setting_do_not_lead(tmp_path):
    make_values(tmp_path, lion=[0.99], sgd=[0.9, 0.91, 0.92], adam=[0.5, 0.511, 0.521])
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "sgd"
    assert names(verdict.worse) == ["adam"]
    assert verdict.unjudged == {"lion": "not judged: 1 seed"}
    text = " ".join(verdict.lines)
    assert "lion (its mean is better, but is over 1 seed instead of 3)" in text
    assert "Significantly worse than it: adam" in text


def test_what_is_significant_is_said_if_the_leader_has_one_seed(tmp_path):
    make_values(tmp_path, lion=[0.99], sgd=[0.9, 0.91, 0.92], adam=[0.5, 0.511, 0.521])
    for optimizer in ("sgd", "adam"):
        begin(tmp_path, table_of(optimizer, seed=3)).fail("no")
    verdict = verdict_on(tmp_path)
    assert verdict.leader.name == "lion"
    reason = "not judged: the leader has 1 seed"
    assert verdict.unjudged == {"sgd": reason, "adam": reason}
    text = " ".join(verdict.lines)
    assert "no difference can be judged" not in text
    assert "Also significant: sgd is better than adam (1 paired t-test over the seeds)." in text
    assert (
        "Every setting has lost or unfinished runs or fewer seeds than another, or mixes versions "
        "or data; the leader's mean is over 1 seed instead of 3." in text
    )


def test_too_many_settings_to_compare_are_the_reason_that_is_given(tmp_path):
    for number, seed in itertools.product(range(31), range(3)):
        make_run(tmp_path, [0.5 + 0.01 * number], optimizer=f"mine:O{number}", seed=seed)
    assert set(verdict_on(tmp_path).unjudged.values()) == {"not compared: more than 30 settings"}


def test_a_small_p_value_needs_no_further_seeds(tmp_path):
    """With three seeds p is 0.03, but a difference like it would be found in fewer than 80 %."""
    make_values(
        tmp_path,
        sgd=[0.90, 0.91, 0.92],
        adam=[0.89, 0.896, 0.90],
        lion=[0.80, 0.95, 0.60],
    )
    verdict = verdict_on(tmp_path)
    p = verdict.against[verdict.ranked[1].key].comparison.p
    assert 0.02 < p < 0.05
    assert verdict.seeds_needed["adam"] > 3
    assert verdict.lines[-1] == (
        "Compared alone, without a correction for the other pairs, sgd would be significantly "
        "better than adam."
    )


def test_the_unit_stands_before_the_remark_that_there_is_no_spread(tmp_path):
    make_values(tmp_path, sgd=[0.5, 0.5, 0.5], adam=[0.3, 0.31, 0.33])
    assert any("50.00 % (no spread)" in line for line in verdict_on(tmp_path).lines)
