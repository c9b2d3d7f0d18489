"""Stochastic rounding through the optimizers: its mean, its noise, and what it leaves alone."""

import math

import pytest
import torch

from cases import CASES, assert_equal, needs_native
from formats import (
    HALVES,
    build,
    draw_like,
    each_format,
    each_step_path,
    parameters,
    take_steps,
)
from native_tensors import takes_native_step
from sgdf.optim import noise
from sgdf.optim.codings import NEAREST

each_half = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
DRAWS = 100_000
SIGMAS = 5.0
"""A test fails by chance once in 1.7 million draws of the noise; it is the same at every run."""


def moved(path, dtype, value, move, steps=1, rounds=True, count=DRAWS):
    """Return parameters of one value after steps that would each add ``move``."""
    param = torch.nn.Parameter(torch.full((count,), value, dtype=dtype))
    param.grad_dtype = torch.float32
    # gamma=0 is plain SGD: the direction is the gradient.
    optimizer = build(CASES[0], [param], path, lr=1.0, gamma=0.0, stochastic_rounding=rounds)
    for _ in range(steps):
        param.grad = torch.full((count,), -move)
        optimizer.step()
    assert takes_native_step(optimizer) == (path == "native")
    return param.detach().double()


# Its mean.


@each_half
@each_step_path
@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.77, 5.4, -0.2])
def test_the_mean_of_a_step_is_unbiased(path, dtype, share):
    """A step by a share of the spacing of its numbers goes to both neighbours, in proportion."""
    spacing = torch.finfo(dtype).eps
    exact = 1.25 + share * spacing
    result = moved(path, dtype, 1.25, share * spacing)
    low = 1.25 + math.floor(share) * spacing
    assert set(result.unique().tolist()) == {low, low + spacing}
    chance = share - math.floor(share)
    error = spacing * math.sqrt(chance * (1.0 - chance) / DRAWS)
    assert abs(result.mean().item() - exact) <= SIGMAS * error + 1e-7


@each_half
@each_step_path
def test_many_small_steps_add_up_only_at_random(path, dtype):
    """An update smaller than half a spacing moves the parameter on average, or never."""
    spacing, steps, share, count = torch.finfo(dtype).eps, 50, 0.1, 20_000
    result = moved(path, dtype, 1.25, share * spacing, steps, count=count)
    error = spacing * math.sqrt(steps * share * (1.0 - share) / count)
    assert abs(result.mean().item() - (1.25 + steps * share * spacing)) <= SIGMAS * error + 1e-6
    still = moved(path, dtype, 1.25, share * spacing, steps, rounds=False, count=count)
    assert (still == 1.25).all()


@each_half
@each_step_path
def test_subnormal_parameters_and_both_signs_are_unbiased(path, dtype):
    for value, move in ((-0.75, 0.0003), (3e-6, 1e-8), (-2e-7, -1e-8)):
        start = torch.tensor(value, dtype=dtype).double().item()
        result = moved(path, dtype, value, move)
        spread = result.std().item()
        allowed = SIGMAS * spread / math.sqrt(DRAWS) + 1e-7 * abs(value)
        assert abs(result.mean().item() - (start + move)) <= allowed


@each_step_path
def test_wide_parameters_are_not_rounded(path):
    for dtype in (torch.float32, torch.float64):
        runs = []
        for rounds in (False, True):
            params = parameters(((64, 80), (5,)), dtype)
            optimizer = build(CASES[0], params, path, stochastic_rounding=rounds)
            take_steps(optimizer, 3)
            runs.append([p.detach() for p in params])
        assert_equal(*runs)


