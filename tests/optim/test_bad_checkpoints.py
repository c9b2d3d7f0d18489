"""Checkpoints with wrong types and values: refused as a whole, or good for the next step.

Every key of every part of a checkpoint is replaced by every value of a list, one at a time.
"""

import copy
import math

import pytest
import torch

import sgdf
from cases import CASES, assert_equal, snapshot

MISSING = object()
SHAPES = ((3, 2), (4,))

SHOWN_AS = {
    "lr": ("lr", "learning rate"),
    "betas": ("beta",),
    "filter_betas": ("beta",),
    "params": ("params", "parameter group", "parameter 0"),
    # These need an entry that was not saved, and the message names that.
    "amsgrad": ("amsgrad", "max_exp_avg_sq"),
    "centered": ("centered", "grad_avg"),
    "momentum": ("momentum", "momentum_buffer"),
    # torch's own complaint about a tensor that it cannot copy.
    "unknown": ("parameter 0", "meta", "quantized", "integer"),
    "param_groups": ("param_groups", "parameter groups"),
    # The inner optimizer's own complaint about an entry that belongs to no parameter.
    "state": ("state", "subscriptable"),
}
"""The names of options in messages, where they are not those of the arguments."""

NUMBERS = [-1, -0.5, 0, 2, math.nan, math.inf, 10**400, True, 1j, "1", torch.tensor(0.5)]
OTHERS = [None, "", "two", b"x", [], (), {}, [0.5], (0.1, 0.2), (0.1, 0.2, 0.3), (0.5, "x")]
OTHERS += [(None, 0.9), {"a": 1}, {1}, object(), torch.float32, torch.tensor(1j), torch.zeros(0)]
OTHERS += [torch.ones(2), torch.zeros(()).to_sparse(), torch.tensor(True), torch.zeros(1)]
OTHERS += [torch.zeros((), device="meta"), torch.tensor(math.nan), torch.tensor(-1.0)]


def tensors_like(shape):
    """Return tensors of a parameter's shape, most of which cannot be its buffer."""
    dtypes = (torch.int64, torch.bool, torch.complex64, torch.float64, torch.float16, torch.uint8)
    yield from (torch.ones(shape, dtype=dtype) for dtype in dtypes)
    yield torch.ones(shape).to_sparse()
    yield torch.ones(shape, device="meta")
    yield torch.full(shape, math.nan)
    yield torch.ones(shape, requires_grad=True)
    yield torch.quantize_per_tensor(torch.ones(shape), 0.1, 0, torch.qint8)
    yield torch.ones(()).expand(shape)
    yield torch.ones((*shape, 1))
    yield torch.ones(shape)[None]
    yield torch.ones(shape).tolist()
    yield torch.ones(shape).numpy()


def each_bad_entry(saved):
    """Yield a description, and a function that spoils a copy of ``saved``, for each case."""
    for key in [*saved["state"][0], "unknown"]:
        for value in (MISSING, 1e300, *NUMBERS, *OTHERS, *tensors_like(SHAPES[0])):
            yield (key, value), lambda bad, k=key, v=value: put(bad["state"][0], k, v)
    for value in (*NUMBERS, *OTHERS, torch.ones(SHAPES[0])):
        yield ("parameter 0", value), lambda bad, v=value: put(bad["state"], 0, v)


def each_bad_option(saved):
    for key in [*saved["param_groups"][0], "unknown"]:
        for value in (MISSING, *NUMBERS, *OTHERS):
            yield (key, value), lambda bad, k=key, v=value: put(bad["param_groups"][0], k, v)
    ids = [[0], [0, 1, 2], [0, 0], ["0", "1"], [None, 1], [[0], [1]], [{}, 1], [0.0, math.nan]]
    for value in ids:
        yield ("params", value), lambda bad, v=value: put(bad["param_groups"][0], "params", v)


def each_bad_structure(saved):
    for key in ("state", "param_groups"):
        for value in (MISSING, *NUMBERS, *OTHERS, [{}], [None], [[]], ["params"]):
            yield (key, value), lambda bad, k=key, v=value: put(bad, k, v)
    for value in (None, 7, {}, [7]):
        yield ("state", value), lambda bad, v=value: put(bad["state"], 99, v)


def put(mapping, key, value):
    if value is MISSING:
        mapping.pop(key, None)
    else:
        mapping[key] = copy.deepcopy(value)  # a step may change it


MAKERS = {case.name: case.make for case in CASES}
MAKERS |= {
    f"filtered({inner.__name__})": lambda params, inner=inner, **options: sgdf.filtered(inner)(
        params, lr=0.1, **({"momentum": 0.9} if inner is torch.optim.SGD else {}), **options
    )
    for inner in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad)
}
MAKERS["filtered(UnifiedMomentum)"] = lambda params, **options: sgdf.filtered(sgdf.UnifiedMomentum)(
    params, lr=0.1, **options
)


def trained(make, **options):
    params = [torch.nn.Parameter(torch.ones(shape)) for shape in SHAPES]
    optimizer = make(params, **options)
    step(optimizer)
    return optimizer


def step(optimizer):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad = torch.full_like(param, 0.5)
    optimizer.step()


def complaint(optimizer, saved, name, spoil):
    """Return what is wrong with how a spoilt checkpoint is treated, or None."""
    bad = copy.deepcopy(saved)
    spoil(bad)
    try:
        optimizer.load_state_dict(bad)
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        names = SHOWN_AS.get(name, (name.removeprefix("filter_"),))
        if not any(shown in str(error) for shown in names):
            return f"unclear: {type(error).__name__}: {error}"
        try:
            assert_equal(snapshot(optimizer), saved)
        except AssertionError:
            return f"changed by a load that raised {error}"
        try:
            step(optimizer)
        except Exception as error:
            return f"cannot step after a load that raised: {error}"
        return None
    except Exception as error:
        return f"raised {type(error).__name__}: {error}"
    try:
        step(optimizer)
    except Exception as error:
        return f"loaded, but the step raised {type(error).__name__}: {error}"
    return None


def is_for_accelerators(name, value):
    """Return whether this is valid, but step then asks for an accelerator, as torch's do."""
    return name == "capturable" and isinstance(value, bool) and value


@pytest.mark.filterwarnings("ignore:torch.quantize|TypedStorage|Casting complex")
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("cases", [each_bad_entry, each_bad_option, each_bad_structure])
@pytest.mark.parametrize(
    ("options", "stride"),
    [
        ({}, 13),
        pytest.param({}, 1, marks=pytest.mark.slow),
        pytest.param({"foreach": False}, 1, marks=pytest.mark.slow),
    ],
)
def test_is_refused_or_good_for_the_next_step(make, cases, options, stride):
    saved = snapshot(trained(make, **options))
    complaints = {}
    for (name, value), spoil in list(cases(saved))[::stride]:
        if not is_for_accelerators(name, value):
            optimizer = trained(make, **options)
            if fault := complaint(optimizer, saved, name, spoil):
                complaints[f"{name} = {value!r}"] = fault
    assert not complaints, "\n".join(f"{case}: {fault}" for case, fault in complaints.items())
