"""The fast path against the slow one, and the choice between them."""

import pytest
import torch

from cases import FUSED, Quadratic, build, each_case, each_path, needs_native
from sgdf.optim import base
from sgdf.optim.native import step as native_step


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("slower", "faster", "steps", "exact", "gradient"),
    [
        ("single", "foreach", 400, 1e-14, 0.0),
        # At the 500th step a mean of one element is all but 0, and its error that of the
        # gradients it is made of, which are about 1 in size.
        pytest.param("foreach", "fused", 500, 1e-13, 1.0, marks=needs_native),
    ],
)
def test_faster_paths_agree_with_slower_ones(case, dtype, slower, faster, steps, exact, gradient):
    if faster not in case.paths:
        pytest.skip(f"{case.name} has no path {faster}")
    problems = Quadratic(dtype), Quadratic(dtype)
    slow = build(case, problems[0].params, slower, weight_decay=0.01)
    fast = build(case, problems[1].params, faster, weight_decay=0.01)
    for _ in range(steps):
        noise = problems[0].noise()
        for problem, optimizer in zip(problems, (slow, fast), strict=True):
            problem.set_gradients(problem.params, noise)
            optimizer.step()
    tolerance = 1e-6 if dtype == torch.float32 else exact
    for p, q in zip(problems[0].params, problems[1].params, strict=True):
        assert (p - q).abs().max() <= tolerance * p.abs().max()
        assert slow.state[p].keys() == fast.state[q].keys()
        for key in case.buffers_of(p):
            expected, actual = slow.state[p][key], fast.state[q][key]
            assert actual.dtype == expected.dtype == dtype
            size = max(gradient, expected.abs().max())
            assert (actual - expected).abs().max() <= tolerance * size
        assert slow.state[p]["step"] == fast.state[q]["step"] == steps


@each_case
@pytest.mark.parametrize("path", ["foreach", FUSED])
def test_a_group_may_mix_dtypes(case, path):
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float32, torch.float16]
    dtypes += [torch.complex64] * case.complex
    start = [torch.randn(4, dtype=torch.float64).to(dtype) for dtype in dtypes]
    grads = [torch.randn(4, dtype=torch.float64).to(dtype) for dtype in dtypes]
    results = []
    for taken in ("single", path):
        params = [torch.nn.Parameter(p.clone()) for p in start]
        optimizer = build(case, params, taken, weight_decay=0.1, decoupled_weight_decay=True)
        for _ in range(3):
            for param, grad in zip(params, grads, strict=True):
                param.grad = grad.clone()
            optimizer.step()
        results.append(params)
    for p, q, before in zip(*results, start, strict=True):
        assert p.dtype == q.dtype == before.dtype
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
        assert not torch.equal(p, before)


@each_case
@each_path
def test_steps_are_counted_per_parameter(case, path):
    together, apart = Quadratic(), Quadratic()
    joint = build(case, together.params, path)
    alone = [build(case, [param], path) for param in apart.params]
    for step in range(6):
        noise = together.noise()
        for problem in (together, apart):
            problem.set_gradients(problem.params, noise)
            if step < 3:
                problem.params[0].grad = None  # a layer that joins late
        for optimizer in (joint, *alone):
            optimizer.step()
    assert [joint.state[p]["step"].item() for p in together.params] == [3, 6, 6, 6]
    for p, q in zip(together.params, apart.params, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-14, atol=1e-14)


class Tagged(torch.nn.Parameter):
    """A parameter type that torch's foreach kernels know nothing of."""


def path_taken(case, options, kind, monkeypatch):
    taken = []
    for path in ("single", "foreach"):
        monkeypatch.setattr(base, f"step_{path}", lambda part, path=path: taken.append(path))
    monkeypatch.setattr(native_step.TensorTable, "step", lambda *_: taken.append("fused"))
    param = kind(torch.ones(2))
    param.grad = torch.ones(2)
    case.make([param], **options).step()
    (name,) = taken
    return name


CHOICES = [
    ({}, torch.nn.Parameter, "fused"),
    ({"fused": True}, torch.nn.Parameter, "fused"),
    ({"foreach": True}, torch.nn.Parameter, "foreach"),
    ({"foreach": False}, torch.nn.Parameter, "single"),
    ({"fused": False}, torch.nn.Parameter, "single"),
    ({"differentiable": True}, torch.nn.Parameter, "single"),
    ({}, Tagged, "single"),
    ({"fused": True}, Tagged, "single"),
    ({"foreach": True}, Tagged, "foreach"),
]


@needs_native
@each_case
@pytest.mark.parametrize(("options", "kind", "path"), CHOICES)
def test_choice_of_the_path(case, options, kind, path, monkeypatch):
    if path not in case.paths:
        pytest.skip(f"{case.name} has no path {path}")
    assert path_taken(case, options, kind, monkeypatch) == path


@each_case
def test_foreach_is_used_without_a_compiler(case, monkeypatch):
    """Without a warning: the native step was not requested."""
    monkeypatch.setattr(native_step, "_library", lambda: OSError("no C compiler"))
    assert path_taken(case, {}, torch.nn.Parameter, monkeypatch) == "foreach"
