"""Eigenvalues against dense matrices and known spectra."""

import numpy as np
import pytest

from hessian_problems import SHAPES, cross_entropy, dense_hessian, make_problem, mlp
from sgdf.analysis.hessian import ConvergenceError, Hessian, RecordedProducts, find_eigenvalues


def rotated(spectrum, seed=0):
    """Return a dense symmetric matrix with these eigenvalues."""
    noise = np.random.default_rng(seed).standard_normal((len(spectrum), len(spectrum)))
    basis = np.linalg.qr(noise)[0]
    return basis * spectrum @ basis.T


@pytest.mark.parametrize("network", SHAPES)
@pytest.mark.parametrize("which", ["largest", "smallest", "modulus"])
def test_eigenvalues_are_those_of_the_dense_matrix(network, which):
    model, batches = make_problem(network)
    hessian = Hessian(model, cross_entropy, batches)
    exact = np.linalg.eigvalsh(dense_hessian(model.eval(), batches))
    rank = {"largest": -exact, "smallest": exact, "modulus": -abs(exact)}[which]
    found = hessian.top(5, tol=1e-10, which=which)
    np.testing.assert_allclose(found.values, exact[np.argsort(rank)][:5], atol=1e-8)
    assert found.products == hessian.products
    assert found.vectors is None


def test_lanczos_and_not_the_dense_matrix_found_them():
    """So few products that the matrix cannot have been formed."""
    model, batches = make_problem(mlp)
    exact = np.linalg.eigvalsh(dense_hessian(model.eval(), batches))
    found = Hessian(model, cross_entropy, batches).top(1, tol=1e-8)
    np.testing.assert_allclose(found.values, exact[-1:], atol=1e-8)
    assert found.products < len(exact)


