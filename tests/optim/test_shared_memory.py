"""Gradients in the memory of what the step writes to: every path reads them before it writes."""

import pytest
import torch

import sgdf
from cases import assert_equal, build, each_case, needs_native

SHAPES = ((3, 4), (4, 3), (5,), (3, 4))


def parameters(*, requires_grad=True):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(shape, generator=generator, requires_grad=requires_grad) for shape in SHAPES
    ]


def own(key):
    """Give each parameter its own buffer as gradient."""

    def share(params, state):
        for param in params:
            param.grad = state[param].get(key, state[param]["exp_avg"])

    return share


def own_view(params, state):
    for param in params:
        param.grad = state[param]["exp_avg"].view_as(param)


def itself(params, _):
    for param in params:
        param.grad = param.detach()


def buffer_of_another(params, state):
    params[0].grad = state[params[3]]["exp_avg"]
    params[3].grad = state[params[0]]["exp_avg"]


def another(params, _):
    params[0].grad = params[3].detach()
    params[3].grad = params[0].detach()


def one_for_two(params, _):
    params[0].grad = params[3].grad = torch.linspace(-1.0, 1.0, 12).view(3, 4)


SHARING = {
    **{key: own(key) for key in ("exp_avg", "exp_var", "exp_avg_sq")},
    **{
        share.__name__: share
        for share in (own_view, itself, buffer_of_another, another, one_for_two)
    },
}


def outcome(optimizer, params, share, *, copied, state_of=lambda optimizer: optimizer.state):
    """Take two usual steps, then one with gradients that share memory, or with copies of them."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator)
        optimizer.step()
    share(params, state_of(optimizer))
    if copied:
        for param in params:
            param.grad = param.grad.clone()
    optimizer.step()
    return [param.detach() for param in params], [dict(optimizer.state[param]) for param in params]


@each_case
@pytest.mark.parametrize(
    "path", ["single", "foreach", "differentiable", pytest.param("fused", marks=needs_native)]
)
@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING.keys())
def test_gradients_are_read_before_anything_is_written(case, path, share):
    outcomes = []
    for copied in (False, True):
        params = parameters(requires_grad=path != "differentiable")
        if path == "differentiable":
            optimizer = build(case, params, lr=0.1, differentiable=True)
        else:
            optimizer = build(case, params, path, lr=0.1)
        outcomes.append(outcome(optimizer, params, share, copied=copied))
    assert_equal(*outcomes)


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("share", SHARING.values(), ids=SHARING.keys())
def test_the_same_for_filtered_optimizers(foreach, share):
    def filter_state(optimizer):
        return {
            param: {key.removeprefix("filter_"): value for key, value in entry.items()}
            for param, entry in optimizer.state.items()
        }

    outcomes = []
    for copied in (False, True):
        params = parameters()
        optimizer = sgdf.filtered(torch.optim.SGD)(params, lr=0.1, foreach=foreach)
        outcomes.append(outcome(optimizer, params, share, copied=copied, state_of=filter_state))
    assert_equal(*outcomes)
