"""Products on disk: what was killed continues, and nothing foreign is replayed."""

import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from hessian_problems import cross_entropy, make_problem, mlp
from locations import SUPPORT
from sgdf.analysis.hessian import Hessian, RecordedProducts, power_iteration

KILLED_IN_A_PRODUCT = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from hessian_problems import cross_entropy, make_problem, mlp
from sgdf.analysis.hessian import Hessian, RecordedProducts

def loss(model, batch):
    if hessian.products == 12:
        os.kill(os.getpid(), signal.SIGKILL)
    return cross_entropy(model, batch)

model, batches = make_problem(mlp)
hessian = Hessian(model, loss, batches)
RecordedProducts(hessian, sys.argv[2]).top(3, vectors=True)
"""


def make_hessian():
    """Return the Hessian of a small network."""
    model, batches = make_problem(mlp)
    return Hessian(model, cross_entropy, batches)


class Dying:
    """An operator that fails after some products, as if its process had been killed."""

    def __init__(self, operator, life):
        self.operator, self.shape, self.life = operator, operator.shape, life

    def __matmul__(self, vectors):
        if not self.life:
            raise InterruptedError
        self.life -= 1
        return self.operator @ vectors


def same(one, other):
    """Return whether two results are equal to the last bit."""
    return all(np.array_equal(vars(one)[name], vars(other)[name]) for name in vars(one))


def test_a_killed_process_continues_where_it_was(tmp_path):
    command = [sys.executable, "-c", KILLED_IN_A_PRODUCT, str(SUPPORT), str(tmp_path)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    whole = make_hessian()
    expected = whole.top(3, vectors=True)
    hessian = make_hessian()
    with RecordedProducts(hessian, tmp_path) as products:
        found = products.top(3, vectors=True)
    # The first of the 12 is the check of the operator, which is made again.
    assert hessian.products == whole.products - 11 + 1
    assert np.array_equal(found.values, expected.values)
    assert np.array_equal(found.vectors, expected.vectors)
    assert found.products == expected.products


@pytest.mark.parametrize(
    "call",
    [
        lambda operator: operator.top(3),
        lambda operator: operator.trace(20),
        lambda operator: operator.density(2, 10),
        lambda operator: power_iteration(operator, 2, iterations=15),
    ],
    ids=["top", "trace", "density", "power_iteration"],
)
def test_every_algorithm_continues(tmp_path, call):
    matrix = make_hessian().dense()
    for _ in range(2):
        with (
            pytest.raises(InterruptedError),
            RecordedProducts(Dying(matrix, 8), tmp_path) as products,
        ):
            call(products)
    hessian = Dying(matrix, 1000)
    with RecordedProducts(hessian, tmp_path) as products:
        found = call(products)
    with RecordedProducts(matrix, tmp_path / "other") as products:
        expected = call(products)
    assert same(found, expected)
    assert 1000 - hessian.life <= products.products - 14 + 1
    again = Dying(matrix, 1)  # enough to check that it is the same operator
    with RecordedProducts(again, tmp_path) as products:
        assert same(call(products), expected)


def test_products_are_found_in_any_order_and_more_can_be_added(tmp_path):
    hessian = make_hessian()
    with RecordedProducts(hessian, tmp_path) as products:
        products.top(2)
        products.trace(10)
    hessian = make_hessian()
    with RecordedProducts(hessian, tmp_path) as products:
        assert len(products.trace(15).samples) == 15
        assert hessian.products == 1 + 5
        products.top(2)
    assert hessian.products == 1 + 5


def test_kinds_of_vectors(tmp_path):
    matrix = make_hessian().dense()
    vector = np.random.default_rng(0).standard_normal((51, 3))
    for _ in range(2):
        with RecordedProducts(matrix, tmp_path) as products:
            assert np.array_equal(products @ vector[:, 1], matrix @ vector[:, 1].copy())
            found = products @ torch.from_numpy(vector)
            assert found.dtype == torch.float64
            np.testing.assert_allclose(found, matrix @ vector, atol=1e-14)
            assert products.products == 4


def fill(folder):
    """Record the products of a trace, and return the file, the trace and a record's length."""
    with RecordedProducts(make_hessian(), folder) as products:
        return folder / "products.bin", products.trace(10), 16 + 8 * 51 + 16


