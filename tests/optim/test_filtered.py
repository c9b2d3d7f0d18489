"""``filtered``: any optimizer on the filtered gradient, and the traps on the way there.

Each trap needs an inner optimizer that sets it, and the table of those that must work stands
here too: hence the length.
"""

import copy
import importlib.util
import inspect
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

import sgdf
from cases import Quadratic, assert_equal, snapshot, train
from reference import ReferenceSGDF

# Without the hooks that torch wraps around it once a test has built one.
unhooked_sgd_step = torch.optim.SGD.step
if hasattr(unhooked_sgd_step, "hooked"):
    unhooked_sgd_step = unhooked_sgd_step.__wrapped__
KEYS = {"filter_step", "filter_exp_avg", "filter_exp_var"}

# The table: every optimizer of torch.optim, and of pytorch-optimizer where it is installed.

REFUSED = {"LBFGS", "SparseAdam"}
OF_TORCH = {
    name: value
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value) and issubclass(value, Optimizer) and value is not Optimizer
}
NOT_ALONE = {
    "AdaHessian": "differentiates the gradients once more",
    "SophiaH": "differentiates the gradients once more",
    "AdaLOMO": "takes a model, and steps inside its backward pass",
    "LOMO": "takes a model, and steps inside its backward pass",
    "AdamMini": "takes a model",
    "BSAM": "evaluates its closure several times in a step",
    "DeMo": "needs einops and a process group",
    "DistributedMuon": "needs a process group",
    "MuonClip": "takes a model",
}
WRAPPERS = {
    *("FriendlySAM", "GSAM", "LookSAM", "Lookahead", "Magma", "OrthoGrad", "PCGrad", "SAM"),
    *("SafeFP16Optimizer", "ScheduleFreeWrapper", "TRAC", "WSAM"),
}
ONLY_FLOAT32 = {"FAdam"}
OWN_RANDOMNESS = {"Kron"}  # decides by a random number when to recompute; chaotic to 1e-6


def library():
    if not importlib.util.find_spec("pytorch_optimizer"):
        return {}
    import pytorch_optimizer

    return {
        name: value
        for name, value in vars(pytorch_optimizer).items()
        if inspect.isclass(value) and issubclass(value, Optimizer)
        if name not in NOT_ALONE and not value.__module__.startswith("torch.")
    }


LIBRARY = library()


def arguments(optimizer_class, **given):
    """Return what an optimizer cannot do without."""
    known = inspect.signature(optimizer_class).parameters
    given = {"lr": 0.01, "num_iterations": 15, **given}
    if optimizer_class.__name__ == "SaRA":
        given["threshold"] = 10.0  # else it moves none of these parameters
    return {name: value for name, value in given.items() if name in known}


def grouped(optimizer_class, params):
    """Return parameters as this optimizer likes them; those it does not take stay still."""
    if optimizer_class.__name__ == "SpectralSphere" or optimizer_class is torch.optim.Muon:
        return [param for param in params if param.dim() == 2]
    if "Mu" in optimizer_class.__name__ or optimizer_class.__name__ == "AdaGO":
        matrices = [param for param in params if param.dim() == 2]
        others = [param for param in params if param.dim() != 2]
        return [
            {"params": matrices, "use_muon": True},
            {"params": others, "use_muon": False},
        ]
    return params


def network(dtype=torch.float64):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    return model.to(dtype), torch.randn(16, 4, dtype=dtype), torch.randn(16, 2, dtype=dtype)


def needs_loss(optimizer):
    return "AliG" in type(optimizer).__name__


def fit(build, steps=15, dtype=torch.float64):
    """Train a small network with minibatches; return its parameters and the optimizer."""
    model, inputs, targets = network(dtype)
    optimizer = build(list(model.parameters()))
    for step in range(steps):
        optimizer.zero_grad()
        loss = (model(inputs[step % 4 :: 4]) - targets[step % 4 :: 4]).square().mean()
        loss.backward()
        torch.manual_seed(step)
        optimizer.step(*([loss.item] if step % 2 or needs_loss(optimizer) else []))
    return list(model.parameters()), optimizer


