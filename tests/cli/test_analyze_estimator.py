"""``sgdf analyze estimator`` as people type it, and mistakes with all analyses of experiments."""

import json
import re

import pytest
from commands import SPEC, sgdf

SMALL = SPEC.replace('["sgdf", "sgd"]', '"sgdf"')


def message_of(*arguments):
    """Return what a command that is refused says, without the frame around it."""
    return " ".join(re.sub(r"[│╭╰─╮╯]", "", sgdf(*arguments, code=2)).split())


def test_the_page_and_the_numbers_are_written(place):
    (place / "small.toml").write_text(SMALL)
    options = (
        "--steps",
        4,
        "--every",
        2,
        "--draws",
        2,
        "--beta1",
        0.8,
        "--beta1",
        0.8,
        "--out",
        "out",
    )
    said = sgdf("analyze", "estimator", "small.toml", *options)
    assert "Page: out/index.html" in said
    assert "The page shows 1 run of sgdf. With other options this command replaces it" in said
    numbers = json.loads((place / "out/results.json").read_text())
    assert numbers["settings"]["beta1"] == [0.8]
    (run,) = numbers["runs"].values()
    assert run["name"] == "sgdf, seed 0"
    assert list((place / "out/figures").glob("estimator*.png"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["estimator", "nothing.toml"], "nothing.toml: no such file, nor a bundled experiment"),
        (["estimator", "mine.toml", "--draws", 1], "--draws"),
        (
            ["estimator", "mine.toml", "--steps", 4, "--every", 5],
            "every 5 steps: the run takes only 4 steps; choose a smaller --every",
        ),
        (["estimator", "mine.toml", "--every", 1000], "nothing can be measured every 1,000 steps"),
        (["estimator", "mine.toml", "--beta1", 1.5], "beta1 = [1.5]: must be one or more between"),
        (
            ["estimator", "mine.toml", "--optimizer", "adam"],
            "no run of adam; there are runs of sgd",
        ),
        (["estimator", "mine.toml", "--seed", 9], "no run with seed 9; there are runs with seed 0"),
        (["estimator", "mine.toml", "--set", "train.clip_norm=1.0"], "clip_norm"),
        (["hessian", "nowhere"], "nowhere: no such folder"),
        (["landscape", "nowhere"], "nowhere: no such folder"),
        (["hessian", "mine.toml"], "no such folder; sgdf run keeps its runs in results/NAME"),
    ],
)
def test_mistakes_are_named(place, arguments, message):
    said = message_of("analyze", *arguments)
    assert message in said
    assert "Traceback" not in said


def test_only_finished_runs_have_a_hessian(place):
    sgdf("run", "mine.toml", "--dry-run")
    (place / "results" / "mine" / "runs").mkdir(parents=True, exist_ok=True)
    assert "no finished run among 0 runs" in message_of("analyze", "hessian", "mine")
