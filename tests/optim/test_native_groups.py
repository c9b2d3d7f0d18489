"""The native step with several parameter groups."""

import copy

import pytest
import torch

import sgdf
from cases import assert_equal, needs_native
from native_tensors import filled

pytestmark = needs_native


def test_each_group_has_its_own_table():
    first, second, third = filled((2,), (3, 2), (4,))
    gaps = torch.nn.Parameter(torch.ones(6)[::2])
    gaps.grad = torch.ones(3)
    groups = [{"params": [first]}, {"params": [gaps, second]}, {"params": [third], "lr": 0.25}]
    optimizer = sgdf.SGDF(groups, lr=0.5)
    for step in range(1, 3):
        optimizer.step()
        # The parameter with gaps sends its group to foreach.
        assert [table.params for table in optimizer._native.tables] == [[first], [third]]
        for param, lr in ((first, 0.5), (gaps, 0.5), (second, 0.5), (third, 0.25)):
            torch.testing.assert_close(param.detach(), torch.full_like(param, 1 - step * lr))


def test_parameters_can_change_groups_and_groups_can_be_removed():
    first, second = filled((2,), (3,))
    optimizer = sgdf.SGDF([{"params": [first]}, {"params": [second], "lr": 0.25}], lr=0.5)
    optimizer.step()
    groups = optimizer.param_groups
    groups[0]["params"], groups[1]["params"] = groups[1]["params"], groups[0]["params"]
    optimizer.step()
    for param in (first, second):
        torch.testing.assert_close(param.detach(), torch.full_like(param, 0.25))
    groups.pop()
    optimizer.step()
    assert (second == -0.25).all()
    assert (first == 0.25).all()


def test_an_error_in_one_group_leaves_the_others_unchanged():
    """In the second step too, when the tables exist."""
    first, second = filled((2,), (3,))
    optimizer = sgdf.SGDF([{"params": [first]}, {"params": [second]}], lr=0.5)
    optimizer.step()
    second.grad = second.grad.to_sparse()
    before = copy.deepcopy((first, optimizer.state[first]))
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    assert_equal((first, optimizer.state[first]), before)


def test_a_refused_step_makes_no_state():
    """Not even an empty state, for a parameter whose first gradient it is."""
    first, second = filled((2,), (3,))
    optimizer = sgdf.SGDF([first, second])
    second.grad = None
    optimizer.step()
    second.grad = torch.ones(3).to_sparse()
    with pytest.raises(RuntimeError, match="sparse"):
        optimizer.step()
    assert list(optimizer.state) == [first]


def test_groups_can_share_a_step_count():
    """Each then counts the steps of both, in turn."""
    outcomes = []
    for path in ({"fused": True}, {"foreach": True}):
        params = filled((2,), (3,))
        optimizer = sgdf.SGDF([{"params": [param]} for param in params], lr=0.5, **path)
        optimizer.step()
        first, second = optimizer.state.values()
        second["step"] = first["step"]
        for _ in range(3):
            for param in params:
                param.grad = torch.rand(param.shape, generator=torch.Generator().manual_seed(0))
            optimizer.step()
        outcomes.append((params, first, second))
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=1e-6)
    assert first["step"].item() == 7.0


def test_native_and_orthogonal_groups_can_be_mixed():
    """The table of the first group is there in each step, and that of the second never."""
    outcomes = []
    for path in ({}, {"foreach": True}):
        bias, weight = filled((3,), (4, 3))
        groups = [{"params": [bias], "direction": "adam"}, {"params": [weight]}]
        optimizer = sgdf.FilterMuon(groups, lr=0.1, **path)
        for step in range(3):
            bias.grad, weight.grad = torch.full((3,), step - 1.0), torch.eye(4, 3)
            optimizer.step()
        directions = [table.direction.name for table in optimizer._native.tables]
        assert directions == ([] if path else ["adam"])
        outcomes.append((bias, weight, list(optimizer.state.values())))
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=1e-6)
