"""Checkpoints and copies of filtered optimizers."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import sgdf
from cases import Quadratic, assert_equal, snapshot, train
from small_network import network

KEYS = {"filter_step", "filter_exp_avg", "filter_exp_var"}
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
def test_copies_are_independent(inner, duplicate):
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
def test_copies_of_a_subclass_have_its_class(duplicate):
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
        warnings.simplefilter("ignore")  # about running in one process
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


class Noisy(torch.optim.AdamW):
    """An optimizer that draws random numbers, and asks for a closure if it has to."""

    needs_closure = False

    def step(self, closure=None):
        """Take AdamW's step."""
        if self.needs_closure and closure is None:
            raise RuntimeError("a closure is needed")
        torch.rand(3)
        return super().step(closure)


def test_trying_an_entry_changes_nothing():
    problem = Quadratic()
    optimizer = sgdf.filtered(Noisy)(problem.params, lr=0.1)
    train(optimizer, problem, 2)
    calls = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("step"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: calls.append("load"))
    saved, params = snapshot(optimizer), copy.deepcopy(problem.params)
    kept, drawn = copy.deepcopy(saved), torch.get_rng_state()
    optimizer.load_state_dict(saved)
    assert calls == ["load"]
    assert torch.equal(torch.get_rng_state(), drawn)
    assert_equal(problem.params, params)
    assert_equal(saved, kept)
    saved["state"][1]["exp_avg"] = None
    with pytest.raises(ValueError, match=r"parameter 1: 'exp_avg': .*NoneType"):
        optimizer.load_state_dict(saved)
    assert_equal(snapshot(optimizer), kept)


class Counting(torch.optim.AdamW):
    """An optimizer that keeps a list of its own, and counts all steps of its class."""

    tried = 0

    def __init__(self, params, lr):
        super().__init__(params, lr=lr)
        self.losses = []

    def step(self, closure=None):
        """Take AdamW's step."""
        Counting.tried += 1
        self.losses.append(0.5)
        return super().step(closure)


def test_trying_an_entry_leaves_the_attributes_alone():
    problem = Quadratic()
    optimizer = sgdf.filtered(Counting)(problem.params, lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # which gives the optimizer a step of its own
    train(optimizer, problem, 2)
    optimizer.load_state_dict(snapshot(optimizer))
    assert optimizer.losses == [0.5, 0.5]


def test_trying_an_entry_calls_no_hook_of_all_optimizers():
    problem = Quadratic()
    torch.optim.AdamW(problem.params)  # from now on AdamW's step calls hooks, also as a part
    optimizer = sgdf.filtered(Noisy)(problem.params, lr=0.1)
    train(optimizer, problem, 1)
    calls = []
    hooks = [
        register(lambda *_: calls.append("step"))
        for register in (register_optimizer_step_pre_hook, register_optimizer_step_post_hook)
    ]
    try:
        optimizer.load_state_dict(snapshot(optimizer))
        assert calls == []
        train(optimizer, problem, 1)
        assert calls
    finally:
        for hook in hooks:
            hook.remove()


def test_entries_of_one_pattern_are_tried_once(monkeypatch):
    params = [torch.nn.Parameter(torch.ones(2 + i % 3, 3)) for i in range(200)]
    params += [torch.nn.Parameter(torch.ones(4)) for _ in range(100)]
    optimizer = sgdf.filtered(Counting)(params, lr=0.1)
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    saved = snapshot(optimizer)
    monkeypatch.setattr(Counting, "tried", 0)
    optimizer.load_state_dict(saved)
    assert Counting.tried == 2  # a matrix, and a vector
    for spoilt in (torch.ones(3, 3), None, torch.ones(3, 3).to_sparse()):
        bad = copy.deepcopy(saved)
        bad["state"][198]["exp_avg"] = spoilt  # the parameter has the shape (2, 3)
        with pytest.raises(ValueError, match="parameter 198: 'exp_avg'"):
            optimizer.load_state_dict(bad)


def test_parameters_that_have_not_moved_load_from_a_flat_checkpoint():
    """torch.distributed.checkpoint makes an empty entry for each of them."""
    model, inputs, _ = network()
    model.unused = torch.nn.Linear(2, 2)
    layers = model[:-1]
    for make in (sgdf.SGDF, sgdf.filtered(torch.optim.Adam)):
        optimizer = make(model.parameters(), lr=0.01)
        optimizer.zero_grad()
        layers(inputs).square().mean().backward()
        optimizer.step()
        options = StateDictOptions(flatten_optimizer_state_dict=True)
        saved = get_optimizer_state_dict(model, optimizer, options=options)
        before = snapshot(optimizer)["state"]
        set_optimizer_state_dict(model, optimizer, saved, options=options)
        after = {key: entry for key, entry in snapshot(optimizer)["state"].items() if entry}
        assert_equal(after, before)
        for param in model.unused.parameters():
            assert not optimizer.state[param]
            param.grad = torch.ones_like(param)
        optimizer.step()
        assert all(optimizer.state[param] for param in model.unused.parameters())


def test_a_step_that_cannot_be_tried_refuses_nothing(monkeypatch):
    problem = Quadratic()
    optimizer = sgdf.filtered(Noisy)(problem.params, lr=0.1)
    train(optimizer, problem, 2)
    saved = snapshot(optimizer)
    monkeypatch.setattr(Noisy, "needs_closure", True)
    optimizer.load_state_dict(saved)
    assert_equal(snapshot(optimizer), saved)


class Choosy(torch.optim.AdamW):
    """An optimizer with an option of its own; its step accepts two values of it."""

    def __init__(self, params, lr, mode="fast"):
        super().__init__(params, lr=lr)
        self.param_groups[0]["mode"] = mode

    def step(self, closure=None):
        """Take AdamW's step."""
        if self.param_groups[0]["mode"] not in ("fast", "slow"):
            raise LookupError(f"no such mode: {self.param_groups[0]['mode']}")
        return super().step(closure)


def test_an_option_that_the_inner_step_refuses_is_not_loaded():
    problem = Quadratic()
    optimizer = sgdf.filtered(Choosy)(problem.params, lr=0.1)
    train(optimizer, problem, 2)
    good = snapshot(optimizer)
    good["param_groups"][0]["mode"] = "slow"
    optimizer.load_state_dict(good)
    bad = copy.deepcopy(good)
    bad["param_groups"][0]["mode"] = "other"
    with pytest.raises(ValueError, match=r"options of its group, .*'mode'.*: no such mode: other"):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), good)
