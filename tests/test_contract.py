"""What torch.optim promises, held by every row of the contract table."""

import copy
import io
import pickle

import pytest
import torch

from cases import CASES, Quadratic, build, describe

each_case = pytest.mark.parametrize("case", CASES, ids=describe)
each_path = pytest.mark.parametrize("path", ["single", "foreach"])


def train(optimizer, problem, steps):
    for _ in range(steps):
        problem.set_gradients(problem.params, problem.noise())
        optimizer.step()


def snapshot(optimizer):
    return copy.deepcopy(optimizer.state_dict())


def assert_equal(a, b):
    """Compare nested state dicts bit by bit."""
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        assert a == b


# The fast path against the slow one.


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
    for p, q, dtype in zip(*results, dtypes, strict=True):
        assert p.dtype == q.dtype == dtype
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)
        assert not torch.equal(p, start[dtypes.index(dtype)])


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


# Dtypes.


@each_case
@each_path
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_parameters_keep_a_float32_state(case, path, dtype):
    if not case.low_precision:
        pytest.skip(f"{case.name} does not take {dtype}")
    start = torch.randn(50).to(dtype)
    narrow = torch.nn.Parameter(start.clone())
    wide = torch.nn.Parameter(start.float())
    options = {"weight_decay": 1e-3, "decoupled_weight_decay": True}
    optimizers = build(case, [narrow], path, **options), build(case, [wide], path, **options)
    for scale in (1.0, 0.0, 1e-7, 1e-3):  # 1e-7 squared is nothing in float16
        grad = (scale * torch.randn(50)).to(dtype)
        narrow.grad, wide.grad = grad, grad.float()
        wide.data.copy_(narrow.data)  # from the same point: one step, one rounding
        for optimizer in optimizers:
            optimizer.step()
        assert torch.equal(narrow, wide.to(dtype))
        for key in case.buffers:
            state = optimizers[0].state[narrow][key]
            assert state.dtype == torch.float32
            assert torch.equal(state, optimizers[1].state[wide][key])


@each_case
def test_small_decay_and_update_are_rounded_together(case):
    """Each alone is lost on a bf16 parameter of 1; their sum is not."""
    param = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    lost = 0.4 * torch.finfo(torch.bfloat16).eps / 2
    optimizer = build(
        case, [param], lr=1.0, weight_decay=0.7 * lost / 0.4, decoupled_weight_decay=True
    )
    param.grad = torch.full((1,), 0.7 * lost / 0.4, dtype=torch.bfloat16)
    optimizer.step()
    assert param.item() < 1.0


@each_case
@each_path
@pytest.mark.parametrize("options", [{}, {"maximize": True, "weight_decay": 0.1}], ids=describe)
def test_complex_is_two_reals(case, path, options):
    if not case.complex:
        pytest.skip(f"{case.name} does not take complex parameters")
    together = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.complex128))
    apart = torch.nn.Parameter(torch.view_as_real(together.detach()).clone())
    optimizers = build(case, [together], path, **options), build(case, [apart], path, **options)
    for _ in range(20):
        grad = torch.randn(4, 3, dtype=torch.complex128)
        together.grad, apart.grad = grad, torch.view_as_real(grad).clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(torch.view_as_real(together), apart, rtol=1e-13, atol=1e-13)
    for key in case.buffers:
        state = optimizers[0].state[together][key]
        assert state.dtype == torch.complex128
        torch.testing.assert_close(
            torch.view_as_real(state), optimizers[1].state[apart][key], rtol=1e-13, atol=1e-13
        )


@each_case
@each_path
def test_memory_layouts_do_not_matter(case, path):
    base = torch.randn(2, 3, 4, 5)
    plain = torch.nn.Parameter(base.clone())
    strided = torch.nn.Parameter(base.clone(memory_format=torch.channels_last))
    view = torch.nn.Parameter(base.transpose(0, 3).contiguous().transpose(0, 3))
    optimizer = build(case, [plain, strided, view], path)
    for _ in range(5):
        grad = torch.randn_like(base)
        for param in (plain, strided, view):
            param.grad = grad.clone()
        optimizer.step()
    assert torch.equal(plain, strided)
    assert torch.equal(plain, view)
    assert optimizer.state[strided]["exp_avg"].is_contiguous(memory_format=torch.channels_last)


