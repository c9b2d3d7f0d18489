"""What torch.optim promises, held by every row of the contract table."""

import pytest
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from cases import Quadratic, build, each_case, each_path, every_path, skip_without, train

# What the caller owns.


@each_case
@each_path
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
def test_nothing_the_caller_owns_is_changed(case, path, maximize, decoupled):
    skip_without(case, decoupled or case.coupled_decay, "coupled decay")
    problem = Quadratic(torch.float32)
    frozen = torch.nn.Parameter(torch.randn(3))
    group = {"params": (p for p in problem.params), "lr": 0.2}
    given = dict(group)
    options = {"weight_decay": 0.1, "decoupled_weight_decay": decoupled, "maximize": maximize}
    optimizer = build(case, [group, {"params": [frozen]}], path, **options)
    assert group == given
    problem.set_gradients(problem.params, problem.noise())
    grads = [p.grad for p in problem.params]
    values = [g.clone() for g in grads]
    before, generator, default = frozen.clone(), torch.get_rng_state(), torch.is_grad_enabled()
    optimizer.step()
    for param, grad, value in zip(problem.params, grads, values, strict=True):
        assert param.grad is grad
        assert torch.equal(grad, value)
    assert torch.equal(frozen, before)  # no gradient: no step, no decay, no state
    assert frozen not in optimizer.state
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.is_grad_enabled() == default


@each_case
@each_path
def test_empty_parameters_are_fine(case, path):
    params = [torch.nn.Parameter(torch.empty(0, 3)), torch.nn.Parameter(torch.ones(2))]
    for param in params:
        param.grad = torch.ones_like(param)
    build(case, params, path).step()
    assert (params[1] < 1).all()


@each_case
@each_path
def test_steps_trace_with_fake_tensors(case, path):
    """Memory planners run a step on tensors without data."""
    with torch._subclasses.FakeTensorMode():
        param = torch.nn.Parameter(torch.ones(2))
        param.grad = torch.ones(2)
        optimizer = build(case, [param], path)
        optimizer.step()
        assert optimizer.state[param]["exp_avg"].shape == (2,)


@each_case
@each_path
def test_zero_lr_moves_nothing_but_the_state(case, path):
    problem = Quadratic(torch.float32)
    before = [p.detach().clone() for p in problem.params]
    optimizer = build(case, problem.params, path, lr=0.0, weight_decay=0.1)
    train(optimizer, problem, 3)
    for param, start in zip(problem.params, before, strict=True):
        assert torch.equal(param, start)
        assert optimizer.state[param]["step"] == 3


@each_case
@every_path
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_zero_gradients_leave_the_parameters_alone(case, path, dtype, eps):
    param = torch.nn.Parameter(torch.randn(3).to(dtype))
    before = param.detach().clone()
    optimizer = build(case, [param], path, **case.known(eps=eps))
    for _ in range(3):
        param.grad = torch.zeros_like(param)
        optimizer.step()
    assert torch.equal(param, before)


@each_case
@every_path
def test_without_momentum_old_gradients_have_no_influence(case, path):
    skip_without(case, case.plain is not None, "direction of the gradient's size")
    param = torch.nn.Parameter(torch.zeros(3))
    options = case.known(betas=(0.0, 0.999), beta=0.0)
    optimizer = build(case, [param], path, lr=1.0, **options)
    for grad in (1e10, 1.0):
        param.data.zero_()
        param.grad = torch.full((3,), grad)
        optimizer.step()
        torch.testing.assert_close(param.detach(), -param.grad, rtol=1e-6, atol=0)


# Groups, names, hooks, closures.


@each_case
@each_path
def test_groups_have_their_own_options(case, path):
    shared, first, second = (Quadratic(seed=1) for _ in range(3))
    optimizer = build(case, shared.params[:2], path, lr=0.1, weight_decay=0.1)
    optimizer.add_param_group({"params": shared.params[2:], "lr": 0.02, **case.another})
    alone = [
        build(case, first.params[:2], path, lr=0.1, weight_decay=0.1),
        build(case, second.params[2:], path, lr=0.02, weight_decay=0.1, **case.another),
    ]
    for _ in range(10):
        noise = shared.noise()
        for problem in (shared, first, second):
            problem.set_gradients(problem.params, noise)
        for opt in (optimizer, *alone):
            opt.step()
    for index in range(4):
        expected = (first if index < 2 else second).params[index]
        assert torch.equal(shared.params[index], expected)


@each_case
def test_named_parameters(case):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = build(case, model.named_parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    names = [name for name, _ in model.named_parameters()]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == names


@each_case
def test_step_hooks_fire_once(case):
    problem = Quadratic()
    optimizer = build(case, problem.params)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.register_state_dict_post_hook(lambda _, state_dict: state_dict | {"epoch": 3})
    train(optimizer, problem, 1)
    assert calls == ["before", "after"]
    assert optimizer.state_dict()["epoch"] == 3


@each_case
def test_global_step_hooks_fire_and_may_change_the_arguments(case):
    problem, calls = Quadratic(), []
    optimizer = build(case, problem.params)
    handles = [
        register_optimizer_step_pre_hook(lambda *_: ((optimizer, lambda: 5.0), {})),
        register_optimizer_step_post_hook(lambda *_: calls.append("after")),
    ]
    try:
        assert optimizer.step() == 5.0
    finally:
        for handle in handles:
            handle.remove()
    assert optimizer.step() is None
    assert calls == ["after"]


@each_case
def test_a_profile_has_the_step(case):
    problem = Quadratic()
    optimizer = build(case, problem.params)
    train(optimizer, problem, 1)
    with torch.autograd.profiler.profile() as profile:
        train(optimizer, problem, 1)
    names = [event.name for event in profile.function_events]
    assert names.count(f"Optimizer.step#{type(optimizer).__name__}.step") == 1


@each_case
@each_path
def test_a_gradient_with_a_graph_leaves_none_in_the_state(case, path):
    param = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = build(case, [param], path)
    for layout in (torch.ones(3, 2), torch.ones(2, 3).T):  # the second has to be copied
        param.grad = layout.requires_grad_() * 2.0
        optimizer.step()
        entries = [v for v in optimizer.state[param].values() if isinstance(v, torch.Tensor)]
        assert not any(entry.requires_grad for entry in entries)
        assert param.is_leaf
        assert torch.is_grad_enabled()


@each_case
@each_path
def test_closure_runs_with_grad_and_its_loss_is_returned(case, path):
    param = torch.nn.Parameter(torch.ones(3))
    optimizer = build(case, [param], path)

    def closure():
        optimizer.zero_grad()
        loss = param.square().sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 3.0
    assert optimizer.step() is None
    assert (param < 1).all()