@each_case
def test_small_tensors_are_rounded_at_random_too(case):
    """A tensor of few elements keeps its full state, but its weights are in 16 bits as well."""

    def trained(path, rounds):
        params = parameters(((7, 5), (3,), (40, 10)), torch.bfloat16)
        optimizer = build(case, params, path, lr=0.01, stochastic_rounding=rounds)
        take_steps(optimizer, 4)
        return torch.cat([p.detach().flatten() for p in params])

    nearest = trained("native", rounds=False)
    runs = [trained(path, rounds=True) for path in ("native", "foreach", "loop")]
    for run in runs:
        torch.testing.assert_close(run, nearest, rtol=0.02, atol=0.01)
        assert (run != nearest).sum() > 20
        assert (run != runs[0]).sum() <= 3


# Its noise.


@each_step_path
def test_parameters_steps_and_elements_have_noise_of_their_own(path):
    size, spacing = 10_000, torch.finfo(torch.bfloat16).eps
    params = [torch.nn.Parameter(torch.ones(size, dtype=torch.bfloat16)) for _ in range(2)]
    optimizer = build(
        *(CASES[0], [{"params": params[:1]}, {"params": params[1:]}], path),
        **{"lr": 1.0, "gamma": 0.0, "stochastic_rounding": True},
    )
    draws = []
    for _ in range(2):
        for param in params:
            param.data.fill_(1.0)
            param.grad_dtype = torch.float32
            param.grad = torch.full((size,), -spacing / 2)
        optimizer.step()
        draws += [(param.detach() > 1.0).double() for param in params]
    draws.append(draws[0].roll(1))
    correlation = torch.corrcoef(torch.stack(draws)) - torch.eye(len(draws))
    assert correlation.abs().max() < SIGMAS / math.sqrt(size)


@needs_native
def test_the_noise_is_that_of_the_parameters_number_and_step():
    """The number is that in the optimizer, over all groups, whatever has a gradient."""
    size, spacing = 5000, torch.finfo(torch.bfloat16).eps
    for path in ("native", "foreach", "loop"):
        params = [torch.nn.Parameter(torch.ones(size, dtype=torch.bfloat16)) for _ in range(4)]
        groups = [{"params": params[:2]}, {"params": params[2:]}]
        optimizer = build(CASES[0], groups, path, lr=1.0, gamma=0.0, stochastic_rounding=True)
        for step in range(3):
            for index in (0, 3) if step < 2 else (0, 1, 3):
                params[index].data.fill_(1.0)
                params[index].grad_dtype = torch.float32
                params[index].grad = torch.full((size,), -spacing / 2)
            optimizer.step()
        for index, count in ((0, 3), (1, 1), (3, 3)):
            bits = noise.random_bits(noise.noise_key(0, 1, index, count), 0, (size,))
            # Half a spacing plus this share of it reaches the next number.
            expected = noise.low_half(bits) >= 2**15
            assert torch.equal(params[index].detach() > 1.0, expected)


@each_format
@each_step_path
def test_no_generator_is_read_or_changed(state_format, path):
    results = []
    for seed in (1, 2):
        params = parameters(((64, 80), (5,)), torch.bfloat16)
        optimizer = build(
            CASES[0], params, path, state_format=state_format, stochastic_rounding=True
        )
        for step in range(3):
            for index, param in enumerate(params):
                param.grad = draw_like(param, 0, step, index)
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            optimizer.step()
            assert torch.equal(torch.get_rng_state(), before)
        results.append(([p.detach() for p in params], optimizer.state_dict()))
    assert_equal(*results)


@each_case
@each_step_path
def test_replicas_stay_equal(case, path):
    """Two processes with the same gradients, of which one takes more steps on another optimizer."""
    for state_format in case.formats:
        results = []
        for replica in range(2):
            if replica:
                others = parameters(((64, 80),), torch.bfloat16)
                other = build(case, others, path, stochastic_rounding=True)
                take_steps(other, 2, seed=5)
            params = parameters(((64, 80), (4200,), (5,)), torch.bfloat16)
            optimizer = build(
                case, params, path, state_format=state_format, stochastic_rounding=True
            )
            take_steps(optimizer, 4, rests=True)
            results.append(([p.detach() for p in params], optimizer.state_dict()))
        assert_equal(*results)


# The running variance.


