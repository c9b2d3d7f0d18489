"""What docs/paper/theory.md quotes, beside the functions that it is from."""

import re

import numpy as np
import pytest

from locations import ROOT
from sgdf.analysis.theory.momentum import BETAS, TIMES
from sgdf.analysis.theory.quadratic import Quadratic
from sgdf.theory import (
    counter_examples,
    drift_response,
    expected_running_variance,
    fuse,
    gain_law,
    jump_response,
    mmse_gain,
    running_mean_moments,
    steady_kalman,
)

PAGE = (ROOT / "docs/paper/theory.md").read_text()


def test_the_table_of_errors_is_the_commands():
    """All but its simulated column, which the tests of the command hold to its closed form."""
    _, table = PAGE.split("| β | t = 20 | t = 100 | t = 1000 |")
    rows = [
        [float(cell.split("±")[0]) for cell in line.strip("| ").split("|")]
        for line in re.findall(r"^\| [0-9].*$", table.split("\n\n")[0], re.M)
    ]
    problem = Quadratic(1.0, 1.0, 0.1, None, 10.0, 0)
    assert tuple(row[0] for row in rows) == BETAS
    for beta, *errors, _, printed, corrected in rows:
        assert errors == pytest.approx(problem.errors(beta, TIMES), rel=6e-4)
        assert (printed, corrected) == pytest.approx(problem.bounds(beta), rel=6e-4)


def test_counter_examples_that_the_page_names_exist():
    """[name] is one of sgdf.theory.counter_examples(), and all of them are named."""
    named = set(re.findall(r"\[([a-z][a-z0-9-]+)\](?!\()", PAGE))
    assert named == {case.name for case in counter_examples()}


def rows_under(title):
    """Return the rows of the page's table with these columns, as numbers."""
    _, table = PAGE.split(f"{title}\n")
    lines = re.findall(r"^\| [0-9].*$", table.split("\n\n")[0], re.M)
    return [[float(cell.removesuffix(" σ ")) for cell in one[1:-1].split("|")] for one in lines]


def test_the_table_of_the_gain_is_the_law():
    rows = rows_under("| β₁ | derived | E K | E √K |")
    assert len(rows) == 5
    for beta1, *shown in rows:
        law = gain_law(beta1)
        assert shown == pytest.approx([law.derived, law.mean, law.mean_root], rel=6e-4)


def test_the_table_of_fusions_is_exact():
    rows = rows_under("| step | Var m̂ | derived K | promised | true | best K | its variance |")
    assert len(rows) == 4
    for step, *shown in rows:
        moments = running_mean_moments(0.9, step)
        sources = (0.0, moments.corrected_variance, 0.0, 1.0)
        promised = fuse(*sources)
        true = fuse(*sources, covariance=moments.covariance, gain=promised.gain)
        best = fuse(*sources, covariance=moments.covariance)
        expected = (
            *(moments.corrected_variance, promised.gain, promised.variance, true.variance),
            *(best.gain, best.variance),
        )
        assert shown == pytest.approx([float(value) for value in expected], rel=6e-4)


def test_the_table_of_the_correction_is_exact():
    rows = rows_under("| mean μ | t = 2 | t = 5 | t = 10 | t = 100 | t = 1000 |")
    assert len(rows) == 3
    steps = np.array([2, 5, 10, 100, 1000])
    moments = running_mean_moments(0.9, steps)
    for mean, *shown in rows:
        running = expected_running_variance((0.9, 0.999), steps, mean=mean)
        variance = moments.variance * running / (1 - 0.999**steps)
        assert shown == pytest.approx(variance / moments.corrected_variance, abs=0.0051)


def test_the_errors_on_random_walks_are_measured():
    """Within 5 %; a standard error is 1 %."""
    rows = rows_under(
        "| q | error of m̂ | of ĝ, γ = ½ | of ĝ, γ = 1 | of the Kalman filter | of g |"
    )
    drifts = [row[0] for row in rows]
    found = [drift_response(drifts, gamma=gamma) for gamma in (0.5, 1.0)]
    best = steady_kalman(process_noise=drifts, observation_noise=1.0)
    columns = (
        *(found[0].mean_error, found[0].estimate_error, found[1].estimate_error),
        *(best.signal_variance, np.ones(3)),
    )
    np.testing.assert_allclose([row[1:] for row in rows], np.transpose(columns), rtol=0.05)


def test_the_steps_after_jumps_are_measured():
    rows = rows_under("| J/σ | best gain | E K of the filter | m̂/J | ĝ/J, γ = ½ |")
    jumps = np.array([row[0] for row in rows])
    found = jump_response(jumps)
    moments = running_mean_moments(0.9)
    best = mmse_gain(
        moments.corrected_variance, 1.0, bias=0.9 * jumps, covariance=moments.covariance
    )
    columns = best, found.gain[0], found.mean_share[0], found.estimate_share[0]
    np.testing.assert_allclose([row[1:] for row in rows], np.transpose(columns), rtol=0.05)


def test_every_test_that_the_page_names_exists():
    files = {
        str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tests").rglob("*.py")
    }
    named = re.findall(r"`((?:tests/[\w/.]+?\.py)?(?:::)?(?:test_\w+)?)`", PAGE)
    tests = [span for span in named if span]
    assert len(tests) > 40
    for span in tests:
        file, _, name = span.rpartition("::") if "::" in span or "/" not in span else (span, "", "")
        places = [files[file]] if file else list(files.values())
        assert not name or any(f"def {name}(" in text for text in places), span
