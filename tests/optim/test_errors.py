"""Bad input: the right kind of error, the value in its message, nothing half-changed."""

import copy
from fractions import Fraction

import numpy as np
import pytest
import torch

from cases import CASES, Quadratic, assert_equal, build, describe, each_case, snapshot, train
from sgdf.optim.native import step as native_step

COMMON = [
    ({"lr": -0.1}, ValueError, "Invalid learning rate: -0.1"),
    ({"lr": float("nan")}, ValueError, "Invalid learning rate: nan"),
    ({"lr": torch.tensor(-0.5)}, ValueError, "Invalid learning rate: .*-0.5"),
    ({"lr": torch.tensor([0.1, 0.2])}, ValueError, r"1-element, got \(2,\)"),
    ({"lr": False}, ValueError, "Invalid learning rate: False"),
    ({"lr": np.True_}, ValueError, "Invalid learning rate: .*True"),
    ({"lr": Fraction(10) ** 400}, ValueError, "Invalid learning rate: "),
    ({"weight_decay": -1.0}, ValueError, "Invalid weight_decay value: -1.0"),
    ({"maximize": np.array([1, 2])}, ValueError, "Invalid maximize, expected True or False: "),
    ({"foreach": True, "fused": True}, RuntimeError, "`fused` and `foreach`"),
    ({"differentiable": True, "fused": True}, RuntimeError, "`fused` does not support"),
    ({"differentiable": True, "foreach": True}, RuntimeError, "`foreach` does not support"),
    ({"state_format": "int3"}, ValueError, "int3"),
    ({"state_format": None}, ValueError, "None"),
    ({"state_format": "int8", "differentiable": True}, RuntimeError, "`state_format` does not"),
    (
        {"stochastic_rounding": True, "differentiable": True},
        RuntimeError,
        "`stochastic_rounding` does not support `differentiable`",
    ),
]
ROWS = [(case, *row) for case in CASES for row in COMMON]
ROWS += [(case, options, ValueError, text) for case in CASES for options, text in case.invalid]


def each_invalid(rows):
    return pytest.mark.parametrize(("case", "options", "error", "message"), rows, ids=describe)


@each_invalid(ROWS)
def test_constructor_refuses(case, options, error, message):
    with pytest.raises(error, match=message):
        case.make([torch.nn.Parameter(torch.ones(1))], **options)


@each_invalid(ROWS)
def test_added_group_is_refused(case, options, error, message):
    problem = Quadratic()
    optimizer = build(case, problem.params[:1])
    group = {"params": problem.params[1:], "foreach": None, **options}
    before, given = snapshot(optimizer), dict(group)
    with pytest.raises(error, match=message):
        optimizer.add_param_group(group)
    assert_equal(snapshot(optimizer), before)
    assert group.keys() == given.keys()
    assert all(group[key] is given[key] for key in group)


# On loading, the constructor's state_format wins, so that a wrong one does no harm.
@each_invalid([row for row in ROWS if "state_format" not in row[1]])
def test_loaded_group_is_refused(case, options, error, message):
    optimizer, before = trained(case)
    bad = copy.deepcopy(before)
    bad["param_groups"][0].update({"foreach": None} | options)
    with pytest.raises(error, match=message) as caught:
        optimizer.load_state_dict(bad)
    assert caught.value.__notes__ == ["This is about param_groups[0] of the checkpoint."]
    assert_equal(snapshot(optimizer), before)


@each_case
@pytest.mark.parametrize(
    ("group", "error", "message"),
    [
        ([torch.nn.Parameter(torch.ones(1))], TypeError, "must be a dict"),
        ({"params": "own"}, ValueError, "more than one parameter group"),
        ({"params": {torch.ones(1)}}, TypeError, "sets"),
        ({"params": [3.0]}, TypeError, "float"),
    ],
)
def test_added_group_with_bad_parameters_is_refused(case, group, error, message):
    problem = Quadratic()
    optimizer = build(case, problem.params)
    if isinstance(group, dict) and group["params"] == "own":
        group = {"params": problem.params[:1]}
    before = snapshot(optimizer)
    with pytest.raises(error, match=message):
        optimizer.add_param_group(group)
    assert_equal(snapshot(optimizer), before)


def trained(case):
    """Return an optimizer after two steps and a copy of its state."""
    problem = Quadratic()
    optimizer = build(case, problem.params)
    train(optimizer, problem, 2)
    return optimizer, snapshot(optimizer)


def add_group(state_dict):
    state_dict["param_groups"].append(copy.deepcopy(state_dict["param_groups"][0]))


def drop_parameter(state_dict):
    state_dict["param_groups"][0]["params"].pop()


@each_case
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (add_group, "different number of parameter groups"),
        (drop_parameter, "size of optimizer's group"),
    ],
)
def test_checkpoint_of_another_model_is_refused(case, spoil, message):
    optimizer, good = trained(case)
    bad = copy.deepcopy(good)
    spoil(bad)
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), good)


@each_case
@pytest.mark.parametrize("bad", [None, []], ids=repr)
def test_checkpoint_that_is_no_dict_is_refused(case, bad):
    optimizer, good = trained(case)
    with pytest.raises(TypeError, match="Invalid checkpoint, expected a dict"):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), good)


