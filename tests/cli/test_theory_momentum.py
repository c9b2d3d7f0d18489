"""``sgdf theory momentum`` and ``sgdf theory classical`` as people type them."""

import json
import re

import pytest
from commands import sgdf


def test_momentum_shows_tables_and_writes_files(tmp_path):
    numbers, picture = tmp_path / "numbers.json", tmp_path / "picture.svg"
    files = ("--json", numbers, "--plot", picture)
    said = sgdf("theory", "momentum", "--beta", 0.5, "--beta", 0.8, "--seed", 3, *files)
    assert re.search(r"Var m\n", said)
    assert "The stationary bias is 0 for every β" in said
    assert json.loads(numbers.read_text())["beta"] == [0.5, 0.8]
    text = picture.read_text()
    assert "2u²σ² / ((1−β)(2(1+β) − a))" in text
    assert "printed bound" in text


def test_one_decay_without_a_way_down(tmp_path, recwarn):
    """From the minimum there is no bias to draw on a logarithmic axis."""
    said = sgdf("theory", "momentum", "--beta", 0.5, "--theta0", 0.0, "--plot", tmp_path / "a.png")
    assert said.count("1.36 (β = 0.5)") == 1
    assert not recwarn.list


def test_classical_shows_tables_and_writes_files(tmp_path):
    numbers, picture = tmp_path / "numbers.json", tmp_path / "picture.svg"
    said = sgdf("theory", "classical", "--steps", 20, "--json", numbers, "--plot", picture)
    assert "Best contraction of a step, without noise" in said
    assert "0.9802" in said  # 99 / 101, plain gradient descent at a condition number of 100
    assert json.loads(numbers.read_text())["steps"] == 20
    assert "effective rate" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["momentum", "--beta", 1.0], "1 is not at least 0 and below 1"),
        (["momentum", "--beta", 1.5], "--beta"),
        (["momentum", "--sigma", -1.0], "--sigma"),
        (["momentum", "--sigma", 0.0], "Invalid sigma, expected a positive number: 0.0"),
        (["momentum", "--beta", 0.9999], "choose a smaller beta, or a larger alpha or lam"),
        (["momentum", "--alpha", 2.0], "No stationary law: alpha * u * lam = 2 is not between"),
        (["momentum", "--alpha", 1e-6], "the path settles after"),
        (["momentum", "--beta", 0.5, "--u", 0.1], "Invalid u, expected a number at least 0.5"),
        (["momentum", "--plot", "here.txt"], "does not end in .png"),
        (["classical", "--condition", 0.5], "--condition"),
        (["classical", "--beta", -0.1], "-0.1 is not at least 0 and below 1"),
    ],
)
def test_mistakes_are_named(arguments, message):
    said = " ".join(re.sub(r"[│╭╰─╮╯]", "", sgdf("theory", *arguments, code=2)).split())
    assert message in said
    assert "Traceback" not in said
