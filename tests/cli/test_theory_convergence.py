"""``sgdf theory regret``, ``stationarity`` and ``counter-examples`` as people type them."""

import json
import re

import pytest
from commands import sgdf

from sgdf.analysis.theory import counter_examples as study
from sgdf.theory import counter_examples

SMALL = ("--steps", 120, "--copies", 8)


@pytest.mark.parametrize("command", ["regret", "stationarity"])
def test_tables_numbers_and_picture(command, tmp_path):
    files = tmp_path / "new" / "numbers.json", tmp_path / "picture.png"
    said = sgdf("theory", command, *SMALL, "--json", files[0], "--plot", files[1])
    assert "SGDF, γₜ = 0.5/√t" in said
    assert "T = 120" in said
    assert files[1].read_bytes()[:4] == b"\x89PNG"
    numbers = json.loads(files[0].read_text())
    assert numbers["settings"]["copies"] == 8
    for rates in ("rates α/√t", "rates α/√T"):
        for curves in numbers[rates].values():
            assert set(curves) == {"SGD", "EMA", "SGDF, γ = 0.5", "SGDF, γₜ = 0.5/√t"}
            assert all(curve["steps"][-1] == 120 for curve in curves.values())


def test_a_power_of_0_is_sgd():
    said = sgdf("theory", "regret", *SMALL, "--gamma", 0)
    (plain,), (constant, *_) = (
        re.findall(rf"^{name} +(\S+)", said, re.M)[:1] for name in ("SGD", "SGDF, γ = 0")
    )
    assert constant == plain


def test_the_help_has_the_rates():
    said = " ".join(sgdf("theory", "regret", "--help").split())
    assert "α = 0.2 on the linear losses and 1 on the squares" in said


def test_options_reach_the_filter():
    said = sgdf("theory", "regret", *SMALL, "--gamma", 2, "--beta1", 0.5, "--beta2", 0)
    assert "SGDF, γ = 2" in said
    other = sgdf("theory", "regret", *SMALL, "--gamma", 2, "--beta1", 0.5, "--beta2", 0.9)
    numbers, others = (re.findall(r"SGDF, γ = 2 +(\S+)", text) for text in (said, other))
    assert numbers != others


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--beta1", 1.0),
        ("--beta1", -0.1),
        ("--beta2", 1.0),
        ("--steps", 5),
        ("--copies", 1),
        ("--gamma", -1),
        ("--seed", -1),
        ("--plot", "picture.gif"),
    ],
)
@pytest.mark.parametrize("command", ["regret", "stationarity"])
def test_values_outside_their_range_are_refused(command, option, value):
    assert option in sgdf("theory", command, option, value, code=2)


def test_every_counter_example_is_listed(monkeypatch, tmp_path):
    """The quick ones stand for all, so that the test is quick."""
    quick = [
        case
        for case in counter_examples()
        if case.name in ("random-target", "fused-variance", "beta1-condition")
    ]
    monkeypatch.setattr(study, "counter_examples", lambda: quick)
    files = tmp_path / "numbers.json", tmp_path / "picture.svg"
    said = sgdf("theory", "counter-examples", "--json", files[0], "--plot", files[1])
    assert "3 of 3 counter-examples" in files[1].read_text()
    assert "All 3 counter-examples refute what they are about" in said
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    for case in quick:
        assert case.label in said
        assert case.instead in said
        assert numbers[case.name]["refutes"] is True