def assert_own_trajectory(optimizer_class):
    dtype = torch.float32 if optimizer_class.__name__ in ONLY_FLOAT32 else torch.float64
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    if optimizer_class.__name__ in OWN_RANDOMNESS:
        tolerance = 1e-5
    options = arguments(optimizer_class)
    filtered = sgdf.filtered(optimizer_class)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's own
        own, _ = fit(
            lambda params: optimizer_class(grouped(optimizer_class, params), **options),
            dtype=dtype,
        )
        ours, optimizer = fit(
            lambda params: filtered(grouped(optimizer_class, params), **options, filter_gamma=0.0),
            dtype=dtype,
        )
        different, _ = fit(
            lambda params: filtered(grouped(optimizer_class, params), **options), dtype=dtype
        )
    for p, q in zip(ours, own, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=tolerance)
    # The filter makes more of a difference than rounding ever would.
    assert max((p - q).abs().max() for p, q in zip(different, own, strict=True)) > 10 * tolerance
    moved = [p for group in optimizer.param_groups for p in group["params"]]
    assert all(optimizer.state[p].keys() >= KEYS for p in moved)


@pytest.mark.parametrize("name", sorted(set(OF_TORCH) - REFUSED))
def test_without_gain_torchs_optimizers_keep_their_trajectory(name):
    assert_own_trajectory(OF_TORCH[name])


@pytest.mark.skipif(not LIBRARY, reason="pytorch-optimizer is not installed")
@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_without_gain_the_librarys_optimizers_keep_their_trajectory(name):
    if name in WRAPPERS:
        with pytest.raises(TypeError, match="wraps another optimizer; filter that one"):
            sgdf.filtered(LIBRARY[name])
    else:
        assert_own_trajectory(LIBRARY[name])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_filtered_is_refused(name):
    with pytest.raises(TypeError, match=f"does not support {name}: its"):
        sgdf.filtered(OF_TORCH[name])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "takes a class of optimizers, got NoneType"),
        (torch.nn.Linear, "takes a class of optimizers, got type"),
        (torch.optim.SGD([torch.ones(1)]), "takes a class of optimizers, got SGD"),
        (sgdf.filtered(torch.optim.SGD), "FilteredSGD filters its gradients already"),
        (sgdf.SGDF, "SGDF filters its gradients already"),
    ],
)
def test_what_is_no_class_of_optimizers_is_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        sgdf.filtered(wrong)


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
def test_gradients_are_as_they_were(inner):
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


def test_added_groups_are_left_as_they_are():
    first, second = (torch.nn.Parameter(torch.ones(1)) for _ in range(2))
    optimizer = sgdf.filtered(torch.optim.SGD)([first], lr=0.1)
    group = {"params": [second]}
    optimizer.add_param_group(group)
    assert group == {"params": [second]}
    with pytest.raises(TypeError, match="must be a dict"):
        optimizer.add_param_group([second])


# A real subclass.


def test_it_is_a_class_like_others():
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
    """As Lightning does it: the gradients of this step come to be in the closure."""
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


def test_an_inner_optimizer_cannot_have_new_gradients():
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


def test_state_made_lazily():
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


# Checkpoints and copies.

INNER = [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad, torch.optim.Muon]
INNER.append(sgdf.UnifiedMomentum)


