"""The native step on tensors of every layout: it is right, or left to another path."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sgdf
from cases import assert_equal, needs_native
from native_tensors import (
    ELEMENTWISE,
    laid_out,
    make_gradient,
    make_parameters,
    random_parameter,
    recipes,
    takes_native_step,
    tolerance,
)

pytestmark = needs_native


random_tensors = given(
    # Not SignSGDF: where an estimate is all but 0, rounding decides on its sign.
    case=st.sampled_from([case for case in ELEMENTWISE if not case.jumps]),
    recipes=st.lists(recipes, min_size=1, max_size=5),
    seed=st.integers(0, 10_000),
    threads=st.integers(1, 8),
    gamma=st.sampled_from([0.5, 1.0, 0.0, 0.3]),
    decay=st.sampled_from([{}, {"decoupled_weight_decay": True}]),
    maximize=st.booleans(),
)


def check_against_foreach(case, recipes, seed, threads, gamma, decay, maximize):
    """Take three steps on both paths, and compare parameters and state."""
    options = {"lr": 0.1, "weight_decay": 0.1, "maximize": maximize, **decay}
    options |= case.known(gamma=gamma)
    results = []
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for path in ({"fused": True}, {"foreach": True}):
            params = make_parameters(recipes, seed)
            optimizer = case.make(params, **path, **options)
            generator = torch.Generator().manual_seed(seed)
            for step in range(3):
                for recipe, param in zip(recipes, params, strict=True):
                    param.grad = None
                    if not (recipe.rests and step == 1):
                        param.grad = make_gradient(recipe, param, generator)
                optimizer.step()
            results.append((params, optimizer))
    finally:
        torch.set_num_threads(before)
    (params, optimizer), (expected, slow) = results
    if not any(recipe.layout == "with gaps" or recipe.shares for recipe in recipes):
        assert takes_native_step(optimizer)
    for p, q in zip(params, expected, strict=True):
        assert p.shape == q.shape
        assert p.dtype == q.dtype
        near = {"rtol": 0, "atol": tolerance(p.dtype) * 3}  # values of about 3 at most
        torch.testing.assert_close(p, q, **near)
        assert optimizer.state[p].keys() == slow.state[q].keys()
        for key, value in slow.state[q].items():
            state = optimizer.state[p][key]
            assert state.dtype == value.dtype
            # A half that was rounded the other way reaches the state through the decay.
            torch.testing.assert_close(state, value, **near)


@settings(max_examples=100)
@random_tensors
def test_random_tensors_agree_with_foreach(**drawn):
    check_against_foreach(**drawn)


@pytest.mark.slow  # rare combinations of layouts, which a change of the native step may meet
@settings(max_examples=400)
@random_tensors
def test_many_random_tensors_agree_with_foreach(**drawn):
    check_against_foreach(**drawn)


@pytest.mark.parametrize(
    ("layout", "native"),
    [
        ("contiguous", True),
        ("permuted", True),
        ("channels_last", True),
        ("reversed halves", True),
        ("with gaps", False),
    ],
)
@pytest.mark.parametrize("grad_layout", ["contiguous", "permuted", "with gaps"])
def test_dense_layouts_take_the_native_step(layout, grad_layout, native):
    values = torch.randn(4, 3, 2, 2)
    param = torch.nn.Parameter(laid_out(values, layout))
    param.grad = laid_out(torch.ones_like(values), grad_layout)
    optimizer = sgdf.SGDF([param], lr=0.5)
    optimizer.step()
    assert takes_native_step(optimizer) == native
    torch.testing.assert_close(param.detach(), values - 0.5)


def test_overlapping_parameters_take_another_path():
    base = torch.ones(6)
    overlapping = [torch.nn.Parameter(base[:4]), torch.nn.Parameter(base[2:])]
    apart = [torch.nn.Parameter(base[:3].clone()), torch.nn.Parameter(base[3:].clone())]
    for params, native in ((overlapping, False), (apart, True)):
        optimizer = sgdf.SGDF(params, lr=0.25)
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()
        assert takes_native_step(optimizer) == native
    assert base.tolist() == [0.75, 0.75, 0.5, 0.5, 0.75, 0.75]


def test_gradient_in_the_memory_of_its_parameter():
    base = torch.arange(5.0)
    param = torch.nn.Parameter(base[:4])
    param.grad = base[1:]
    sgdf.SGDF([param], lr=1.0).step()
    assert base.tolist() == [-1.0, -1.0, -1.0, -1.0, 4.0]


def test_one_gradient_for_two_parameters():
    params = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    params[0].grad = params[1].grad = torch.ones(3)
    optimizer = sgdf.SGDF(params, lr=0.5)
    optimizer.step()
    assert takes_native_step(optimizer)
    assert_equal([p.detach() for p in params], [torch.full((3,), 0.5)] * 2)


def test_parameter_that_repeats_its_elements_is_refused():
    param = torch.nn.Parameter(torch.ones(1).expand(3))
    param.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        sgdf.SGDF([param]).step()


def test_gradient_without_memory():
    param = torch.nn.Parameter(torch.ones(3))
    param.grad = torch._efficientzerotensor(3)
    sgdf.SGDF([param], weight_decay=0.1, decoupled_weight_decay=True, lr=1.0).step()
    torch.testing.assert_close(param.detach(), torch.full((3,), 0.9))


@pytest.mark.parametrize("path", ["fused", "foreach"])
def test_gradient_of_another_shape_is_refused(path):
    param = torch.nn.Parameter(torch.ones(4, 4))
    param.grad = torch.ones(4, 4)
    param.data = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match=r"size of tensor|shape"):
        sgdf.SGDF([param], **{path: True}).step()


def test_loaded_state_has_the_parameters_layout():
    plain = random_parameter()
    plain.grad = torch.ones_like(plain)
    first = sgdf.SGDF([plain], lr=0.1)
    first.step()
    param = torch.nn.Parameter(plain.detach().contiguous(memory_format=torch.channels_last))
    second = sgdf.SGDF([param], lr=0.1)
    second.load_state_dict(first.state_dict())
    for param_, optimizer in ((plain, first), (param, second)):
        param_.grad = torch.full_like(param_, 0.5)
        optimizer.step()
        assert takes_native_step(optimizer)
    assert torch.equal(plain, param)
    assert second.state[param]["exp_var"].is_contiguous(memory_format=torch.channels_last)
