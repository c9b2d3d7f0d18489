"""``filtered``: what it computes, what it leaves unchanged, and difficult inner optimizers."""

import copy
import inspect

import numpy as np
import pytest
import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

import sgdf
from cases import Quadratic, assert_equal, snapshot
from reference import ReferenceSGDF
from small_network import network

# SGD's step without the hooks that torch wraps around it when the first SGD is made.
unhooked_sgd_step = torch.optim.SGD.step
if hasattr(unhooked_sgd_step, "hooked"):
    unhooked_sgd_step = unhooked_sgd_step.__wrapped__
KEYS = {"filter_step", "filter_exp_avg", "filter_exp_var"}

# What it computes.


@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"foreach": True}])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"gamma": 1.0, "betas": (0.5, 0.9), "eps": 1e-3},
        {"gamma_decay": 0.5, "correction": "none"},
    ],
)
def test_plain_sgd_on_the_filtered_gradient_is_sgdf(options, given):
    problem = Quadratic()
    filter_options = {f"filter_{name}": value for name, value in given.items()}
    optimizer = sgdf.filtered(torch.optim.SGD)(problem.params, lr=0.1, **options, **filter_options)
    references = [ReferenceSGDF(p.detach().numpy(), lr=0.1, **given) for p in problem.params]
    for _ in range(500):
        noise = problem.noise()
        problem.set_gradients(problem.params, noise)
        optimizer.step()
        points = [reference.theta for reference in references]
        for reference, grad in zip(references, problem.gradients(points, noise), strict=True):
            reference.step(grad)
    for param, reference in zip(problem.params, references, strict=True):
        state = optimizer.state[param]
        assert state["filter_step"].item() == 500
        for actual, expected in (
            (param, reference.theta),
            (state["filter_exp_avg"], reference.m),
            (state["filter_exp_var"], reference.s),
        ):
            assert np.abs(actual.detach().numpy() - expected).max() < 1e-12


def test_groups_have_their_own_filter():
    params = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
    optimizer = sgdf.filtered(torch.optim.SGD)(
        [{"params": params[:1]}, {"params": params[1:2], "filter_gamma": 0.0}],
        lr=1.0,
        filter_gamma=1.0,
    )
    optimizer.add_param_group({"params": params[2:], "filter_betas": (0.0, 0.9)})
    gammas = [group["filter_gamma"] for group in optimizer.param_groups]
    assert gammas == [1.0, 0.0, 1.0]
    for grad in (1.0, -1.0):
        for param in params:
            param.grad = torch.full((2,), grad)
        optimizer.step()
    assert not torch.equal(params[0], torch.zeros(2))
    for param in params[1:]:  # no power, or no momentum: the gradient passes
        torch.testing.assert_close(param.detach(), torch.zeros(2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_a_float32_state(dtype):
    param = torch.nn.Parameter(torch.ones(4, dtype=dtype))
    optimizer = sgdf.filtered(torch.optim.SGD)([param], lr=0.1)
    param.grad = torch.full((4,), 1e-4, dtype=dtype)
    optimizer.step()
    assert optimizer.state[param]["filter_exp_var"].dtype == torch.float32
    assert (optimizer.state[param]["filter_exp_var"] > 0).all()


def test_complex_is_two_reals():
    whole = torch.nn.Parameter(torch.randn(3, dtype=torch.complex128))
    parts = torch.nn.Parameter(torch.view_as_real(whole.detach()).clone())
    optimizers = [sgdf.filtered(torch.optim.SGD)([p], lr=0.1) for p in (whole, parts)]
    for _ in range(5):
        grad = torch.randn(3, dtype=torch.complex128)
        whole.grad, parts.grad = grad, torch.view_as_real(grad).clone()
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(torch.view_as_real(whole), parts)


class Tagged(torch.nn.Parameter):
    """A type that foreach kernels are not asked to know."""


def test_other_types_of_parameters_and_mixed_dtypes():
    params = [
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.ones(2, dtype=torch.float64)),
        Tagged(torch.ones(2)),
        torch.nn.Parameter(torch.ones(0)),
        torch.nn.Parameter(torch.ones(2)),
    ]
    optimizer = sgdf.filtered(torch.optim.SGD)(params, lr=0.5)
    for param in params[:-1]:
        param.grad = torch.ones_like(param)
    optimizer.step()
    for param in params[:3]:
        assert param.tolist() == [0.5, 0.5]
    assert params[-1].tolist() == [1.0, 1.0]
    assert params[-1] not in optimizer.state


# What the caller owns.


class Greedy(torch.optim.SGD):
    """An optimizer that writes to the gradients and throws them away."""

    @torch.no_grad()
    def step(self, closure=None):
        """Do as SGD does, and more."""
        super().step()
        for group in self.param_groups:
            for param in group["params"]:
                param.grad.mul_(7.0)
                param.grad = None


@pytest.mark.parametrize("inner", [torch.optim.Adam, Greedy])
def test_gradients_are_restored(inner):
    problem = Quadratic(torch.float32)
    optimizer = sgdf.filtered(inner)(problem.params, lr=0.1, weight_decay=0.1)
    for _ in range(2):
        problem.set_gradients(problem.params, problem.noise())
        grads = [param.grad for param in problem.params]
        values = [grad.clone() for grad in grads]
        optimizer.step()
        for param, grad, value in zip(problem.params, grads, values, strict=True):
            assert param.grad is grad
            assert torch.equal(grad, value)


class Failing(torch.optim.SGD):
    """An optimizer whose step fails."""

    def step(self, closure=None):
        """Fail."""
        raise RuntimeError("out of memory")


def test_gradients_and_state_survive_a_failing_step():
    param = torch.nn.Parameter(torch.ones(2))
    optimizer = sgdf.filtered(Failing)([param], lr=0.1)
    param.grad = grad = torch.ones(2)
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step()
    assert param.grad is grad
    assert optimizer.state[param].keys() == KEYS


def test_sparse_gradients_stop_the_step_before_anything_moves():
    dense, sparse = (torch.nn.Parameter(torch.ones(3, 3)) for _ in range(2))
    optimizer = sgdf.filtered(torch.optim.SGD)([{"params": [dense]}, {"params": [sparse]}], lr=0.1)
    dense.grad, sparse.grad = torch.ones(3, 3), torch.eye(3).to_sparse()
    with pytest.raises(RuntimeError, match=r"FilteredSGD does not support sparse gradients"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(3, 3))
    assert not optimizer.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter_gamma": -1.0}, "gamma value: -1.0"),
        ({"filter_betas": (1.0, 0.9)}, "index 0: 1.0"),
        ({"filter_eps": float("nan")}, "nan"),
        ({"filter_correction": "adam"}, "adam"),
        ({"filter_gamma_decay": -1.0}, "-1.0"),
        ({"lr": -1.0}, "-1.0"),
    ],
)
def test_bad_options_are_refused(options, message):
    (param, other) = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    cls = sgdf.filtered(torch.optim.SGD)
    with pytest.raises(ValueError, match=message):
        cls([param], **{"lr": 0.1, **options})
    if "lr" in options:
        return  # torch looks at that one in the constructor only
    with pytest.raises(ValueError, match=message):
        cls([{"params": [param], **options}], lr=0.1)
    optimizer = cls([param], lr=0.1)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": [other], **options})
    bad = copy.deepcopy(before)
    bad["param_groups"][0].update(options)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), before)


