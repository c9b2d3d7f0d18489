"""The fast path against the slow one, and the choice between them."""

import pytest
import torch

from cases import Quadratic, build, each_case, each_path


@each_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_foreach_follows_the_loop(case, dtype):
    if not case.foreach:
        pytest.skip(f"{case.name} has no foreach path")
    problems = Quadratic(dtype), Quadratic(dtype)
    slow = build(case, problems[0].params, "single", weight_decay=0.01)
    fast = build(case, problems[1].params, "foreach", weight_decay=0.01)
    for _ in range(400):
        noise = problems[0].noise()
        for problem, optimizer in zip(problems, (slow, fast), strict=True):
            problem.set_gradients(problem.params, noise)
            optimizer.step()
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    for p, q in zip(problems[0].params, problems[1].params, strict=True):
        assert (p - q).abs().max() <= tolerance * p.abs().max()
        assert slow.state[p].keys() == fast.state[q].keys()
        for key in case.buffers:
            expected, actual = slow.state[p][key], fast.state[q][key]
            assert actual.dtype == expected.dtype == dtype
            assert (actual - expected).abs().max() <= tolerance * expected.abs().max()
        assert slow.state[p]["step"] == fast.state[q]["step"] == 400


@each_case
def test_foreach_sorts_a_mixed_group_by_dtype(case):
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float32, torch.float16]
    dtypes += [torch.complex64] * case.complex
    start = [torch.randn(4, dtype=torch.float64).to(dtype) for dtype in dtypes]
    grads = [torch.randn(4, dtype=torch.float64).to(dtype) for dtype in dtypes]
    results = []
    for path in ("single", "foreach"):
        params = [torch.nn.Parameter(p.clone()) for p in start]
        optimizer = build(case, params, path, weight_decay=0.1, decoupled_weight_decay=True)
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


@each_case
@pytest.mark.parametrize(
    ("options", "kind", "lists"),
    [
        ({}, torch.nn.Parameter, True),
        ({"foreach": True}, torch.nn.Parameter, True),
        ({"foreach": False}, torch.nn.Parameter, False),
        ({"fused": False}, torch.nn.Parameter, False),
        ({}, Tagged, False),
    ],
)
def test_choice_of_the_path(case, options, kind, lists, monkeypatch):
    taken = []
    for name in ("_step_single", "_step_foreach"):
        monkeypatch.setattr(case.optimizer, name, lambda *_, name=name: taken.append(name))
    param = kind(torch.ones(2))
    param.grad = torch.ones(2)
    case.optimizer([param], **options).step()
    assert taken == ["_step_foreach" if lists else "_step_single"]
