"""Checkpoints of states in small formats: what is in them, between formats, and bad ones."""

import copy
import io
import itertools
import pickle
import warnings

import pytest
import torch
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)

import sgdf
from cases import CASES, assert_equal, snapshot
from formats import (
    FORMATS,
    SHARING,
    WITH_CODES,
    WITH_NOISE,
    build,
    each_format,
    each_row,
    each_small,
    each_step_path,
    parameters,
    states,
    stored_numbers,
    take_steps,
)

SHAPES = ((64, 300), (4200,), (12, 40, 3, 3), (7, 5))
FLOAT, HALF, INT8, UINT8 = torch.float32, torch.bfloat16, torch.int8, torch.uint8

# For each format what it adds to a state, for a parameter of shape (64, 300).
MEANS = {
    "full": {"exp_avg": (FLOAT, (64, 300))},
    "bfloat16": {"exp_avg": (HALF, (64, 300))},
    "int8": {"exp_avg": (INT8, (64, 300)), "exp_avg_scale": (FLOAT, (64, 2))},
}
VARIANCES = {
    "full": {"exp_var": (FLOAT, (64, 300))},
    "bfloat16": {"exp_var": (HALF, (64, 300))},
    "int8": {"exp_var": (UINT8, (64, 300)), "exp_var_scale": (FLOAT, (64, 2))},
    "block": {"exp_var": (FLOAT, ())},
}


def trained(state_format, shapes=SHAPES, steps=4, path="native", case=CASES[0], **options):
    params = parameters(shapes)
    optimizer = build(case, params, path, state_format=state_format, **options)
    take_steps(optimizer, steps)
    return params, optimizer