@pytest.mark.parametrize("cut", [1, 16, 300, 8 * 51 + 31])
def test_a_half_written_record_is_dropped(tmp_path, cut):
    path, expected, length = fill(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    hessian = make_hessian()
    with RecordedProducts(hessian, tmp_path) as products:
        assert same(products.trace(10), expected)
    assert hessian.products == 1 + 1
    assert path.read_bytes() == whole
    assert (len(whole) - 24) == 10 * length


@pytest.mark.parametrize("kept", [0, 5, 23, 24])
def test_a_half_written_header_is_written_again(tmp_path, kept):
    path, expected, _ = fill(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    with RecordedProducts(make_hessian(), tmp_path) as products:
        assert same(products.trace(10), expected)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("place", ["digest", "product", "all", "several"])
def test_a_record_that_is_not_as_written_is_computed_again(tmp_path, place):
    path, expected, length = fill(tmp_path)
    content = bytearray(path.read_bytes())
    start = 24 + 4 * length
    span = {"digest": (0, 16), "product": (50, 8), "all": (0, length), "several": (0, 3 * length)}
    offset, size = span[place]
    content[start + offset : start + offset + size] = bytes(size)
    path.write_bytes(content)
    for computed in (3 if place == "several" else 1, 0):
        hessian = make_hessian()
        with RecordedProducts(hessian, tmp_path) as products:
            assert same(products.trace(10), expected)
        assert hessian.products == 1 + computed


def test_products_of_another_operator_are_refused(tmp_path):
    path, _, length = fill(tmp_path)
    before = path.read_bytes()
    model, batches = make_problem(mlp)
    with torch.no_grad():
        model[0].weight[0, 0] += 0.01
    other = Hessian(model, cross_entropy, batches)
    with pytest.raises(ValueError, match=r"products\.bin has products of another operator"):
        RecordedProducts(other, tmp_path)
    with pytest.raises(ValueError, match="no products of an operator with 3 columns"):
        RecordedProducts(np.eye(3), tmp_path)
    assert path.read_bytes() == before
    # If the product that shows it cannot be read, no other one is trusted.
    path.write_bytes(before[:24] + bytes(length) + before[24 + length :])
    with RecordedProducts(other, tmp_path) as products:
        assert same(products.trace(10), Hessian(model, cross_entropy, batches).trace(10))


def test_products_that_differ_by_rounding_are_of_the_same_operator(tmp_path):
    matrix = make_hessian().dense()
    with RecordedProducts(matrix, tmp_path) as products:
        expected = products.trace(10)
    with RecordedProducts(matrix * (1 + 1e-7), tmp_path) as products:
        assert same(products.trace(10), expected)


def test_a_foreign_file_is_left_alone(tmp_path):
    path = tmp_path / "products.bin"
    path.write_bytes(b"a thesis")
    with pytest.raises(ValueError, match="no products"):
        RecordedProducts(np.eye(3), tmp_path)
    assert path.read_bytes() == b"a thesis"


def test_a_folder_is_used_by_one_at_a_time(tmp_path):
    with RecordedProducts(np.eye(3), tmp_path), pytest.raises(RuntimeError, match="in use"):
        RecordedProducts(np.eye(3), tmp_path)
    RecordedProducts(np.eye(3), tmp_path)  # and nobody has to close it
    RecordedProducts(np.eye(3), tmp_path).close()


def test_a_zero_operator_can_be_recorded(tmp_path):
    for _ in range(2):
        with RecordedProducts(np.zeros((30, 30)), tmp_path) as products:
            assert products.trace(3).value == 0
