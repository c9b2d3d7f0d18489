"""The trace by its statistics, against dense matrices."""

import numpy as np
import pytest

from hessian_problems import SHAPES, cross_entropy, dense_hessian, make_problem
from sgdf.analysis.hessian import Hessian, estimate_trace


@pytest.mark.parametrize("network", SHAPES)
def test_within_four_standard_errors_in_99_of_100_seeds(network):
    """By the t distribution, 1 in 8,000 is further away; more than 1 of 100, once in 10,000."""
    model, batches = make_problem(network)
    matrix = dense_hessian(model.eval(), batches)
    estimates = [estimate_trace(matrix, seed=seed) for seed in range(100)]
    distances = [abs(found.value - np.trace(matrix)) / found.error for found in estimates]
    assert sum(distance <= 4 for distance in distances) >= 99
    # The error is not too large either: of as many, 68 are expected within one.
    assert 55 <= sum(distance <= 1 for distance in distances) <= 80


@pytest.mark.parametrize("network", SHAPES)
def test_of_a_network(network):
    model, batches = make_problem(network)
    hessian = Hessian(model, cross_entropy, batches)
    expected = np.trace(dense_hessian(model.eval(), batches))
    for seed in range(2):
        found = hessian.trace(probes=30, seed=seed)
        assert abs(found.value - expected) <= 4 * found.error
    assert found.products == 30
    assert hessian.products == 60


def test_the_samples_have_the_variance_of_random_signs():
    matrix = np.random.default_rng(0).standard_normal((20, 20))
    matrix = matrix + matrix.T
    found = estimate_trace(matrix, 4_000)
    off_diagonal = matrix - np.diag(np.diag(matrix))
    assert found.samples.var() == pytest.approx(2 * (off_diagonal**2).sum(), rel=0.1)
    assert found.value == found.samples.mean()
    assert found.error == pytest.approx(np.sqrt(2 * (off_diagonal**2).sum() / 4_000), rel=0.05)


def test_a_diagonal_matrix_has_no_error():
    found = estimate_trace(np.diag(np.arange(10.0)), 5)
    assert found.value == 45
    assert found.error == 0


def test_more_probes_keep_the_first_samples():
    matrix = np.ones((20, 20))
    few, many, other = (estimate_trace(matrix, *given) for given in ((10,), (25,), (10, 1)))
    assert np.array_equal(many.samples[:10], few.samples)
    assert len(set(many.samples)) > 2
    assert not np.array_equal(other.samples, few.samples)


def test_one_probe_has_no_standard_error():
    with pytest.raises(ValueError, match="probes is 1"):
        estimate_trace(np.eye(3), 1)
