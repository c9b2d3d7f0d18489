"""The native step when tensors, state or optimizer have changed since the last step."""

import copy
import pickle
import weakref

import pytest
import torch

import sgdf
from cases import needs_native
from native_tensors import each_filter, filled, laid_out, random_parameter, takes_native_step

pytestmark = needs_native


def two_steps(case, change):
    """Step, change something, step again: natively and, for comparison, with foreach."""
    outcomes = []
    for path in ({"fused": True}, {"foreach": True}):
        torch.manual_seed(0)
        param = torch.nn.Parameter(torch.randn(4, 4))
        optimizer = case.make([param], **path)
        param.grad = torch.randn(4, 4)
        optimizer.step()
        param.grad = torch.randn(4, 4)
        change(param, optimizer.state[param])
        try:
            optimizer.step()
        except RuntimeError as error:
            outcomes.append(type(error))
        else:
            outcomes.append([param.detach().clone(), *optimizer.state[param].values()])
    return outcomes


def move_parameter(param, _):
    param.data = param.data.clone()


def move_mean(_, state):
    state["exp_avg"].data = state["exp_avg"].data.clone()


def move_variance(_, state):
    state["exp_var"].data = state["exp_var"].data.clone()


def move_square(_, state):
    if "exp_avg_sq" in state:
        state["exp_avg_sq"].data = state["exp_avg_sq"].data.clone()


def move_count(_, state):
    state["step"].data = state["step"].data.clone()


def replace_state(_, state):
    state["exp_avg"] = torch.ones(4, 4)


def share_state(_, state):
    state["exp_avg"].share_memory_()


def turn_parameter(param, _):
    param.data = param.data.t()


def turn_state(_, state):
    state["exp_var"] = state["exp_var"].t()


def leave_gaps_everywhere(param, state):
    grad, param.grad = param.grad, None
    param.data = laid_out(param.data, "with gaps")
    param.grad = laid_out(grad, "with gaps")
    for key in ("exp_avg", "exp_var"):
        state[key] = laid_out(state[key], "with gaps")


def share_one_buffer(_, state):
    state["exp_var"] = state["exp_avg"]


def turn_state_in_place(_, state):
    state["exp_var"].t_()


def shrink_state_in_place(_, state):
    state["exp_avg"].resize_(4)


def shrink_parameter_alone(param, _):
    param.data = param.data[:2]


def narrow_parameter_in_place(param, _):
    param.grad_dtype = torch.float32
    param.data = param.data.view(torch.bfloat16)[:, :4]


def empty_count(_, state):
    state["step"] = torch.empty(0)


def lend_memory_to_the_gradient(param, state):
    param.grad = None
    param.grad = state["exp_avg"]


def reset_count(_, state):
    state["step"].zero_()


def widen_parameter(param, _):
    grad, param.grad = param.grad, None
    param.data = param.data.double()
    param.grad = grad.double()


def narrow_parameter(param, _):
    grad, param.grad = param.grad, None
    param.data = param.data.bfloat16()
    param.grad = grad.bfloat16()


def grow_parameter(param, _):
    param.grad = None
    param.data = torch.randn(8, 4)
    param.grad = torch.randn(8, 4)


def reshape_parameter(param, _):
    param.grad = None
    param.data = param.data.view(2, 8)
    param.grad = torch.ones(2, 8)


def swap_parameter(param, state):
    """As ``module.to`` can do: the object stays, its content is that of another."""
    grad, param.grad = param.grad, None
    torch.utils.swap_tensors(param, torch.nn.Parameter(torch.ones(4, 4)))
    param.grad = grad


def forget_state(_, state):
    state.clear()


def forget_mean(_, state):
    del state["exp_avg"]


def add_to_state(_, state):
    state["note"] = torch.ones(2)


def turn_gradient(param, _):
    param.grad = param.grad.t()


def use_lazy_zeros_as_state(_, state):
    state["exp_avg"] = torch._efficientzerotensor(4, 4)