def test_unknown_and_differentiable_are_refused():
    param = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(TypeError, match="filter_gama"):
        sgdf.filtered(torch.optim.SGD)([param], lr=0.1, filter_gama=0.5)
    refused = pytest.raises(RuntimeError, match="do not support `differentiable`")
    with refused:
        sgdf.filtered(torch.optim.SGD)([param], lr=0.1, differentiable=True)
    with refused:
        sgdf.filtered(torch.optim.SGD)([{"params": [param], "differentiable": True}], lr=0.1)


def test_added_groups_are_not_changed():
    first, second = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = sgdf.filtered(torch.optim.SGD)([first], lr=0.1)
    group = {"params": [second]}
    optimizer.add_param_group(group)
    assert group == {"params": [second]}
    with pytest.raises(TypeError, match="must be a dict"):
        optimizer.add_param_group([second])


# A real subclass.


def test_it_is_a_subclass_with_a_full_signature():
    cls = sgdf.filtered(torch.optim.AdamW)
    assert cls is sgdf.filtered(torch.optim.AdamW)
    assert issubclass(cls, torch.optim.AdamW)
    assert cls.__name__ == "FilteredAdamW"
    named = inspect.signature(cls).parameters
    assert {"params", "lr", "weight_decay", "amsgrad", "filter_betas"} <= named.keys()
    assert named["filter_gamma"].default == 0.5
    ours = inspect.signature(sgdf.filtered(sgdf.UnifiedMomentum)).parameters
    assert {"params", "maximize", "filter_gamma"} <= ours.keys()
    optimizer = cls([torch.nn.Parameter(torch.ones(1))], 0.25, amsgrad=True)
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.param_groups[0]["amsgrad"]
    torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)


