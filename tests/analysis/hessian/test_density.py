"""The density of eigenvalues against known spectra."""

import numpy as np
import pytest

from hessian_problems import cross_entropy, make_problem, mlp
from sgdf.analysis.hessian import Hessian, estimate_density, estimate_trace


def test_nodes_and_weights_of_few_eigenvalues():
    """As many nodes as there are different eigenvalues; the weights are their shares."""
    found = estimate_density(np.diag([1.0] * 60 + [4.0] * 30 + [-2.0] * 10), probes=3)
    assert found.nodes == pytest.approx([-2] * 3 + [1] * 3 + [4] * 3)
    assert found.weights.sum() == pytest.approx(1)
    assert found.weights.reshape(3, 3).sum(axis=1) == pytest.approx([0.1, 0.6, 0.3])
    assert found.products == 9


def test_all_steps_give_the_whole_spectrum():
    """Without reorthogonalisation, the eigenvalues far out would appear again and again."""
    spectrum = np.concatenate([np.linspace(-1, 1, 36), [10, 100, 1e3, 1e4]])
    found = estimate_density(np.diag(spectrum), probes=1, steps=100)
    np.testing.assert_allclose(found.nodes, spectrum, atol=1e-8)
    np.testing.assert_allclose(found.weights, 1 / 40, rtol=1e-6)


def test_moments_are_those_of_the_trace():
    """The quadrature is exact for them, and the random vectors are the same."""
    model, batches = make_problem(mlp)
    hessian = Hessian(model, cross_entropy, batches)
    found, matrix = hessian.density(probes=4, steps=6), hessian.dense()
    size = len(matrix)
    for power in (1, 2, 3):
        expected = estimate_trace(np.linalg.matrix_power(matrix, power), 4).value
        assert size * found.weights @ found.nodes**power == pytest.approx(expected)
    assert found.products == 24


def test_distribution_of_a_large_matrix():
    """Wigner's: the eigenvalues of a symmetric matrix of noise fill a half circle."""
    noise = np.random.default_rng(0).standard_normal((500, 500))
    found = estimate_density((noise + noise.T) / np.sqrt(2 * 500), probes=20, steps=40)
    grid, density = found.smoothed(np.linspace(-1.5, 1.5, 31), width=0.15)
    np.testing.assert_allclose(density, np.sqrt(4 - grid**2) / (2 * np.pi), atol=0.02)


@pytest.mark.parametrize("width", [None, 0.5])
def test_the_smoothed_density_has_the_integral_one(width):
    found = estimate_density(np.diag([0.0, 1, 5]), probes=2)
    grid, density = found.smoothed(width=width)
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-3)
    assert grid[0] < 0 < 5 < grid[-1]
    peak = 1 / 3 / ((width or 0.05) * np.sqrt(2 * np.pi))
    assert np.interp(5, grid, density) == pytest.approx(peak, rel=0.03)


def test_a_single_node_needs_a_width():
    found = estimate_density(np.eye(3))
    with pytest.raises(ValueError, match="width is 0"):
        found.smoothed()
    assert found.smoothed(np.array([1.0]), 1.0)[1] == pytest.approx([1 / np.sqrt(2 * np.pi)])


@pytest.mark.parametrize("change", [{"probes": 0}, {"steps": 0}])
def test_wrong_arguments(change):
    with pytest.raises(ValueError, match="must be positive"):
        estimate_density(np.eye(3), **change)
