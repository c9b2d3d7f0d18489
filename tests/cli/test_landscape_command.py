"""``sgdf analyze landscape`` from trained runs to its page."""

import json

import pytest
from commands import sgdf

SMALL = ("--points", 5, "--pairs", 1, "--examples", 30)


def landscape(*arguments, code=0):
    return sgdf("analyze", "landscape", *arguments, code=code)


@pytest.fixture
def trained(place):
    """Return where two optimizers were trained with two seeds each."""
    sgdf("run", "mine.toml", "--set", "seed=[0, 1]", "--set", "train.epochs=1")
    return place / "results" / "mine"


def test_all_runs_of_an_experiment_are_compared_and_joined_by_lines(trained):
    text = landscape("mine", *SMALL)
    assert "Loss landscape: 4 runs" in text
    assert "Share of low loss, and curvature" in text
    assert "Barriers" in text
    numbers = json.loads((trained / "analysis" / "landscape" / "results.json").read_text())
    assert len(numbers["runs"]) == 4 + 2, "four runs, and a line between the seeds of each setting"
    assert numbers["settings"]["points"] == 5
    assert "Every plane" not in text, "the page has it; a terminal has no room"


def test_two_runs_can_be_joined_and_a_level_chosen(trained, tmp_path):
    runs = sorted((trained / "runs").iterdir())
    out = tmp_path / "there"
    text = landscape(*runs[:2], *SMALL, "--lines", "all", "--level", 2.5, "--out", out)
    assert "below 2.5" in text
    assert len(json.loads((out / "results.json").read_text())["runs"]) == 3
    assert (out / "figures" / "landscape-lines.png").exists()
    text = landscape(*runs[:2], *SMALL, "--lines", "none", "--level", -1.0, "--out", out)
    assert "below -1" in text, "a loss may be negative"
    assert "No loss is below -1: the lowest loss is " in text
    text = landscape(*runs[:2], *SMALL, "--lines", "none", "--level", 1e9, "--out", out)
    assert "Every loss is below 1e+09: the highest is " in text
    assert not (out / "figures" / "landscape-lines.png").exists()


def test_settings_that_cannot_be_are_refused(trained):
    assert "points = 4: must be odd" in landscape("mine", "--points", 4, code=2)
    assert "span = 0.0: must be above 0" in landscape("mine", "--span", 0, code=2)
    assert "step = 1e-09: must be at least 0.0001" in landscape("mine", "--step", 1e-9, code=2)
    assert "level = nan: must be finite" in landscape("mine", "--level", "nan", code=2)