def saved_and_read(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


# What is in them.


@each_row
def test_a_state_consists_of_plain_tensors_with_the_documented_keys(case, state_format):
    params = parameters(((64, 300),))
    if case.orthogonal:
        params = [{"params": params, "direction": "adam"}]
    optimizer = case.make(params, state_format=state_format)
    take_steps(optimizer, 1)
    mean = state_format.removesuffix("-block").replace("block", "full")
    variance = "block" if state_format in SHARING else mean
    expected = {"step": (FLOAT, ()), **MEANS[mean]}
    if "exp_var" in case.buffers:
        expected |= VARIANCES[variance]
    if "exp_avg_sq" in case.buffers:
        square = VARIANCES[mean]
        expected |= {key.replace("var", "avg_sq"): value for key, value in square.items()}
    (entry,) = optimizer.state_dict()["state"].values()
    assert all(type(value) is torch.Tensor for value in entry.values())
    assert {key: (value.dtype, value.shape) for key, value in entry.items()} == expected


# Resuming.


@each_row
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("path", ["native", "foreach"])
def test_resuming_is_exact(case, state_format, dtype, path):
    options = {"state_format": state_format, "stochastic_rounding": True, "weight_decay": 0.01}
    shapes = ((64, 80), (4200,), (7, 5))
    whole = parameters(shapes, dtype)
    uninterrupted = build(case, whole, path, **options)
    take_steps(uninterrupted, 6, rests=True)
    first_half = parameters(shapes, dtype)
    first = build(case, first_half, path, **options)
    take_steps(first, 3, rests=True)
    saved = saved_and_read({"optimizer": first.state_dict(), "params": first_half})
    second_half = [torch.nn.Parameter(p.detach()) for p in saved["params"]]
    second = build(case, second_half, path, state_format=state_format, lr=9.0)
    second.load_state_dict(saved["optimizer"])
    take_steps(second, 3, first=3, rests=True)
    assert_equal([p.detach() for p in second_half], [p.detach() for p in whole])
    assert_equal(second.state_dict(), uninterrupted.state_dict())


@each_small
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_go_on_by_themselves(state_format, duplicate):
    params, optimizer = trained(state_format, stochastic_rounding=True)
    copies, twin = duplicate((params, optimizer))
    assert_equal(twin.state_dict(), optimizer.state_dict())
    before = snapshot(optimizer)
    take_steps(twin, 2, first=4)
    assert_equal(snapshot(optimizer), before)
    take_steps(optimizer, 2, first=4)
    assert_equal(twin.state_dict(), optimizer.state_dict())
    assert_equal([p.detach() for p in copies], [p.detach() for p in params])


@each_small
def test_a_distributed_checkpoint(state_format, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(80, 64), torch.nn.Linear(64, 3))
    twin = copy.deepcopy(model)
    first, second = (
        sgdf.SGDF(net.parameters(), lr=0.1, state_format=state_format) for net in (model, twin)
    )
    take_steps(first, 3)
    saved = get_optimizer_state_dict(model, first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about running in one process
        dcp.save(saved, checkpoint_id=tmp_path)
        loaded = get_optimizer_state_dict(twin, second)
        dcp.load(loaded, checkpoint_id=tmp_path)
    twin.load_state_dict(model.state_dict())
    set_optimizer_state_dict(twin, second, loaded)
    assert_equal(states(second), states(first))
    for optimizer in (first, second):
        take_steps(optimizer, 2, first=3)
    assert_equal([p.detach() for p in twin.parameters()], [p.detach() for p in model.parameters()])
    assert_equal(states(second), states(first))


# From one format to another.


def assert_rounded(numbers, exact, state_format, buffer):
    """Check that these are the exact numbers, rounded to nearest."""
    if exact.numel() < 4096 or state_format == "full":
        assert torch.equal(numbers, exact)
        return
    is_mean = buffer == "exp_avg"
    if not is_mean and state_format in SHARING:
        expected = exact.double().mean().expand(exact.shape)
        torch.testing.assert_close(numbers.double(), expected, rtol=1e-6, atol=0.0)
        return
    if is_mean and state_format == "block":
        assert torch.equal(numbers, exact)
        return
    rows = exact.reshape(1 if exact.dim() < 2 else len(exact), -1)
    largest = rows.abs().amax(1, keepdim=True)
    if state_format not in WITH_CODES:
        allowed = rows.abs() * 2.0**-8
    elif is_mean:
        allowed = largest.expand_as(rows) / 254
    else:
        allowed = rows / 15 + largest * 2.0**-34
    error = numbers.reshape_as(rows) - rows
    assert (error.abs() <= (1 + 1e-5) * allowed).all()
    # To nearest, numbers go up as often as down.
    if error.any():
        assert 0.4 <= (error[error != 0.0] > 0.0).double().mean() <= 0.6


@pytest.mark.parametrize(("theirs", "ours"), [*itertools.product(FORMATS, FORMATS)])
def test_loading_from_every_format_into_every_other(theirs, ours):
    params, optimizer = trained(theirs)
    saved = saved_and_read(optimizer.state_dict())
    assert saved["param_groups"][0]["state_format"] == theirs
    kept = copy.deepcopy(saved)
    twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = sgdf.SGDF(twins, lr=9.0, state_format=ours)
    other.load_state_dict(saved)
    assert_equal(saved, kept)
    (group,) = other.param_groups
    assert group["state_format"] == ours  # the constructor's wins
    if ours == theirs:
        assert_equal(states(other), states(optimizer))
    for param, twin in zip(params, twins, strict=True):
        count, exact = stored_numbers(optimizer, optimizer.param_groups[0], param)
        own_count, numbers = stored_numbers(other, group, twin)
        assert own_count == count == 4
        for buffer, own, their in zip(("exp_avg", "exp_var"), numbers, exact, strict=True):
            if ours == theirs:
                assert torch.equal(own, their)
            elif theirs in SHARING and buffer == "exp_var" and ours not in SHARING:
                torch.testing.assert_close(own, their, rtol=2.0**-8, atol=0.0)
            else:
                assert_rounded(own, their, ours, buffer)
    fresh = sgdf.SGDF([torch.nn.Parameter(p.detach().clone()) for p in params], state_format=ours)
    take_steps(fresh, 1)
    assert [entry.keys() for entry in states(other)] == [entry.keys() for entry in states(fresh)]
    take_steps(other, 2, first=4)
    assert all(p.isfinite().all() for p in twins)


@each_format
def test_a_checkpoint_without_the_option_is_loaded(state_format):
    """As versions without formats have written it, with the state in full."""
    params, optimizer = trained("full")
    saved = optimizer.state_dict()
    for name in ("state_format", "stochastic_rounding"):
        del saved["param_groups"][0][name]
    other = sgdf.SGDF(params, state_format=state_format, stochastic_rounding=True)
    other.load_state_dict(saved)
    assert other.param_groups[0]["state_format"] == state_format
    assert other.param_groups[0]["stochastic_rounding"] is True
    take_steps(other, 1)


@each_small
def test_loading_replaces_what_another_format_left(state_format):
    """Into an optimizer that has taken steps, whose state has other keys than the checkpoint."""
    _, full = trained("full")
    _, optimizer = trained(state_format, steps=2)
    optimizer.load_state_dict(full.state_dict())
    assert_equal(
        [sorted(entry) for entry in states(optimizer)],
        [sorted(entry) for entry in states(trained(state_format, steps=1)[1])],
    )
    assert all(entry["step"] == 4 for entry in states(optimizer))


# Bad ones.

MISSING = object()


@pytest.mark.parametrize("ours", ["full", "int8", "bfloat16-block"])
@pytest.mark.parametrize(
    ("theirs", "key", "value", "message"),
    [
        ("int8", "exp_avg_scale", MISSING, "is missing"),
        ("int8", "exp_var_scale", MISSING, "is missing"),
        ("int8-block", "exp_avg_scale", MISSING, "is missing"),
        ("int8", "exp_avg_scale", torch.ones(64), r"has shape \(64,\), expected \(64, 2\)"),
        ("int8", "exp_var_scale", torch.ones(64, 1), r"has shape \(64, 1\), expected \(64, 2\)"),
        ("int8", "exp_avg_scale", torch.ones(64, 2).double(), "has dtype torch.float64"),
        ("int8", "exp_var_scale", torch.ones(64, 2).bfloat16(), "has dtype torch.bfloat16"),
        ("int8", "exp_avg_scale", None, "is missing"),
        ("int8", "exp_var_scale", "scales", "is not a dense tensor: 'scales'"),
        ("int8", "exp_avg_scale", torch.ones(64, 2).to_sparse(), "is not a dense tensor"),
        ("int8", "exp_avg_scale", torch.ones(64, 2, device="meta"), "has no values"),
        ("int8", "exp_avg", torch.zeros(64, 300, dtype=UINT8), "has dtype torch.uint8"),
        ("int8", "exp_var", torch.zeros(64, 300, dtype=INT8), "has dtype torch.int8"),
        ("int8", "exp_avg", torch.zeros(64, 2, dtype=INT8), r"has shape \(64, 2\)"),
        ("bfloat16", "exp_avg", torch.zeros(300).bfloat16(), r"has shape \(300,\)"),
        ("block", "exp_avg", torch.zeros(()), r"has shape \(\)"),
        ("block", "exp_var", torch.zeros(1), r"has shape \(1,\)"),
        ("block", "exp_var", MISSING, "is missing"),
    ],
)
def test_a_bad_buffer_is_refused_and_nothing_changes(theirs, key, value, message, ours):
    _, foreign = trained(theirs)
    bad = snapshot(foreign)
    if value is MISSING:
        del bad["state"][0][key]
    else:
        bad["state"][0][key] = value
    _, optimizer = trained(ours, steps=2)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=f"parameter 0: '{key}' {message}"):
        optimizer.load_state_dict(bad)
    assert_equal(snapshot(optimizer), before)
    take_steps(optimizer, 1)


# Other ways to a state.


@each_format
@pytest.mark.parametrize("running", [torch.optim.SGD, torch.optim.Adam])
def test_a_training_is_taken_over_into_a_format(state_format, running):
    params = parameters(SHAPES)
    momentum = {"momentum": 0.9} if running is torch.optim.SGD else {}
    other = running(params, lr=0.01, **momentum)
    take_steps(other, 5)
    exact = sgdf.take_over(other, lr=0.1)
    optimizer = sgdf.take_over(other, lr=0.1, state_format=state_format)
    assert optimizer.param_groups[0]["state_format"] == state_format
    for param in params:
        _, numbers = stored_numbers(optimizer, optimizer.param_groups[0], param)
        _, theirs = stored_numbers(exact, exact.param_groups[0], param)
        for buffer, own, their in zip(("exp_avg", "exp_var"), numbers, theirs, strict=True):
            assert_rounded(own, their, state_format, buffer)
    take_steps(optimizer, 2)
    assert all(p.isfinite().all() for p in params)


FILTERED = ("full", "bfloat16", "int8")


@pytest.mark.parametrize(("theirs", "ours"), [*itertools.product(FILTERED, FILTERED)])
def test_a_filters_state_is_loaded_from_every_format(theirs, ours):
    params = parameters(SHAPES)
    make = sgdf.filtered(torch.optim.Adam)
    first = make(params, lr=0.01, filter_state_format=theirs)
    take_steps(first, 4)
    saved = saved_and_read(first.state_dict())
    twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
    second = make(twins, lr=0.01, filter_state_format=ours)
    second.load_state_dict(saved)
    assert second.param_groups[0]["filter_state_format"] == ours
    for param, twin in zip(params, twins, strict=True):
        assert torch.equal(second.state[twin]["exp_avg"], first.state[param]["exp_avg"])  # Adam's
        _, exact = stored_numbers(first, first.param_groups[0], param)
        _, numbers = stored_numbers(second, second.param_groups[0], twin)
        for buffer, own, their in zip(("exp_avg", "exp_var"), numbers, exact, strict=True):
            if ours == theirs:
                assert torch.equal(own, their)
            else:
                assert_rounded(own, their, ours, buffer)
    if ours == theirs:
        for optimizer in (first, second):
            take_steps(optimizer, 3, first=4)
        assert_equal([p.detach() for p in twins], [p.detach() for p in params])
        assert_equal(states(second), states(first))


@pytest.mark.parametrize("state_format", FILTERED)
@pytest.mark.parametrize("options", [{}, {"foreach": False}])
def test_a_filter_in_a_format_is_that_of_sgdf(state_format, options):
    """In front of plain SGD it is SGDF, to the bit but for the update's rounding."""
    params, twins = parameters(SHAPES), parameters(SHAPES)
    filtered = sgdf.filtered(torch.optim.SGD)(
        params, lr=0.1, filter_state_format=state_format, **options
    )
    own = sgdf.SGDF(twins, lr=0.1, state_format=state_format, **({"foreach": True} | options))
    for optimizer in (filtered, own):
        take_steps(optimizer, 4, rests=True)
    for param, twin in zip(params, twins, strict=True):
        theirs = {key.removeprefix("filter_"): v for key, v in filtered.state[param].items()}
        theirs.pop("momentum_buffer", None)
        assert_equal(theirs, dict(own.state[twin]))
        torch.testing.assert_close(param, twin, rtol=1e-6, atol=1e-6)


@each_step_path
@pytest.mark.parametrize("state_format", WITH_NOISE)
def test_a_loaded_state_is_stepped_on_every_path(state_format, path):
    params, optimizer = trained(state_format, path="native")
    twins = [torch.nn.Parameter(p.detach().clone()) for p in params]
    other = build(CASES[0], twins, path, state_format=state_format)
    saved = optimizer.state_dict()
    other.load_state_dict({**saved, "param_groups": other.state_dict()["param_groups"]})
    take_steps(other, 2, first=4)
    take_steps(optimizer, 2, first=4)
    for param, twin in zip(params, twins, strict=True):
        apart = (param - twin).abs() > 1e-5
        assert apart.float().mean() < 1e-3
