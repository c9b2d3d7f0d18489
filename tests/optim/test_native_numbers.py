"""The numbers of the native step: threads, special values, half precision."""

import copy

import pytest
import torch

import sgdf
from cases import assert_equal, needs_native
from native_tensors import each_elementwise, takes_native_step

pytestmark = needs_native


@pytest.fixture
def threads():
    """Return the function that sets how many there are; the old number comes back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@each_elementwise
def test_results_do_not_depend_on_the_threads(case, threads):
    results = []
    for count in range(1, 9):
        threads(count)
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(size)) for size in (1, 7, 50_001, 3, 100_003)]
        params.append(torch.nn.Parameter(torch.randn(33_333).bfloat16()))
        optimizer = case.make(params, weight_decay=0.01)
        for _ in range(3):
            for param in params:
                param.grad = torch.randn_like(param)
            optimizer.step()
        assert takes_native_step(optimizer)
        results.append((params, optimizer.state_dict()))
    for other in results[1:]:
        assert_equal(list(other), list(results[0]))


SPECIAL = [0.0, -0.0, 1e-45, 1e-38, -1e-30, 1e15, -1e15, 1e30, float("inf"), float("nan")]


@each_elementwise
@pytest.mark.parametrize("eps", [0.0, 1e-8, float("inf")])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.5, 1.0])
def test_special_numbers(case, eps, gamma):
    results = []
    for path in ({"fused": True}, {"foreach": True}):
        param = torch.nn.Parameter(torch.ones(len(SPECIAL)))
        optimizer = case.make([param], **case.known(eps=eps, gamma=gamma), **path)
        for sign in (1.0, -1.0, 1.0):
            param.grad = sign * torch.tensor(SPECIAL)
            optimizer.step()
        assert takes_native_step(optimizer) == ("fused" in path)
        results.append([param.detach(), *optimizer.state[param].values()])
    torch.testing.assert_close(*results, equal_nan=True, rtol=1e-5, atol=0)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_infinite_parameters_do_not_spoil_the_state(weight_decay):
    param = torch.nn.Parameter(torch.tensor([float("inf"), 1.0]))
    param.grad = torch.ones(2)
    optimizer = sgdf.SGDF(
        [param], lr=0.1, weight_decay=weight_decay, decoupled_weight_decay=True, fused=True
    )
    optimizer.step()
    assert takes_native_step(optimizer)
    assert optimizer.state[param]["exp_avg"].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_conversion_to_float_and_back_keeps_every_half(dtype):
    numbers = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    param = torch.nn.Parameter(numbers.clone())
    param.grad = torch.zeros_like(param)
    optimizer = sgdf.SGDF([param], lr=0.0, fused=True)
    optimizer.step()
    assert takes_native_step(optimizer)
    same = param.detach().view(torch.int16) == numbers.view(torch.int16)
    assert (same | numbers.isnan()).all()
    assert torch.equal(param.isnan(), numbers.isnan())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_floats_are_rounded_to_halves_as_torch_does(dtype):
    """With both betas 0 the update is the gradient, and 0 minus it the rounded negative."""
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    exact = halves[halves.isfinite()].float()
    bits = exact.view(torch.int32)
    half_way = 1 << (15 if dtype == torch.bfloat16 else 12)
    ties = [(bits + half_way + offset).view(torch.float32) for offset in (-1, 0, 1)]
    ties += [exact * (1 + 2.0**-12), exact / 3, torch.tensor([65519.9, 65520.0, 1e38, -1e-44])]
    grads = torch.cat([exact, *ties])
    param = torch.nn.Parameter(torch.zeros(len(grads), dtype=dtype))
    param.grad_dtype = torch.float32
    param.grad = -grads
    optimizer = sgdf.SGDF([param], lr=1.0, betas=(0.0, 0.0), fused=True)
    optimizer.step()
    assert takes_native_step(optimizer)
    expected = grads.to(dtype)
    finite = grads.abs() < 1e15  # larger ones have squares that float32 cannot hold
    assert torch.equal(param.detach()[finite], expected[finite])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_nan_stays_a_nan_in_a_half(dtype):
    bits = torch.tensor([0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32)
    param = torch.nn.Parameter(torch.zeros(3, dtype=dtype))
    param.grad_dtype = torch.float32
    param.grad = bits.view(torch.float32)
    optimizer = sgdf.SGDF([param], fused=True)
    optimizer.step()
    assert takes_native_step(optimizer)
    assert param.isnan().all()


def table_of(optimizer, params):
    """The table of the optimizer's last step, which was native."""
    for param in params:
        param.grad = torch.randn_like(param)
    optimizer.step()
    (table,) = optimizer._native.tables
    return table


def test_touching_the_tensors_changes_nothing():
    params = [torch.nn.Parameter(torch.randn(shape)) for shape in ((4, 3), (50_000,))]
    optimizer = sgdf.SGDF(params, lr=0.1)
    table = table_of(optimizer, params)
    tensors = [params, [param.grad for param in params], optimizer.state_dict()]
    before = copy.deepcopy(tensors)
    table.touch()
    assert_equal(tensors, before)


@pytest.mark.parametrize(
    ("optimizer_class", "dtype", "options"),
    [
        (sgdf.UnifiedMomentum, torch.float32, {}),
        (sgdf.SGDF, torch.float64, {}),
        (sgdf.SGDF, torch.bfloat16, {}),
        (sgdf.SGDF, torch.float32, {"state_format": "int8"}),
    ],
)
def test_only_the_usual_tensors_are_touched(optimizer_class, dtype, options):
    param = torch.nn.Parameter(torch.ones(70, 70, dtype=dtype))
    table = table_of(optimizer_class([param], lr=0.1, **options), [param])
    with pytest.raises(ValueError, match="SGDF with full state, and float32"):
        table.touch()