@pytest.mark.parametrize("inner_first", [False, True])
@pytest.mark.parametrize("calls_super", [False, True])
def test_hooks_fire_once(inner_first, calls_super):
    """A class's step is wrapped to call the hooks when the class is first used."""

    class Base(torch.optim.SGD):
        """A class that is wrapped in this test, not by another."""

        def step(self, closure=None):
            """Do as SGD does."""
            return unhooked_sgd_step(self, closure)

    class Derived(Base):
        """A class whose step calls one that may be wrapped."""

        def step(self, closure=None):
            """Do as its base does."""
            return super().step(closure)

    inner = Derived if calls_super else Base
    if inner_first:
        Base([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    param = torch.nn.Parameter(torch.ones(1))
    optimizer = sgdf.filtered(inner)([param], lr=0.1)
    if not inner_first:
        Base([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    calls, seen = [], []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda opt, *_: calls.append(opt.state[param].keys() >= KEYS))
    everywhere = register_optimizer_step_pre_hook(lambda *_: seen.append(1))
    monitor = sgdf.monitor.attach(optimizer, every=1)
    try:
        param.grad = torch.ones(1)
        optimizer.step()
        optimizer.step()
    finally:
        everywhere.remove()
    assert calls == ["before", True] * 2
    assert calls_super or seen == [1, 1]  # torch itself calls these for each wrapped step
    assert monitor.latest["step"] == 2


class Bare(Optimizer):
    """An optimizer whose step takes no closure and whose state is a plain dict."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.state = {}

    @torch.no_grad()
    def step(self):
        """Descend."""
        for group in self.param_groups:
            for param in group["params"]:
                param -= group["lr"] * param.grad


def test_an_inner_step_without_arguments():
    param = torch.nn.Parameter(torch.ones(1))
    optimizer = sgdf.filtered(Bare)([param], lr=0.1)
    for _ in range(2):
        param.grad = torch.ones(1)
        optimizer.step()
    torch.testing.assert_close(param.detach(), torch.tensor([0.8]))


def test_backward_inside_the_step():
    """As Lightning does it: the closure computes the gradients of this step."""
    model, inputs, targets = network()
    twin = copy.deepcopy(model)
    cls = sgdf.filtered(torch.optim.Adam)
    inside, outside = cls(model.parameters(), lr=0.1), cls(twin.parameters(), lr=0.1)
    for _ in range(5):
        calls = []

        def closure(calls=calls):
            calls.append(1)
            inside.zero_grad()
            loss = (model(inputs) - targets).square().mean()
            loss.backward()
            return loss

        with torch.no_grad():
            loss = inside.step(closure)
        assert calls == [1]
        outside.zero_grad()
        expected = (twin(inputs) - targets).square().mean()
        expected.backward()
        assert outside.step() is None
        assert loss.item() == expected.item()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)


class Twice(torch.optim.SGD):
    """An optimizer that evaluates its closure a second time."""

    def step(self, closure=None):
        """Ask twice."""
        closure()
        closure()


def test_an_inner_optimizer_cannot_evaluate_the_closure_again():
    param = torch.nn.Parameter(torch.ones(1))
    optimizer = sgdf.filtered(Twice)([param], lr=0.1)
    param.grad = torch.ones(1)
    with pytest.raises(RuntimeError, match="evaluates the closure once"):
        optimizer.step(lambda: 0.0)


class Lazy(Optimizer):
    """An optimizer that takes an entry in its state for one that it has made."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        """Count, and descend."""
        for group in self.param_groups:
            for param in group["params"]:
                if param not in self.state:
                    self.state[param] = {"count": 0}
                if len(self.state[param]) != 1:
                    raise RuntimeError(f"foreign state: {list(self.state[param])}")
                self.state[param]["count"] += 1
                param -= group["lr"] * param.grad


def test_inner_optimizers_that_make_their_state_lazily():
    param = torch.nn.Parameter(torch.ones(1))
    optimizer = sgdf.filtered(Lazy)([param], lr=0.1)
    for _ in range(2):
        param.grad = torch.ones(1)
        optimizer.step()
    assert optimizer.state[param]["count"] == 2
    assert optimizer.state[param].keys() == KEYS | {"count"}


# GradScaler.


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("unscale_first", [False, True])
def test_scaled_gradients(fused, unscale_first):
    (model, inputs, targets) = network(torch.float32)
    twin = copy.deepcopy(model)
    cls = sgdf.filtered(torch.optim.Adam)
    plain, scaled = (cls(net.parameters(), lr=0.01, fused=fused) for net in (model, twin))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)

    def scaled_step(factor=1.0):
        scaled.zero_grad()
        scaler.scale((twin(inputs) - targets).square().mean() * factor).backward()
        if unscale_first:
            scaler.unscale_(scaled)
        scaler.step(scaled)
        scaler.update()

    for step in range(5):
        plain.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        plain.step()
        if step == 3:
            before = snapshot(scaled), [p.detach().clone() for p in twin.parameters()]
            scaled_step(factor=float("inf"))
            assert_equal([snapshot(scaled), list(twin.parameters())], list(before))
            assert scaler.get_scale() == 2.0**13
        scaled_step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert not hasattr(scaled, "grad_scale")