def use_lazy_zeros_as_gradient(param, _):
    param.grad = torch._efficientzerotensor(4, 4)


def negate_gradient_lazily(param, _):
    param.grad = torch._neg_view(param.grad)


def remove_gradient(param, _):
    param.grad = None


@pytest.mark.parametrize(
    "change",
    [
        swap_parameter,
        forget_state,
        forget_mean,
        add_to_state,
        turn_gradient,
        use_lazy_zeros_as_gradient,
        use_lazy_zeros_as_state,
        negate_gradient_lazily,
        remove_gradient,
        move_parameter,
        move_mean,
        move_variance,
        move_square,
        move_count,
        leave_gaps_everywhere,
        share_one_buffer,
        turn_state_in_place,
        shrink_state_in_place,
        shrink_parameter_alone,
        narrow_parameter_in_place,
        empty_count,
        lend_memory_to_the_gradient,
        replace_state,
        share_state,
        turn_parameter,
        turn_state,
        reset_count,
        widen_parameter,
        narrow_parameter,
        grow_parameter,
        reshape_parameter,
    ],
)
@each_filter
def test_changes_between_steps(case, change):
    native, lists = two_steps(case, change)
    if isinstance(lists, type):
        assert native is lists
    else:
        torch.testing.assert_close(native, lists, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_parameters_can_lack_a_gradient_in_some_steps():
    outcomes = []
    for path in ({"fused": True}, {"foreach": True}):
        params = filled((2,), (3,), (4,))
        optimizer = sgdf.SGDF(params, lr=0.5, **path)
        for absent in ((), (1,), (1,), (), (0, 1), (0, 1, 2), (2,)):
            for index, param in enumerate(params):
                param.grad = None if index in absent else torch.ones_like(param)
            optimizer.step()
        outcomes.append((params, list(optimizer.state.values())))
    torch.testing.assert_close(*outcomes, rtol=1e-6, atol=1e-6)
    assert [state["step"].item() for state in outcomes[0][1]] == [5.0, 3.0, 5.0]


def test_a_pickled_optimizer_continues():
    (param,) = filled((3,))
    optimizer = sgdf.SGDF([param], lr=0.25)
    optimizer.step()
    loaded = pickle.loads(pickle.dumps(optimizer))
    (copied,) = loaded.param_groups[0]["params"]
    copied.grad = param.grad.clone()
    for which in (optimizer, loaded):
        which.step()
        assert takes_native_step(which)
    assert torch.equal(copied, param)


def test_new_gradients_need_no_new_table():
    """The table is made once."""
    param = random_parameter()
    optimizer = sgdf.SGDF([param])
    tables = set()
    for _ in range(3):
        param.grad = torch.randn_like(param)
        optimizer.step()
        tables.update(optimizer._native.tables)
    assert len(tables) == 1


def test_gradients_are_released():
    param = random_parameter()
    optimizer = sgdf.SGDF([param])
    param.grad = torch.ones_like(param)
    optimizer.step()
    grad = weakref.ref(param.grad)
    optimizer.zero_grad()
    assert grad() is None


def test_copies_do_not_share_a_table():
    param = random_parameter()
    param.grad = torch.ones_like(param)
    optimizer = sgdf.SGDF([param], lr=0.1)
    optimizer.step()
    twin = copy.deepcopy(optimizer)
    assert not takes_native_step(twin)
    before = param.detach().clone()
    (other,) = twin.param_groups[0]["params"]
    other.grad = torch.ones_like(other)
    twin.step()
    assert torch.equal(param, before)
    assert not torch.equal(other, before)


def test_autograd_notices_the_change():
    """A backward pass through a parameter that has moved since is an error, not a wrong number."""
    weight = torch.nn.Parameter(torch.ones(3))
    data = torch.ones(3, requires_grad=True)
    loss = (weight * data).sum()
    weight.grad = torch.ones(3)
    optimizer = sgdf.SGDF([weight])
    optimizer.step()
    assert takes_native_step(optimizer)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
