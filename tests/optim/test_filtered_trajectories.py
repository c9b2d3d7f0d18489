"""``filtered`` with every optimizer of torch.optim and pytorch-optimizer.

With ``filter_gamma=0`` the filter passes the gradient on, and the trajectory must be the inner
optimizer's own.
"""

import importlib.util
import inspect
import warnings

import pytest
import torch
from torch.optim import Optimizer

import sgdf
from small_network import network

KEYS = {"filter_step", "filter_exp_avg", "filter_exp_var"}
REFUSED = {"LBFGS", "SparseAdam"}
OF_TORCH = {
    name: value
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value) and issubclass(value, Optimizer) and value is not Optimizer
}
NEEDS_MORE = {
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
        if name not in NEEDS_MORE and not value.__module__.startswith("torch.")
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


def assert_same_trajectory(optimizer_class):
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
def test_with_gamma_0_torchs_optimizers_keep_their_trajectory(name):
    assert_same_trajectory(OF_TORCH[name])


@pytest.mark.skipif(not LIBRARY, reason="pytorch-optimizer is not installed")
@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_with_gamma_0_the_librarys_optimizers_keep_their_trajectory(name):
    if name in WRAPPERS:
        with pytest.raises(TypeError, match="wraps another optimizer; filter that one"):
            sgdf.filtered(LIBRARY[name])
    else:
        assert_same_trajectory(LIBRARY[name])


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_unsupported_optimizers_are_refused(name):
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
def test_arguments_that_are_no_optimizer_class_are_refused(wrong, message):
    with pytest.raises(TypeError, match=message):
        sgdf.filtered(wrong)
