"""Products with the Hessian against the dense matrix, and what is refused."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn

from hessian_problems import (
    SHAPES,
    Tied,
    convolution,
    cross_entropy,
    dense_hessian,
    make_problem,
    mlp,
)
from sgdf.analysis.hessian import Hessian


@pytest.mark.parametrize("network", SHAPES)
def test_products_are_those_of_the_dense_matrix(network):
    model, batches = make_problem(network)
    hessian = Hessian(model, cross_entropy, batches)
    expected = dense_hessian(model.eval(), batches)
    assert hessian.shape == expected.shape
    vector = np.random.default_rng(0).standard_normal(len(expected))
    np.testing.assert_allclose(hessian @ vector, expected @ vector, atol=1e-12)
    np.testing.assert_allclose(hessian.dense(), expected, atol=1e-12)
    unsymmetrised = hessian @ np.eye(len(expected))
    np.testing.assert_allclose(unsymmetrised, unsymmetrised.T, atol=1e-12)


def test_known_hessian_of_a_quadratic_loss():
    """Of mean((x·w − y)²) it is 2 XᵀX / n, wherever the weights are."""
    inputs = torch.randn(20, 6, dtype=torch.float64)
    model = nn.Linear(6, 1, bias=False).double()
    batches = [(part, torch.ones(len(part), 1)) for part in inputs.split(8)]
    hessian = Hessian(
        model, lambda model, batch: (model(batch[0]) - batch[1]).square().mean(), batches
    )
    np.testing.assert_allclose(hessian.dense(), 2 * inputs.T @ inputs / 20, atol=1e-13)


def test_a_tied_weight_counts_once():
    model, batches = make_problem(Tied)
    assert Hessian(model, cross_entropy, batches).shape == (25, 25)


def test_array_and_tensor_give_their_own_kind_in_float64():
    model, batches = make_problem(mlp, torch.float32)
    hessian = Hessian(model, cross_entropy, batches)
    vector = torch.randn(hessian.shape[0])
    product = hessian @ vector
    assert isinstance(product, torch.Tensor)
    assert product.dtype == torch.float64
    array = hessian @ vector.numpy()
    assert isinstance(array, np.ndarray)
    assert array.dtype == hessian.dtype == np.float64
    assert np.array_equal(array, product)
    columns = torch.stack([vector, -2 * vector, torch.ones_like(vector)], dim=1)
    np.testing.assert_allclose((hessian @ columns)[:, 0], product, atol=1e-7)
    np.testing.assert_allclose((hessian @ columns)[:, 2], hessian @ columns[:, 2], atol=1e-7)
    assert hessian.products == 1 + 1 + 3 + 3 + 1


def test_scipy_takes_it():
    model, batches = make_problem(convolution)
    hessian = Hessian(model, cross_entropy, batches)
    operator = hessian.linear_operator()
    expected = np.linalg.eigvalsh(hessian.dense())
    found = eigsh(operator, 3, which="LA", return_eigenvectors=False)
    np.testing.assert_allclose(np.sort(found), expected[-3:], rtol=1e-8)
    columns = np.eye(hessian.shape[0])[:, :2]
    assert np.array_equal(operator @ columns, hessian @ columns)
    assert np.array_equal(operator.T @ columns[:, 0], hessian @ columns[:, 0])


def test_batches_weigh_as_many_examples_as_they_have():
    model, batches = make_problem(mlp, sizes=(7, 2))
    first, second = (Hessian(model, cross_entropy, [batch]).dense() for batch in batches)
    both = Hessian(model, cross_entropy, batches)
    np.testing.assert_allclose(both.dense(), (7 * first + 2 * second) / 9, atol=1e-14)
    given = Hessian(model, cross_entropy, batches, weights=[1, 3])
    np.testing.assert_allclose(given.dense(), (first + 3 * second) / 4, atol=1e-14)


def test_examples_are_counted_in_the_first_tensor_of_a_batch():
    model, batches = make_problem(mlp, sizes=(7, 2))
    named = [{"name": "one", "pair": [inputs, targets]} for inputs, targets in batches]
    hessian = Hessian(model, lambda model, batch: cross_entropy(model, batch["pair"]), named)
    assert np.array_equal(hessian.dense(), Hessian(model, cross_entropy, batches).dense())


def test_frozen_parameters_are_left_out():
    model, batches = make_problem(mlp)
    whole = Hessian(model, cross_entropy, batches).dense()
    model[0].requires_grad_(False)
    hessian = Hessian(model, cross_entropy, batches)
    np.testing.assert_allclose(hessian.dense(), whole[30:, 30:], atol=1e-14)
    assert not model[0].weight.requires_grad


def test_parameters_that_the_loss_ignores_or_is_linear_in():
    model = nn.ParameterDict({name: nn.Parameter(torch.ones(2)) for name in ("a", "b", "c")})
    hessian = Hessian(
        model, lambda m, x: (m["a"] * x).square().sum() + m["b"].sum(), [torch.ones(2)]
    )
    assert np.array_equal(hessian.dense(), np.diag([2.0, 2, 0, 0, 0, 0]))
    linear = Hessian(model, lambda m, x: m["b"].sum(), [torch.ones(2)])
    assert not linear.dense().any()


def test_weight_decay_adds_to_the_diagonal():
    model, batches = make_problem(mlp)
    plain = Hessian(model, cross_entropy, batches).dense()
    decayed = Hessian(model, cross_entropy, batches, weight_decay=0.25).dense()
    np.testing.assert_allclose(decayed, plain + 0.25 * np.eye(len(plain)), atol=1e-14)


def test_training_mode_differentiates_the_statistics_of_the_batch():
    model, batches = make_problem(convolution, sizes=(6,))
    hessian = Hessian(model.eval(), cross_entropy, batches, training=True)
    found = hessian.dense()
    model.train()
    for buffer in model.buffers():
        buffer.zero_()  # no running statistic matters
    expected = dense_hessian(model, batches)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    evaluated = Hessian(model, cross_entropy, batches).dense()
    assert abs(found - evaluated).max() > 0.01


def test_dropout_drops_the_same_in_each_product():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Dropout(0.5), nn.Linear(20, 3)).double()
    _, batches = make_problem(mlp)
    hessian = Hessian(model, cross_entropy, batches, training=True)
    vector = torch.randn(hessian.shape[0])
    before = hessian @ vector
    torch.rand(1)
    assert torch.equal(hessian @ vector, before)
    matrix = hessian @ np.eye(hessian.shape[0])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-14)
    same = Hessian(model, cross_entropy, [batches[0], batches[0]], training=True)
    alone = Hessian(model, cross_entropy, batches[:1], training=True)
    assert not torch.equal(same @ vector, alone @ vector)  # each batch has a mask of its own


def test_dropout_is_off_by_default():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 20), nn.Tanh(), nn.Dropout(0.5), nn.Linear(20, 3)).double()
    _, batches = make_problem(mlp)
    found = Hessian(model.train(), cross_entropy, batches).dense()
    np.testing.assert_allclose(found, dense_hessian(model.eval(), batches), atol=1e-12)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_products_where_gradients_are_off(mode):
    model, batches = make_problem(convolution)
    hessian = Hessian(model, cross_entropy, batches)
    vector = torch.ones(hessian.shape[0])
    expected = hessian @ vector
    with mode():
        assert torch.equal(hessian @ torch.ones(hessian.shape[0]), expected)


def test_attention_has_a_second_derivative():
    """The fast forms of torch's attention have none."""
    torch.manual_seed(0)
    model = nn.MultiheadAttention(8, 2, batch_first=True)
    hessian = Hessian(
        model,
        lambda model, x: model(x, x, x, need_weights=False)[0].square().mean(),
        [torch.randn(2, 5, 8)],
    )
    assert (hessian @ torch.ones(hessian.shape[0])).abs().max() > 0