def build(inner, params, **options):
    if inner is torch.optim.Muon:
        params = [param for param in params if param.dim() == 2]
    if inner is torch.optim.SGD:
        options["momentum"] = 0.9
    return sgdf.filtered(inner)(params, **{"lr": 0.1, **options})


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_is_exact(inner, dtype):
    whole, halves = Quadratic(dtype), Quadratic(dtype)
    uninterrupted = build(inner, whole.params, filter_gamma=0.75)
    train(uninterrupted, whole, 300)
    first = build(inner, halves.params, filter_gamma=0.75)
    train(first, halves, 290)  # a count that bfloat16 could not hold
    file = io.BytesIO()
    torch.save({"optimizer": first.state_dict(), "params": halves.params}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    halves.params = [torch.nn.Parameter(p.detach()) for p in saved["params"]]
    second = build(inner, halves.params)
    second.load_state_dict(saved["optimizer"])
    assert second.param_groups[0]["filter_gamma"] == 0.75
    train(second, halves, 10)
    for p, q in zip(halves.params, whole.params, strict=True):
        assert torch.equal(p, q)
        if q in uninterrupted.state:
            filter_state = {key: uninterrupted.state[q][key] for key in KEYS}
            assert_equal({key: second.state[p][key] for key in KEYS}, filter_state)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on_alone(inner, duplicate):
    problem = Quadratic()
    optimizer = build(inner, problem.params)
    train(optimizer, problem, 3)
    twin, params = duplicate((optimizer, problem.params))
    assert type(twin) is type(optimizer)
    before = snapshot(optimizer)
    for param in params:
        param.grad = torch.ones_like(param)
    twin.step()
    assert_equal(optimizer.state_dict(), before)
    for param in problem.params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    assert_equal(twin.state_dict(), optimizer.state_dict())


class Custom(sgdf.filtered(torch.optim.SGD)):
    """A class of the user's."""


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_subclasses_stay_what_they_are(duplicate):
    problem = Quadratic()
    optimizer = Custom(problem.params, lr=0.1)
    train(optimizer, problem, 2)
    assert type(duplicate(optimizer)) is Custom
    assert_equal(duplicate(optimizer).state_dict(), optimizer.state_dict())


def test_distributed_checkpoint(tmp_path):
    model, inputs, targets = network()
    twin = copy.deepcopy(model)
    first, second = (
        sgdf.filtered(torch.optim.AdamW)(net.parameters(), lr=0.01) for net in (model, twin)
    )

    def step(net, optimizer):
        optimizer.zero_grad()
        (net(inputs) - targets).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step(model, first)
    saved = get_optimizer_state_dict(model, first)
    assert saved["state"]["0.weight"].keys() >= KEYS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is only one process
        dcp.save(saved, checkpoint_id=tmp_path)
        loaded = get_optimizer_state_dict(twin, second)
        dcp.load(loaded, checkpoint_id=tmp_path)
    twin.load_state_dict(model.state_dict())
    set_optimizer_state_dict(twin, second, loaded)
    for net, optimizer in ((model, first), (twin, second)):
        step(net, optimizer)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
        assert_equal(second.state[q], first.state[p])


def test_checkpoint_of_the_inner_optimizer_alone():
    problem = Quadratic()
    inner = torch.optim.Adam(problem.params, lr=0.01)
    train(inner, problem, 3)
    optimizer = sgdf.filtered(torch.optim.Adam)(problem.params, lr=0.5, filter_gamma=1.0)
    optimizer.load_state_dict(inner.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert optimizer.param_groups[0]["filter_gamma"] == 1.0
    train(optimizer, problem, 1)
    for param in problem.params:
        assert optimizer.state[param]["step"] == 4
        assert optimizer.state[param]["filter_step"] == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("filter_step", -1, "is not a count: -1"),
        ("filter_exp_avg", torch.zeros(2), r"has shape \(2,\)"),
        ("filter_exp_var", None, "is not a dense tensor"),
        ("filter_exp_var", "missing", "is missing"),
    ],
)
def test_bad_state_is_refused(key, value, message):
    problem = Quadratic()
    optimizer = build(torch.optim.Adam, problem.params)
    train(optimizer, problem, 2)
    good = snapshot(optimizer)
    bad = copy.deepcopy(good)
    bad["state"][1][key] = value
    if value == "missing":
        del bad["state"][1][key]
    with pytest.raises(ValueError, match=f"parameter 1: '{key}' {message}"):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), good)
