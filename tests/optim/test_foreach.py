"""What the step on lists costs: temporaries, and kernels on an accelerator."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import sgdf
from operations import Operations
from temporaries import PeakTemporaries

FILTERS = [sgdf.SGDF, sgdf.SignSGDF, sgdf.FilterAdam]


def with_gradients(count, shape, **options):
    params = [torch.nn.Parameter(torch.ones(shape, **options)) for _ in range(count)]
    for param in params:
        param.grad = torch.ones_like(param)
    return params


@pytest.mark.parametrize("optimizer_class", FILTERS)
@pytest.mark.parametrize(
    ("dtype", "options", "expected"),
    [
        (torch.float32, {}, 2),
        (torch.float32, {"weight_decay": 0.1, "maximize": True}, 3),  # a gradient of its own
        (torch.bfloat16, {}, 6),  # three lists in float32: the gradient too
    ],
)
def test_two_lists_of_temporaries(optimizer_class, dtype, options, expected):
    params = with_gradients(4, (1000, 3), dtype=dtype)
    optimizer = optimizer_class(params, lr=0.1, foreach=True, **options)
    optimizer.step()
    with PeakTemporaries() as temporaries:
        optimizer.step()
    assert temporaries.peak == expected * sum(param.nbytes for param in params)


def operations(optimizer_class, count, **options):
    """Return the operations of a step on so many tensors of an accelerator that is not there."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        params = with_gradients(count, (10, 3), device="cuda")
        optimizer = optimizer_class(params, foreach=True, capturable=True, **options)
        optimizer.step()
        with Operations() as seen:
            optimizer.step()
    return seen.counts


@pytest.mark.parametrize("optimizer_class", FILTERS)
@pytest.mark.parametrize("options", [{}, {"gamma": 0.3, "gamma_decay": 0.5}, {"betas": (0.0, 0.9)}])
def test_capturable_steps_take_as_many_operations_for_every_list(optimizer_class, options):
    few, many = (operations(optimizer_class, count, lr=0.1, **options) for count in (2, 20))
    assert few == many
    assert few["stack.default"] >= 1  # of the steps: it is the capturable path


def test_distinct_numbers_of_steps_are_computed_once(monkeypatch):
    from sgdf.optim import foreach

    computed = []

    def counted(step, **options):
        computed.append(step)
        return scalars(step, **options)

    scalars = foreach.filter_scalars
    monkeypatch.setattr(foreach, "filter_scalars", counted)
    params = with_gradients(5, 3)
    optimizer = sgdf.SGDF(params, lr=0.1, foreach=True)
    params[0].grad = None
    optimizer.step()
    params[0].grad = torch.ones(3)
    optimizer.step()
    assert sorted(computed) == [1, 1, 2]