def test_an_lstm_has_a_second_derivative():
    """CuDNN's has none, and in evaluation mode not even a first; the fused one of the CPU has."""
    torch.manual_seed(0)
    model, inputs, used = nn.LSTM(3, 4), torch.randn(7, 2, 3), []

    def loss(model, x):
        used.append(torch.backends.cudnn.enabled)
        return model(x)[0].square().mean()

    hessian = Hessian(model, loss, [inputs])
    vector = torch.randn(hessian.shape[0], dtype=torch.float64)
    found = hessian @ vector
    assert used == [False]
    assert torch.backends.cudnn.enabled
    exact = Hessian(model.double(), loss, [inputs.double()])
    torch.testing.assert_close(found, exact @ vector, rtol=1e-5, atol=1e-7)


def test_a_network_of_convolutions_keeps_cudnn():
    model, batches = make_problem(convolution)
    used = []

    def loss(model, batch):
        used.append(torch.backends.cudnn.enabled)
        return cross_entropy(model, batch)

    hessian = Hessian(model, loss, batches)
    hessian @ torch.ones(hessian.shape[0])
    assert set(used) == {True}


def peak_of_saved_tensors(batches, model):
    """Return the most bytes that autograd kept at any moment of a product."""
    live, peak = 0, 0

    class Kept:
        def __init__(self, tensor):
            nonlocal live, peak
            self.tensor = tensor
            live += tensor.nbytes
            peak = max(peak, live)

        def __del__(self):
            nonlocal live
            live -= self.tensor.nbytes

    hessian = Hessian(model, cross_entropy, batches)
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        hessian @ torch.ones(hessian.shape[0])
    return peak