@each_case
def test_load_that_a_hook_interrupts_changes_nothing(case):
    def interrupt(_):
        raise KeyError("of the hook")

    optimizer, before = trained(case)
    other = copy.deepcopy(before)
    other["param_groups"][0]["lr"] = 0.03
    other["state"][1]["step"] += 7
    optimizer.register_load_state_dict_post_hook(interrupt)
    with pytest.raises(KeyError, match="of the hook"):
        optimizer.load_state_dict(other)
    assert_equal(snapshot(optimizer), before)


MISSING = object()
BAD_BUFFERS = [
    (MISSING, "is missing"),
    (torch.zeros(2), r"has shape \(2,\), the parameter \(5,\)"),
    (None, "is not a dense tensor: None"),
    ([0.0] * 5, "is not a dense tensor"),
    (torch.zeros(5).to_sparse(), "is not a dense tensor"),
    (torch.zeros(5, device="meta"), "has no values: it is on the device meta"),
    (torch.zeros(5, dtype=torch.complex64), "has dtype torch.complex64"),
]
BAD_STEPS = [
    (MISSING, "is missing"),
    (-1, "is not a count: -1"),
    (float("nan"), "is not a count: nan"),
    (float("inf"), "is not a count: inf"),
    (torch.zeros(2), "is not a count"),
    (None, "is not a count: None"),
    ("two", "is not a count: 'two'"),
]


@pytest.mark.parametrize(
    ("case", "key", "value", "message"),
    [(case, key, *row) for case in CASES for key in case.buffers for row in BAD_BUFFERS]
    + [(case, "step", *row) for case in CASES for row in BAD_STEPS],
    ids=describe,
)
def test_bad_state_is_refused(case, key, value, message):
    optimizer, good = trained(case)
    bad = copy.deepcopy(good)
    if value is MISSING:
        del bad["state"][1][key]
    else:
        bad["state"][1][key] = value
    with pytest.raises(ValueError, match=f"parameter 1: '{key}' {message}"):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), good)
    assert not optimizer._optimizer_load_state_dict_pre_hooks, "a failed load left its hook"


@each_case
def test_state_that_is_no_dict_is_refused(case):
    optimizer, good = trained(case)
    bad = copy.deepcopy(good)
    bad["state"][1] = 7
    with pytest.raises(ValueError, match="parameter 1: not a dict: 7"):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), good)


@each_case
def test_sparse_gradient_stops_the_whole_step(case):
    dense = torch.nn.Parameter(torch.ones(3, 3))
    sparse = torch.nn.Parameter(torch.ones(3, 3))
    optimizer = build(case, [{"params": [dense]}, {"params": [sparse]}])
    dense.grad = torch.ones(3, 3)
    sparse.grad = torch.eye(3).to_sparse()
    with pytest.raises(RuntimeError, match=r"sparse gradients.*sparse_coo.*\(3, 3\)"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(3, 3))
    assert not optimizer.state


@each_case
def test_capturable_on_the_cpu_gets_torchs_error(case):
    param = torch.nn.Parameter(torch.ones(2))
    param.grad = torch.ones(2)
    with pytest.raises(AssertionError) as theirs:
        torch.optim.Adam([param], capturable=True).step()
    with pytest.raises(AssertionError) as ours:
        case.make([param], capturable=True).step()
    beginning = "If capturable=True, params and state_steps must be on supported devices"
    assert str(theirs.value).startswith(beginning)
    assert str(ours.value).startswith(beginning)


@each_case
def test_fused_without_a_compiler_warns_and_gives_foreach(case, monkeypatch):
    monkeypatch.setattr(native_step, "_library", lambda: OSError("no C compiler was found"))
    problems = Quadratic(), Quadratic()
    fallback = pytest.warns(UserWarning, match=r"\(no C compiler was found\); using foreach")
    with fallback:
        fused = case.make(problems[0].params, fused=True)
    foreach = case.make(problems[1].params, foreach=True)
    train(fused, problems[0], 5)
    train(foreach, problems[1], 5)
    assert_equal(problems[0].params, problems[1].params)
    with fallback:
        fused.load_state_dict(fused.state_dict())
    with fallback:
        foreach.add_param_group(
            {"params": [torch.nn.Parameter(torch.ones(1))], "foreach": None, "fused": True}
        )


@each_case
def test_fused_is_refused_on_meta(case):
    elsewhere = torch.nn.Parameter(torch.ones(2, device="meta"))
    refusal = pytest.raises(RuntimeError, match=r"or an accelerator, got torch.float32 on meta")
    with refusal:
        case.make([elsewhere], fused=True)
    optimizer = case.make([torch.nn.Parameter(torch.ones(2))])
    before = snapshot(optimizer)
    with refusal:
        optimizer.add_param_group({"params": [elsewhere], "fused": True})
    assert_equal(snapshot(optimizer), before)
    optimizer = case.make([elsewhere])
    before = snapshot(optimizer)
    asking = copy.deepcopy(before)
    asking["param_groups"][0]["fused"] = True
    with refusal:
        optimizer.load_state_dict(asking)
    assert_equal(snapshot(optimizer), before)


@each_case
def test_empty_and_wrong_parameter_lists(case):
    with pytest.raises(ValueError, match="empty parameter list"):
        case.make([])
    with pytest.raises(TypeError, match="iterable of Tensors"):
        case.make(torch.ones(1))