def test_known_spectrum():
    spectrum = np.concatenate([[100.0, 50, 20, -70, -30], np.linspace(-1, 1, 395)])
    matrix = rotated(spectrum)
    assert find_eigenvalues(matrix, 3).values == pytest.approx([100, 50, 20], rel=1e-8)
    assert find_eigenvalues(matrix, 2, which="smallest").values == pytest.approx([-70, -30])
    both = find_eigenvalues(matrix, 4, which="modulus", vectors=True)
    assert both.values == pytest.approx([100, -70, 50, -30])
    np.testing.assert_allclose(both.vectors.T @ both.vectors, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(matrix @ both.vectors, both.vectors * both.values, atol=1e-4)


@pytest.mark.parametrize("tol", [1e-1, 1e-4])
def test_residuals_are_measured(tol):
    matrix = rotated(np.linspace(0.5, 1, 300) ** 8)
    found = find_eigenvalues(matrix, 5, tol=tol, vectors=True)
    distances = np.linalg.norm(matrix @ found.vectors - found.vectors * found.values, axis=0)
    np.testing.assert_allclose(found.residuals, distances / found.values, rtol=1e-6)
    assert (found.residuals <= tol).all()


def test_residuals_show_the_rounding_of_the_products():
    """An estimate from the Lanczos process alone would not see it."""
    exact = rotated(np.linspace(0, 1, 200) ** 20)

    class Rounded:
        shape = exact.shape

        def __matmul__(self, vectors):
            return (exact @ vectors).astype(np.float16).astype(np.float64)

    found = find_eigenvalues(Rounded(), 5, tol=1e-2)
    finer = find_eigenvalues(exact, 5, tol=1e-8)
    assert finer.residuals.max() < 1e-8 < 1e-5 < found.residuals.max()


def test_as_many_products_as_are_counted():
    matrix, calls = rotated(np.arange(200.0)), []

    class Counted:
        shape = matrix.shape

        def __matmul__(self, vectors):
            calls.extend(range(vectors.size // 200))
            return matrix @ vectors

    found = find_eigenvalues(Counted(), 4)
    assert found.products == len(calls)


def test_the_seed_decides():
    matrix = rotated(np.arange(200.0))
    one, same, other = (find_eigenvalues(matrix, 4, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(one.values, same.values)
    assert np.array_equal(one.residuals, same.residuals)
    assert not np.array_equal(one.residuals, other.residuals)


@pytest.mark.parametrize("k", [10, 29, 30, 50])
def test_a_small_matrix_is_decomposed_whole(k):
    spectrum = np.arange(-10.0, 20)
    found = find_eigenvalues(rotated(spectrum), k, which="smallest", vectors=True)
    assert found.values == pytest.approx(spectrum[:k], abs=1e-10)
    assert found.vectors.shape == (30, min(k, 30))
    if k >= 15:
        assert found.products == 30


@pytest.mark.parametrize("rank", [0, 3])
def test_fewer_nonzero_eigenvalues_than_asked_for(rank):
    spectrum = np.zeros(200)
    spectrum[:rank] = [5, 3, 2][:rank]
    found = find_eigenvalues(np.diag(spectrum), 6)
    assert found.values == pytest.approx(spectrum[:6], abs=1e-10)
    again = find_eigenvalues(np.diag(spectrum), 6)
    assert np.array_equal(again.values, found.values)
    assert again.products == found.products


class InSinglePrecision:
    """Products with a matrix that are rounded as those of a network are."""

    def __init__(self, matrix):
        self.matrix, self.shape = matrix.astype(np.float32), matrix.shape

    def __matmul__(self, vectors):
        return (self.matrix @ vectors.astype(np.float32)).astype(np.float64)


@pytest.mark.parametrize("lowest", [0.0, 1e-4, -0.5, -300.0])
def test_the_accuracy_of_the_smallest_is_relative_to_the_largest_in_modulus(lowest):
    """That of a convex loss is nearly 0, and no float32 product knows it to a thousandth."""
    spectrum = np.concatenate([[100.0, 30.0], np.full(300, lowest), np.geomspace(1.0, 1e-3, 98)])
    found = find_eigenvalues(InSinglePrecision(rotated(spectrum)), 1, 1e-3, "smallest")
    size = max(abs(lowest), 100.0)
    assert abs(found.values[0] - lowest) < 1e-3 * size
    assert found.residuals[0] < 1e-3
    assert found.products < 400


def test_the_smallest_of_equal_eigenvalues():
    for value in (3.0, 0.0, -3.0):
        found = find_eigenvalues(value * np.eye(50), 1, which="smallest")
        assert found.values == pytest.approx([value], abs=1e-12)
        assert found.residuals == pytest.approx([0.0], abs=1e-12)


def test_equal_eigenvalues_are_all_found():
    spectrum = np.concatenate([np.full(3, 2.0), np.linspace(0, 1, 197)])
    assert find_eigenvalues(rotated(spectrum), 4).values == pytest.approx([2, 2, 2, 1])


def test_what_has_converged_is_in_the_error():
    matrix = rotated(np.concatenate([[1e3, 1e2], np.linspace(0, 1, 998)]))
    with pytest.raises(ConvergenceError, match="2 of 5 eigenvalues converged to 1e-10") as caught:
        find_eigenvalues(matrix, 5, tol=1e-10, iterations=2)
    found = caught.value.found
    assert found.values == pytest.approx([1e3, 1e2])
    assert found.residuals.max() < 1e-9
    assert f"{found.products} products" in str(caught.value)


def test_nothing_may_have_converged(tmp_path):
    matrix = rotated(np.linspace(0, 1, 200))
    for operator in (matrix, RecordedProducts(matrix, tmp_path)):
        with pytest.raises(ConvergenceError, match="0 of 1 eigenvalues converged") as caught:
            find_eigenvalues(operator, 1, tol=1e-12, iterations=1)
        assert len(caught.value.found.values) == 0


@pytest.mark.parametrize(("change", "message"), [({"k": 0}, "k is 0"), ({"which": "LA"}, "'LA'")])
def test_wrong_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        find_eigenvalues(np.eye(3), **change)