# What the caller owns.


@each_case
@each_path
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("decoupled", [False, True])
def test_nothing_the_caller_owns_is_changed(case, path, maximize, decoupled):
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
@pytest.mark.parametrize("path", ["single", "foreach", "capturable", "foreach-capturable"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_zero_gradients_leave_the_parameters_alone(case, path, dtype, eps):
    param = torch.nn.Parameter(torch.randn(3).to(dtype))
    before = param.detach().clone()
    optimizer = build(case, [param], path, eps=eps)
    for _ in range(3):
        param.grad = torch.zeros_like(param)
        optimizer.step()
    assert torch.equal(param, before)


# Checkpoints.


@each_case
@each_path
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_equals_uninterrupted(case, path, dtype):
    whole, halves = Quadratic(dtype), Quadratic(dtype)
    options = {"weight_decay": 0.01, "lr": 0.1}
    uninterrupted = build(case, whole.params, path, **options)
    train(uninterrupted, whole, 40)

    first = build(case, halves.params, path, **options)
    train(first, halves, 15)
    file = io.BytesIO()
    torch.save({"optimizer": first.state_dict(), "params": halves.params}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    halves.params = [torch.nn.Parameter(p.detach()) for p in saved["params"]]
    second = build(case, halves.params, path, lr=9.0)  # the checkpoint's options win
    second.load_state_dict(saved["optimizer"])
    train(second, halves, 25)

    assert_equal(second.state_dict(), uninterrupted.state_dict())
    assert_equal(halves.params, whole.params)


@each_case
def test_loading_copies(case):
    problem = Quadratic()
    optimizer = build(case, problem.params)
    train(optimizer, problem, 2)
    saved = optimizer.state_dict()
    kept = copy.deepcopy(saved)
    other = build(case, problem.params)
    other.load_state_dict(saved)
    train(other, problem, 2)
    assert_equal(saved, kept)


@each_case
def test_state_dict_has_torchs_shape(case):
    problem = Quadratic(torch.float32)
    optimizer = build(case, problem.params)
    train(optimizer, problem, 2)
    state_dict = optimizer.state_dict()
    assert set(state_dict) == {"state", "param_groups"}
    assert list(state_dict["state"]) == state_dict["param_groups"][0]["params"] == [0, 1, 2, 3]
    for index, entry in state_dict["state"].items():
        assert list(entry) == ["step", *case.buffers]
        assert entry["step"].dtype == torch.float32
        assert entry["step"].shape == ()
        for key in case.buffers:
            assert entry[key].shape == problem.params[index].shape


@each_case
def test_loading_fills_in_what_other_checkpoints_lack(case):
    problem = Quadratic(torch.float32)
    groups = [{"params": problem.params[:2], "eps": 1e-3}, {"params": problem.params[2:]}]
    optimizer = build(case, groups, eps=1e-5, maximize=True)
    train(optimizer, problem, 2)
    foreign = snapshot(optimizer)
    foreign["param_groups"] = [
        {"params": ids, "lr": 0.3, "betas": (0.8, 0.99), "state_format": "int8"}
        for ids in ([0, 1], [2, 3])
    ]
    for entry in foreign["state"].values():
        entry["step"] = 2  # as public code stores it
    optimizer.load_state_dict(foreign)
    for group, eps in zip(optimizer.param_groups, (1e-3, 1e-5), strict=True):
        assert (group["lr"], group["betas"]) == (0.3, (0.8, 0.99))
        assert (group["eps"], group["maximize"]) == (eps, True)
        assert group["state_format"] == "full"  # the constructor's wins
    assert all(isinstance(s["step"], torch.Tensor) for s in optimizer.state.values())
    train(optimizer, problem, 1)
    assert all(s["step"] == 3 for s in optimizer.state.values())


@each_case
def test_loading_asks_the_users_hooks_first_and_last(case):
    problem = Quadratic(torch.bfloat16)
    optimizer = build(case, problem.params)
    train(optimizer, problem, 2)
    saved = snapshot(optimizer)
    key = next(iter(case.buffers))
    seen = []

    def halve(_, state_dict):
        state_dict = copy.deepcopy(state_dict)
        for entry in state_dict["state"].values():
            entry[key] *= 0.5
        return state_dict

    optimizer.register_load_state_dict_pre_hook(halve)
    optimizer.register_load_state_dict_post_hook(
        lambda opt: seen.extend(entry[key].clone() for entry in opt.state.values())
    )
    optimizer.load_state_dict(saved)
    assert len(seen) == 4
    for index, value in enumerate(seen):
        assert_equal(value, saved["state"][index][key] * 0.5)  # in float32, unrounded


@each_case
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on_alone(case, duplicate):
    problem = Quadratic()
    optimizer = build(case, problem.params)
    train(optimizer, problem, 3)
    twin, params = duplicate((optimizer, problem.params))
    assert_equal(twin.state_dict(), optimizer.state_dict())
    before = snapshot(optimizer)
    for param in params:
        param.grad = torch.ones_like(param)
    twin.step()
    assert_equal(optimizer.state_dict(), before)
    for param in problem.params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    assert_equal(twin.state_dict(), optimizer.state_dict())
    assert_equal(params, problem.params)


# Groups, names, hooks, closures.


@each_case
@each_path
def test_groups_have_their_own_options(case, path):
    shared, first, second = (Quadratic(seed=1) for _ in range(3))
    optimizer = build(case, shared.params[:2], path, lr=0.1, weight_decay=0.1)
    optimizer.add_param_group({"params": shared.params[2:], "lr": 0.02, "betas": (0.5, 0.9)})
    alone = [
        build(case, first.params[:2], path, lr=0.1, weight_decay=0.1),
        build(case, second.params[2:], path, lr=0.02, betas=(0.5, 0.9), weight_decay=0.1),
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


# Autograd through the step.


@each_case
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True}]
    + [{"gamma": gamma} for gamma in (0.0, 0.3, 1.0)]
    + [{"maximize": True}, {"correction": "none"}],
    ids=describe,
)
def test_gradcheck_through_the_step(case, options, steps):
    if not case.differentiable:
        pytest.skip(f"{case.name} is not differentiable")

    def unroll(lr, start, *grads):
        param = start.clone()
        # A large eps keeps the curvature at a zero gradient within the reach of
        # finite differences.
        optimizer = case.optimizer([param], lr=lr, eps=1e-2, differentiable=True, **options)
        for grad in grads:
            param.grad = grad
            optimizer.step()
        return (param, *(optimizer.state[param][key] for key in case.buffers))

    grads = torch.randn(steps, 5, dtype=torch.float64)
    grads[:, 0] = 0.0  # never any gradient: the gain is 0 and its root infinitely steep
    grads[0, 1] = 0.0
    inputs = [torch.tensor(0.1, dtype=torch.float64), torch.randn(5, dtype=torch.float64), *grads]
    for tensor in inputs:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(unroll, inputs)


@each_case
def test_differentiable_zero_gradients_have_finite_slopes(case):
    if not case.differentiable:
        pytest.skip(f"{case.name} is not differentiable")
    grad = torch.zeros(3, requires_grad=True)
    param = torch.ones(3).clone()
    optimizer = case.optimizer([param], lr=0.5, eps=0.0, differentiable=True)
    param.grad = grad
    optimizer.step()
    (slope,) = torch.autograd.grad(param.sum(), grad)
    torch.testing.assert_close(slope, torch.full((3,), -0.5))


@each_case
def test_learning_the_learning_rate(case):
    """One meta-step on lr lowers the loss after the inner steps."""
    if not case.differentiable:
        pytest.skip(f"{case.name} is not differentiable")

    def final_loss(lr):
        weight = torch.full((2,), 3.0, requires_grad=True).clone()
        optimizer = case.optimizer([weight], lr=lr, differentiable=True)
        for _ in range(4):
            inner = weight.clone().square().sum()  # the step overwrites weight itself
            (weight.grad,) = torch.autograd.grad(inner, weight, create_graph=True)
            optimizer.step()
        return weight.square().sum()

    lr = torch.tensor(0.05, requires_grad=True)
    loss = final_loss(lr)
    (slope,) = torch.autograd.grad(loss, lr)
    assert final_loss((lr - 0.01 * slope.sign()).detach()) < loss
