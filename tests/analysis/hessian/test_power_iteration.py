"""Power iteration against Lanczos' method and known spectra."""

import numpy as np
import pytest

from hessian_problems import convolution, cross_entropy, make_problem
from sgdf.analysis.hessian import Hessian, find_eigenvalues, power_iteration

SEPARATED = np.diag([64.0, -32, 16, 8, -4, *np.zeros(95)])
CLOSE = np.diag(np.linspace(0.9, 1, 100))


def test_it_agrees_with_lanczos_where_eigenvalues_are_separated():
    slow = power_iteration(SEPARATED, 4, 1e-8, vectors=True)
    fast = find_eigenvalues(SEPARATED, 4, which="modulus")
    np.testing.assert_allclose(slow.values, fast.values, rtol=1e-8)
    np.testing.assert_allclose(abs(slow.vectors[:4]), np.eye(4), atol=1e-3)


def test_it_agrees_with_lanczos_on_a_network():
    model, batches = make_problem(convolution)
    hessian = Hessian(model, cross_entropy, batches)
    slow = power_iteration(hessian, 2, 1e-10, 2000)
    np.testing.assert_allclose(slow.values, hessian.top(2, which="modulus").values, rtol=1e-6)


def test_the_early_stop_is_off_where_eigenvalues_are_close():
    found = power_iteration(CLOSE, 3)
    assert (found.values < 0.998).all()
    assert (found.residuals > 0.01).all()
    assert found.products < 3 * 100


def test_a_bound_on_the_residual_holds():
    found = power_iteration(CLOSE, 1, 1e-3, 10_000, stop="residual", vectors=True)
    vector = found.vectors[:, 0]
    distance = np.linalg.norm(CLOSE @ vector - found.values[0] * vector)
    assert found.residuals[0] == pytest.approx(distance / found.values[0])
    assert found.residuals[0] <= 1e-3
    assert found.products > 2 * power_iteration(CLOSE, 1).products


def test_no_more_products_than_allowed():
    assert power_iteration(CLOSE, 3, 0.0, iterations=7).products == 21


def test_vectors_are_orthogonal_also_when_they_have_not_converged():
    vectors = power_iteration(CLOSE, 5, vectors=True).vectors
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("stop", ["change", "residual"])
def test_fewer_nonzero_eigenvalues_than_asked_for(stop):
    found = power_iteration(np.diag([2.0, 0, 0]), 5, stop=stop)
    assert found.values == pytest.approx([2, 0, 0])
    assert found.residuals[1:].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [({"k": 0}, "k is 0"), ({"iterations": 0}, "iterations is 0"), ({"stop": "x"}, "'x'")],
)
def test_wrong_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        power_iteration(CLOSE, **change)
