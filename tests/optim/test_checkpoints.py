"""Saving, loading and copying."""

import copy
import io
import pickle

import pytest
import torch

from cases import Quadratic, assert_equal, build, each_case, each_path, snapshot, train


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
        assert list(entry) == ["step", *case.buffers_of(problem.params[index])]
        assert entry["step"].dtype == torch.float32
        assert entry["step"].shape == ()
        for key in case.buffers_of(problem.params[index]):
            assert entry[key].shape == problem.params[index].shape


@each_case
def test_loading_completes_checkpoints_with_missing_options(case):
    problem = Quadratic(torch.float32)
    groups = [{"params": problem.params[:2], "weight_decay": 1e-3}, {"params": problem.params[2:]}]
    optimizer = build(case, groups, weight_decay=1e-5, maximize=True)
    train(optimizer, problem, 2)
    foreign = snapshot(optimizer)
    foreign["param_groups"] = [
        {"params": ids, "lr": 0.3, **case.another, "state_format": "int8"}
        for ids in ([0, 1], [2, 3])
    ]
    for entry in foreign["state"].values():
        entry["step"] = 2  # as public code stores it
    optimizer.load_state_dict(foreign)
    for group, decay in zip(optimizer.param_groups, (1e-3, 1e-5), strict=True):
        assert case.another.items() | {("lr", 0.3)} <= group.items()
        assert (group["weight_decay"], group["maximize"]) == (decay, True)
        assert group["state_format"] == "full"  # the constructor's wins
    assert all(isinstance(s["step"], torch.Tensor) for s in optimizer.state.values())
    train(optimizer, problem, 1)
    assert all(s["step"] == 3 for s in optimizer.state.values())


@each_case
def test_the_users_load_hooks_run_first_and_last(case):
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
def test_copies_are_independent(case, duplicate):
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
