"""``sgdf theory gain`` and ``sgdf theory fusion``: tables, picture and numbers."""

import json

import pytest
from typer.testing import CliRunner

from sgdf.cli import app


def shown(*arguments):
    """Return what a command prints, in one line."""
    done = CliRunner().invoke(app, ["theory", *arguments], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


@pytest.fixture(scope="module")
def gain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gain")
    files = folder / "gain.json", folder / "new" / "gain.png"
    text = shown("gain", "--json", str(files[0]), "--plot", str(files[1]))
    return text, json.loads(files[0].read_text()), files[1]


@pytest.fixture(scope="module")
def fusion(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fusion")
    files = folder / "fusion.json", folder / "fusion.svg"
    options = ("--beta1", "0.8", "--gamma", "1", "--seed", "3")
    text = shown("fusion", *options, "--json", str(files[0]), "--plot", str(files[1]))
    return text, json.loads(files[0].read_text()), files[1]


def test_gain_prints_the_law_beside_the_filter(gain):
    text, numbers, plot = gain
    assert "the mean gain is 0.2416 by the law" in text
    assert "0.9 0.05 0.2416 0.4124" in text
    assert numbers["law"]["mean_root"] == pytest.approx(0.4124, abs=1e-4)
    assert numbers["noise"]["normal"]["gain"] == pytest.approx(0.2416, abs=0.002)
    assert numbers["noise"]["rare"]["bias"] == pytest.approx(-0.110, abs=0.006)
    assert len(numbers["drift"]["gain"]) == len(numbers["drift"]["drift"])
    assert numbers["noise_change"]["0.1"]["predicted"][0] == "nan"
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_fusion_prints_promise_and_truth(fusion):
    """At β₁ = 0.8: 0.1 promised, 0.136 true, 0.1111 of the mean alone; the best K is −1/8."""
    text, numbers, plot = fusion
    assert "derived gain 0.1 has the variance 0.1, below both" in text
    assert "it has 0.136, more than the 0.111 of m̂ alone" in text
    assert "The best weight is −0.125" in text
    assert numbers["true"]["variance"][-1] == pytest.approx(0.136, abs=1e-4)
    assert numbers["jump"]["gain"][0][-1] < 1e-3 < 0.99 < numbers["jump"]["mmse_gain"][-1]
    assert (numbers["betas"], numbers["gamma"], numbers["seed"]) == ([0.8, 0.999], 1.0, 3)
    drawn = plot.read_text()
    assert "σ_g²/σ_m²" in drawn
    assert "best K = −0.125" in drawn
    assert "(first point: q = 0)" in drawn


@pytest.mark.parametrize(
    "arguments",
    [
        ["gain", "--beta1", "1"],
        ["gain", "--beta2", "0.5"],
        ["gain", "--beta1", "0.9999"],
        ["fusion", "--beta1", "0"],
        ["fusion", "--gamma", "-1"],
        ["fusion", "--seed", "-1"],
        ["fusion", "--plot", "picture.txt"],
    ],
)
def test_values_out_of_range_are_refused(arguments):
    done = CliRunner().invoke(app, ["theory", *arguments])
    assert done.exit_code == 2
    assert arguments[1].lstrip("-") in done.output


@pytest.mark.parametrize("command", ["gain", "fusion"])
def test_help_names_the_section(command):
    text = shown(command, "--help")
    assert "of the paper" in text
    assert "--json" in text
