"""What ``sgdf theory momentum`` and ``sgdf theory classical`` show, beside the closed forms."""

import json
import math

import numpy as np
import pytest

from sgdf.analysis.theory.classical import study_classical
from sgdf.analysis.theory.momentum import study_momentum
from sgdf.analysis.theory.quadratic import Measured, Quadratic
from sgdf.theory import best_contraction, excess_loss, momentum_error, momentum_loss


@pytest.fixture(scope="module")
def momentum():
    return study_momentum(lam=2.0, sigma=0.5, alpha=0.1, betas=[0.8, 0.5], theta0=3.0, seed=4)


@pytest.fixture(scope="module")
def classical():
    return study_classical(betas=[0.5, 0.0], steps=60, condition=50.0)


@pytest.mark.parametrize("model", ["recursion", "sde"])
def test_simulated_moments_are_the_closed_ones(momentum, model):
    """Within 5 standard errors, and 1.5 % of the method in continuous time."""
    numbers = momentum.numbers
    assert numbers["beta"] == [0.5, 0.8]
    share = 0.0 if model == "recursion" else 0.015
    for closed, simulated in zip(
        numbers["closed"][model], numbers["simulated"][model], strict=True
    ):
        scale = math.sqrt(closed["var_m"] * closed["var_theta"])
        for name, size in (("var_m", 1.0), ("var_theta", 1.0), ("cov", scale / closed["var_m"])):
            slack = share * size * closed["var_theta" if name == "var_theta" else "var_m"]
            gap = abs(simulated[name]["value"] - closed[name])
            assert gap <= 5.0 * simulated[name]["error"] + slack


def test_errors_are_those_of_the_theory(momentum):
    rule = (2.0, 0.5, 0.1, 0.8)
    path = momentum_error(*rule, steps=1000, theta0=3.0).mean_square
    expected = [path[20], path[100], path[1000], momentum_error(*rule).mean_square]
    np.testing.assert_allclose(momentum.numbers["mean_square_error"][1], expected)
    (table,) = [table for table in momentum.tables if table.name == "mean-square-error"]
    assert [cell.order for cell in table.rows[1]][1:5] == pytest.approx(expected)


def test_losses_are_those_of_the_theory(momentum):
    law = momentum_loss(2.0, 0.5, 0.1, 0.5, steps=100, theta0=3.0)
    at = momentum.numbers["loss"][0][1]
    assert at["mean"] == pytest.approx(law.mean[100])
    assert at["deviation"] == pytest.approx(math.sqrt(law.variance[100]))
    for name in ("mean", "deviation"):
        simulated = at[f"simulated_{name}"]
        assert abs(simulated["value"] - at[name]) <= 5.0 * simulated["error"]


def test_the_seed_chooses_the_simulation():
    one, same, other = (
        Quadratic(1.0, 1.0, 0.1, None, 1.0, seed).simulate_stationary(0.5, "recursion")["var_m"]
        for seed in (0, 0, 1)
    )
    assert one == same
    assert one.value != other.value


def test_numbers_show_the_digits_that_their_error_allows():
    assert Measured(0.123456, 0.0031).cell.text == "0.1235 ± 0.0031"
    assert Measured(123.456, 25.0).cell.text == "123 ± 25"
    assert Measured(0.5, 0.0).cell.text == "0.5000 ± 0.0000"


def test_a_study_writes_its_numbers_and_its_picture(classical, tmp_path):
    classical.write_json(tmp_path / "numbers.json")
    classical.draw(tmp_path / "picture.png")
    found = json.loads((tmp_path / "numbers.json").read_text())
    assert found["study"] == "classical"
    assert found["batch"][-1] == "inf"
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_the_floor_and_the_speed_are_those_of_the_theory(classical):
    numbers = classical.numbers
    assert numbers["beta"] == [0.0, 0.5]
    row = dict(zip(numbers["effective_rate"], numbers["excess_loss"], strict=True))
    assert row[1.0] == pytest.approx([excess_loss(1.0, 0.0), excess_loss(1.0, 0.5)])
    assert row[5.0][0] == math.inf
    speeds = dict(zip(numbers["conditions"], numbers["best_contraction"], strict=True))
    assert speeds[100.0][-1] == pytest.approx(best_contraction(100.0).contraction)
    (floors,) = [table for table in classical.tables if table.name == "floor"]
    assert floors.rows[-1][1].text == "–"


def test_momentum_gains_with_the_batch(classical):
    """From next to nothing with batches of 1 to orders of magnitude with the full batch."""
    losses = np.array(classical.numbers["best_loss"])
    gains = losses[:, 0] / losses[:, 1]
    assert 1.0 <= gains[0] < 1.05
    assert gains[-1] > 50.0
    assert np.all(np.diff(gains) > 0.0)