def ratios(path, state_format, steps, spread):
    """Return the elements' variances, divided by what the recursion gives in float64.

    Once after ``steps`` steps, and once after as many more with a tenth of the noise. The
    recursion has the optimizer's own running means, whose rounding is no fault of the variance:
    an int8 mean is coarse for numbers that are small in their block.
    """
    shape, beta1, beta2 = (64, 256), 0.9, 0.999
    generator = torch.Generator().manual_seed(3)
    scales = torch.exp(spread * (2.0 * torch.rand(shape, generator=generator) - 1.0))
    param = torch.nn.Parameter(torch.zeros(shape))
    options = {"lr": 0.0, "betas": (beta1, beta2), "state_format": state_format}
    optimizer = build(CASES[0], [param], path, **options)
    mean, var = torch.zeros(shape), torch.zeros(shape, dtype=torch.float64)
    for size in (1.0, 0.1):
        for _ in range(steps):
            param.grad = torch.randn(shape, generator=generator).mul_(scales).mul_(size)
            optimizer.step()
            deviation = param.grad - mean.lerp_(param.grad, 1.0 - beta1)
            var.mul_(beta2).addcmul_(deviation.double(), deviation.double(), value=1.0 - beta2)
            _, (mean, own) = optimizer._recalled_state(optimizer.param_groups[0], param)
            mean = mean.clone()
        yield own.double() / var


@needs_native
@pytest.mark.parametrize("state_format", ["bfloat16", "int8"])
@pytest.mark.parametrize("spread", [0.5, 3.0])
@pytest.mark.parametrize("steps", [3000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_variance_follows_its_recursion(state_format, spread, steps):
    for ratio in ratios("native", state_format, steps, spread):
        assert ratio.mean().item() == pytest.approx(1.0, abs=0.02)
        assert ratio.min() > 0.0


@pytest.mark.parametrize("path", ["foreach", "loop"])
@pytest.mark.parametrize("state_format", ["bfloat16", "int8"])
def test_the_variance_follows_its_recursion_without_native_steps(state_format, path):
    for ratio in ratios(path, state_format, 400, spread=3.0):
        assert ratio.mean().item() == pytest.approx(1.0, abs=0.02)


def test_rounded_to_nearest_the_variance_does_not_follow(monkeypatch):
    """It cannot fall: a step changes it by a thousandth, and the spacing of bfloat16 is larger."""
    nearest = torch.tensor(NEAREST, dtype=torch.int32)
    monkeypatch.setattr(noise.Noise, "of", lambda self, use: nearest.expand(self._shape))
    steady, fallen = ratios("foreach", "bfloat16", 2500, spread=3.0)
    assert steady.mean().item() > 1.1
    assert fallen.mean().item() > 3.0


@needs_native
@pytest.mark.parametrize(("spread", "least", "most"), [(1.0, 0.998, 1.002), (3.0, 1.06, 1.10)])
def test_an_int8_mean_is_noise_to_the_small_elements_of_a_block(spread, least, most):
    """Against the recursion whose running mean is exact too, as docs/results/states.md says."""
    shape, beta1, beta2 = (64, 256), 0.9, 0.999
    generator = torch.Generator().manual_seed(0)
    scales = torch.exp(spread * (2.0 * torch.rand(shape, generator=generator) - 1.0))
    param = torch.nn.Parameter(torch.zeros(shape))
    optimizer = build(
        CASES[0], [param], "native", lr=0.0, betas=(beta1, beta2), state_format="int8"
    )
    mean, var = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
    for _ in range(3000):
        param.grad = torch.randn(shape, generator=generator) * scales
        optimizer.step()
        grad = param.grad.double()
        mean.lerp_(grad, 1.0 - beta1)
        var.mul_(beta2).add_((grad - mean).square(), alpha=1.0 - beta2)
    _, (_, own) = optimizer._recalled_state(optimizer.param_groups[0], param)
    assert least < (own.double() / var).mean() < most