def test_memory_does_not_grow_with_the_number_of_batches():
    model, batches = make_problem(convolution, sizes=(6,) * 8)
    one = peak_of_saved_tensors(batches[:1], model)
    assert one > 0
    assert peak_of_saved_tensors(batches, model) == one


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"batches": iter([])}, TypeError, "only once"),
        ({"batches": []}, ValueError, "there are no batches"),
        ({"weights": [1]}, ValueError, "2 batches, but 1 weights"),
        ({"weights": [1, -1]}, ValueError, "negative"),
        ({"weights": [0, 0]}, ValueError, "zero"),
        ({"weights": [1, float("nan")]}, ValueError, "negative"),
        ({"batches": ["text"]}, ValueError, "give the weights"),
        ({"batches": [torch.tensor(1.0)]}, ValueError, "give the weights"),
        ({"model": nn.ReLU()}, ValueError, "requires a gradient"),
        ({"model": nn.Linear(1, 1, dtype=torch.complex64)}, TypeError, "complex"),
    ],
)
def test_what_cannot_have_a_hessian(change, error, message):
    model, batches = make_problem(mlp)
    arguments = {"model": model, "loss": cross_entropy, "batches": batches} | change
    with pytest.raises(error, match=message):
        Hessian(**arguments)


@pytest.mark.parametrize(
    ("vector", "error", "message"),
    [
        (np.ones(3), ValueError, r"\(51, 51\).*\(3,\)"),
        (np.ones((51, 1, 1)), ValueError, "cannot multiply"),
        (np.full(51, np.nan), ValueError, "not finite"),
        (np.ones(51, complex), TypeError, "real"),
        (torch.ones(51, dtype=torch.complex64), TypeError, "real"),
        (["a"] * 51, TypeError, "real"),
    ],
)
def test_vectors_that_cannot_be_multiplied(vector, error, message):
    hessian = Hessian(*arguments_of_hessian(mlp))
    with pytest.raises(error, match=message):
        hessian @ vector
    assert hessian.products == 0


def arguments_of_hessian(network):
    """Return the arguments of a Hessian in their order."""
    model, batches = make_problem(network)
    return model, cross_entropy, batches


def test_a_loss_that_is_not_finite_or_not_of_the_model():
    model, _, batches = arguments_of_hessian(mlp)
    other = nn.Linear(1, 1)
    hessian = Hessian(model, lambda model, batch: cross_entropy(model, batch) * np.nan, batches)
    with pytest.raises(FloatingPointError, match="not finite"):
        hessian @ np.ones(51)
    hessian = Hessian(model, lambda model, batch: other.weight.square().sum(), batches)
    with pytest.raises(ValueError, match="does not depend on the parameters"):
        hessian @ np.ones(51)


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda model, batch: 1.0, TypeError, "is of type float, but must be a tensor"),
        (lambda model, batch: model(batch[0]), ValueError, r"has the shape \(5, 3\)"),
        (lambda m, batch: cross_entropy(m, batch).detach(), ValueError, "does not depend on the"),
    ],
)
def test_a_loss_that_is_none_is_named(loss, error, message):
    model, batches = make_problem(mlp)
    with pytest.raises(error, match=message):
        Hessian(model, loss, batches).trace(2)


class Loader:
    """Gives batches in an order of its own each time, as a loader that shuffles does."""

    def __init__(self, batches, generator=None):
        self.batches, self.generator = batches, generator

    def __iter__(self):
        order = torch.randperm(len(self.batches), generator=self.generator)
        return (self.batches[index] for index in order)


def test_batches_that_change_from_pass_to_pass_are_refused():
    model, batches = make_problem(mlp, sizes=(4,) * 8)
    loader = Loader(batches, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"other batches each time .* give a list"):
        Hessian(model, cross_entropy, loader)
    with pytest.raises(ValueError, match="other batches each time"):
        Hessian(model, cross_entropy, loader, weights=[1.0] * 8)


def test_a_loader_that_draws_from_the_generators_of_all_gives_the_same_batches():
    model, batches = make_problem(mlp, sizes=(4, 3, 2, 5))
    before = torch.get_rng_state()
    hessian = Hessian(model, cross_entropy, Loader(batches))
    assert torch.equal(torch.get_rng_state(), before)
    vector = np.random.default_rng(0).standard_normal(hessian.shape[0])
    product = hessian @ vector
    torch.manual_seed(7)
    assert np.array_equal(hessian @ vector, product)
    np.testing.assert_allclose(product, Hessian(model, cross_entropy, batches) @ vector, rtol=1e-9)


class Changing:
    """Gives batches whose second part is another in each pass; counts the passes."""

    def __init__(self, seconds):
        self.seconds, self.passes = seconds, 0

    def __iter__(self):
        self.passes += 1
        return iter([(torch.ones(2, 3), {"second": self.seconds[self.passes % 2]})])


@pytest.mark.parametrize(
    "seconds",
    [
        (np.array([1.0, 2.0]), np.array([1.0, 3.0])),
        (np.array(["a", 1], dtype=object), np.array(["b", 1], dtype=object)),
        (np.float32(1.0), np.float32(2.0)),
        ([1, 2.5], [1, 2.75]),
        ("left", "right"),
        (True, 1),
    ],
)
def test_arrays_numbers_and_texts_that_change_are_refused_too(seconds):
    def loss(model, batch):
        return model(batch[0]).square().mean()

    model = torch.nn.Linear(3, 1)
    with pytest.raises(ValueError, match="other batches each time"):
        Hessian(model, loss, Changing(seconds))
    same = Changing(seconds[:1] * 2)
    Hessian(model, loss, same)
    assert same.passes == 2
