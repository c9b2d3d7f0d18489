"""State formats: every path takes the same steps, of every optimizer, in every format."""

import copy
import math

import pytest
import torch

import sgdf
from cases import CASES, assert_equal, needs_native
from formats import (
    FORMATS,
    SHARING,
    WITH_CODES,
    assert_alike,
    build,
    draw_like,
    each_format,
    each_row,
    each_small,
    each_step_path,
    parameters,
    state_bytes,
    states,
    take_steps,
)
from native_tensors import takes_native_step
from sgdf.optim import chunks
from sgdf.optim.noise import Noise
from sgdf.optim.state import FORMATS as ROWS_OF_FORMATS
from temporaries import PeakTemporaries

DTYPES = [
    pytest.param(torch.float32, False, id="float32"),
    pytest.param(torch.bfloat16, False, id="bfloat16"),
    pytest.param(torch.bfloat16, True, id="bfloat16-rounded"),
    pytest.param(torch.float16, True, id="float16-rounded"),
]
OPTIONS = {
    torch.float32: {"weight_decay": 0.05},
    torch.bfloat16: {"maximize": True, "weight_decay": 0.05, "decoupled_weight_decay": True},
    torch.float16: {"weight_decay": 0.05, "decoupled_weight_decay": True},
}


def options_of(case, dtype):
    options = OPTIONS[dtype]
    return options if case.coupled_decay else {**options, "decoupled_weight_decay": True}


def run(case, path, dtype=torch.float32, steps=6, shapes=None, **options):
    params = parameters(dtype=dtype) if shapes is None else parameters(shapes, dtype)
    optimizer = build(case, params, path, **options)
    take_steps(optimizer, steps, rests=True)
    return params, optimizer


# The paths agree.


@each_row
@pytest.mark.parametrize(("dtype", "rounds"), DTYPES)
def test_all_paths_take_the_same_steps(case, state_format, dtype, rounds):
    options = {"state_format": state_format, "stochastic_rounding": rounds, "lr": 0.02}
    options |= options_of(case, dtype)
    params, optimizer = run(case, "loop", dtype, **options)
    for path in ("native", "foreach", "loop-capturable", "foreach-capturable"):
        others, other = run(case, path, dtype, **options)
        # Scalars of the capturable paths are computed in float32.
        tolerance = {"flips": 3e-3, "rtol": 1e-3} if "capturable" in path else {}
        assert_alike(states(other), states(optimizer), **tolerance)
        if case.orthogonal:  # Muon iterates in bfloat16
            rtol = 2 * torch.finfo(dtype).eps
            for p, q in zip(others, params, strict=True):
                torch.testing.assert_close(p, q, rtol=rtol, atol=1e-3)
        else:
            assert_alike(others, params, **tolerance)


@needs_native
@each_row
def test_every_format_has_a_native_step(case, state_format):
    shapes = ((64, 80), (4200,), (5,)) if not case.orthogonal else ((4200,), (5,))
    _, optimizer = run(case, "native", steps=3, shapes=shapes, state_format=state_format)
    large = optimizer.param_groups[0]["params"][0]
    formats = {table.format.name for table in optimizer._native.tables}
    assert formats == {state_format, "full"}
    assert state_bytes(optimizer, large) < 5 + large.numel() * 4 * len(case.buffers_of(large)) or (
        state_format == "full"
    )


@each_small
@pytest.mark.parametrize("layout", ["channels_last", "transposed"])
@each_step_path
def test_the_layout_of_a_parameter_does_not_count(state_format, layout, path):
    shape = (12, 40, 4, 3)
    runs = []
    for changed in (False, True):
        (param,) = parameters((shape,))
        if changed and layout == "channels_last":
            param = torch.nn.Parameter(param.detach().to(memory_format=torch.channels_last))
        elif changed:
            param = torch.nn.Parameter(param.detach().transpose(0, 3).contiguous().transpose(0, 3))
        assert param.is_contiguous() != changed
        optimizer = build(CASES[0], [param], path, state_format=state_format, lr=0.1)
        take_steps(optimizer, 4)
        runs.append(([param], optimizer))
        is_numbered = state_format != "block"  # elements or blocks are counted in order of rows
        if path == "native" and changed and is_numbered:
            assert not takes_native_step(optimizer)
    (params, optimizer), (others, other) = runs
    assert_alike(states(other), states(optimizer))
    assert_alike(others, params)
    for key, value in other.state[others[0]].items():
        if state_format in WITH_CODES and key != "step":
            assert value.is_contiguous()


@each_step_path
@pytest.mark.parametrize("as_tensor", [False, True])
def test_groups_have_formats_of_their_own(path, as_tensor):
    """Each parameter moves as if its group were alone, but for the noise, which has its number."""
    shapes = ((64, 80), (5,), (4200,))
    lr = torch.tensor(0.1) if as_tensor else 0.1
    params = [parameters(shapes) for _ in FORMATS]
    groups = [
        {"params": some, "state_format": name, "lr": lr * (1 + index)}
        for index, (some, name) in enumerate(zip(params, FORMATS, strict=True))
    ]
    together = build(CASES[0], groups, path)
    take_steps(together, 5, rests=True)
    for index, name in enumerate(FORMATS):
        # The parameters before it give it its numbers, and the gradients that belong to them.
        before = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3 * index)]
        own = parameters(shapes)
        alone = build(
            CASES[0],
            [{"params": before, "lr": 0.0}] * bool(before)
            + [{"params": own, "lr": lr * (1 + index), "state_format": name}],
            path,
        )
        take_steps(alone, 5, rests=True)
        assert_equal([p.detach() for p in params[index]], [p.detach() for p in own])
        assert_equal([together.state[p] for p in params[index]], [alone.state[p] for p in own])


@each_row
def test_small_short_and_wide_tensors_keep_the_full_state(case, state_format):
    def state_of(shape, dtype=torch.float32):
        param = torch.nn.Parameter(torch.ones(shape, dtype=dtype))
        optimizer = case.make([param], state_format=state_format)
        param.grad = torch.ones_like(param)
        optimizer.step()
        return param, optimizer.state[param]

    full = [((4095,), torch.float32), ((5000,), torch.float64)]
    full += [((5000,), torch.complex64)] * case.complex
    full += [((200, 63), torch.float32)] * (state_format in WITH_CODES)
    for shape, dtype in full:
        param, state = state_of(shape, dtype)
        assert state.keys() == {"step", *case.buffers_of(param)}
        wide = torch.promote_types(dtype, torch.float32)
        assert all(state[key].dtype == wide for key in case.buffers_of(param))
        assert all(state[key].shape == shape for key in case.buffers_of(param))
    for shape, dtype in (((4096,), torch.float32), ((64, 64), torch.float16)):
        param, state = state_of(shape, dtype)
        size = sum(value.nbytes for value in state.values())
        is_smaller = size < 4 + 4 * param.numel() * len(case.buffers_of(param))
        assert is_smaller == (state_format != "full")


# How large it is.

BYTES = {"full": 8.0, "bfloat16": 4.0, "int8": 2.1, "block": 4.1, "bfloat16-block": 2.1}
BYTES["int8-block"] = 1.1


@each_format
def test_bytes_per_parameter(state_format):
    param = torch.nn.Parameter(torch.zeros(1000, 1000))
    param.grad = torch.ones_like(param)
    optimizer = sgdf.SGDF([param], state_format=state_format)
    optimizer.step()
    assert state_bytes(optimizer, param) / param.numel() <= BYTES[state_format] + 0.01 * (
        state_format in ("full", "bfloat16")
    )


# Formats that have no meaning.


@pytest.mark.parametrize("state_format", SHARING)
def test_a_shared_variance_needs_a_variance(state_format):
    param = torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match=f"{state_format}.*UnifiedMomentum has no variance"):
        sgdf.UnifiedMomentum([param], lr=0.1, state_format=state_format)
    refusal = f"filter_state_format: '{state_format}'; one variance .* is another filter"
    with pytest.raises(ValueError, match=refusal):
        sgdf.filtered(torch.optim.Adam)([param], filter_state_format=state_format)
    optimizer = sgdf.filtered(torch.optim.Adam)([param])
    with pytest.raises(ValueError, match=refusal):
        optimizer.add_param_group(
            {"params": [torch.nn.Parameter(torch.zeros(1))], "filter_state_format": state_format}
        )
    assert len(optimizer.param_groups) == 1


PAIRS = [(a, b) for a in FORMATS for b in FORMATS if a != b]


@pytest.mark.parametrize(("first", "second"), PAIRS)
@each_step_path
def test_a_format_changed_during_training_is_an_error(first, second, path):
    params = parameters(((64, 80),))
    optimizer = build(CASES[0], params, path, state_format=first)
    take_steps(optimizer, 2)
    before = copy.deepcopy((params, optimizer.state_dict()["state"]))
    optimizer.param_groups[0]["state_format"] = second
    with pytest.raises(RuntimeError, match="state_format changed"):
        take_steps(optimizer, 1)
    assert_equal((params, optimizer.state_dict()["state"]), before)


def test_a_filters_format_changed_during_training_is_an_error():
    params = parameters(((64, 80),))
    for first, second in (("full", "bfloat16"), ("bfloat16", "full"), ("full", "int8")):
        optimizer = sgdf.filtered(torch.optim.SGD)(params, lr=0.1, filter_state_format=first)
        take_steps(optimizer, 2)
        optimizer.param_groups[0]["filter_state_format"] = second
        with pytest.raises(RuntimeError, match="state_format changed"):
            take_steps(optimizer, 1)


# Blocks, rows and shards.


@each_small
def test_a_shard_of_rows_is_stored_as_in_the_whole(state_format):
    format = ROWS_OF_FORMATS[state_format]
    buffers = ("exp_avg", "exp_var", "exp_avg_sq")
    buffers = buffers[::2] if format.shares_variance else buffers
    whole, shard = torch.zeros(40, 300), torch.zeros(7, 300)
    numbers = [draw_like(whole, 1, index) for index, _ in enumerate(buffers)]
    numbers = [
        x if name == "exp_avg" else x.abs() for name, x in zip(buffers, numbers, strict=True)
    ]
    stored, part = (list(format.new(buffers, x).values()) for x in (whole, shard))
    format.write(buffers, stored, numbers, Noise(3, 5, (40, 300), "cpu"))
    rows = [x[11:18] for x in numbers]
    format.write(buffers, part, rows, Noise(3, 5, (7, 300), "cpu", start=11 * 300))
    for a, b in zip(stored, part, strict=True):
        assert torch.equal(a[11:18], b)
    assert not torch.equal(stored[0][:7], stored[0][7:14])


# Temporaries.

LARGE = {
    "vector": (100_000,),
    "matrix": (500, 200),
    "long rows": (2, 50_000),
    "4-D": (40, 25, 10, 10),
}


@each_format
@pytest.mark.parametrize("shape", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_tensor_is_stepped_in_parts(state_format, shape, dtype, monkeypatch):
    runs = []
    budget = 400_000
    for cut in (False, True):
        monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", budget if cut else 10**9)
        (param,) = parameters((shape,), dtype)
        optimizer = build(
            *(CASES[0], [param], "foreach"),
            state_format=state_format,
            stochastic_rounding=True,
            weight_decay=0.01,
        )
        take_steps(optimizer, 2)
        grad = draw_like(param, 0, 5)
        param.grad = grad
        with PeakTemporaries() as temporaries:
            optimizer.step()
        runs.append(([param], optimizer, temporaries.peak))
    (params, optimizer, uncut), (others, other, peak) = runs
    # Beside the chunk, integers of one list that rounding makes.
    assert peak <= 1.5 * budget < uncut
    if state_format in SHARING:  # the sum of squares is added up in another order
        assert_alike(states(other), states(optimizer), rtol=1e-5)
        assert_alike(others, params, rtol=1e-5)
    else:
        assert_equal([p.detach() for p in others], [p.detach() for p in params])
        assert_equal(states(other), states(optimizer))


@each_format
def test_orthogonal_directions_are_not_cut(state_format, monkeypatch):
    runs = []
    for budget in (10**9, 100_000):
        monkeypatch.setattr(chunks, "CPU_CHUNK_BYTES", budget)
        params = parameters(((90, 80), (6000,)))
        optimizer = sgdf.FilterMuon(params, foreach=True, state_format=state_format)
        take_steps(optimizer, 3)
        runs.append((params, optimizer))
    (params, optimizer), (others, other) = runs
    assert_equal([others[0].detach()], [params[0].detach()])
    assert_alike(states(other), states(optimizer), rtol=1e-5)
    assert_alike(others, params, rtol=1e-5)


# Threads.


@needs_native
@each_row
def test_native_results_do_not_depend_on_the_threads(case, state_format):
    before = torch.get_num_threads()
    results = []
    shapes = ((300, 400), (70_001,), (5,)) if not case.orthogonal else ((120_001,), (5,))
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            params = parameters(shapes, torch.bfloat16)
            optimizer = build(
                *(case, params, "native"), state_format=state_format, stochastic_rounding=True
            )
            take_steps(optimizer, 2)
            assert takes_native_step(optimizer)
            results.append(([p.detach() for p in params], optimizer.state_dict()))
    finally:
        torch.set_num_threads(before)
    assert_equal(results[1], results[0])


# What is not finite, and extremes.


@each_format
@each_step_path
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_one_bad_gradient_spoils_one_element(state_format, path, value):
    params = parameters(((40, 300),))
    optimizer = build(CASES[0], params, path, state_format=state_format, lr=0.1)
    take_steps(optimizer, 2)
    (param,) = params
    twin_params = parameters(((40, 300),))
    twin = build(CASES[0], twin_params, path, state_format=state_format, lr=0.1)
    take_steps(twin, 2)
    for some, opt, bad in ((param, optimizer, value), (twin_params[0], twin, 0.0)):
        some.grad = draw_like(some, 0, 2, 0)
        some.grad[3, 7] = bad
        opt.step()
        for step in (3, 4):
            some.grad = draw_like(some, 0, step, 0)
            opt.step()
    fine = torch.ones(40, 300, dtype=torch.bool)
    fine[3, 7] = False
    if value != 1e30:
        assert not param[3, 7].isfinite()
    (own,) = optimizer._recalled_state(optimizer.param_groups[0], param)[1:]
    assert param[fine].isfinite().all()
    assert all(buffer[fine].isfinite().all() for buffer in own)
    if state_format in SHARING:
        assert optimizer.state[param]["exp_var"].isfinite()
    elif state_format in ("full", "bfloat16") or value != 1e30:
        # The others are as if nothing had happened. (A huge number gives its block its scale.)
        torch.testing.assert_close(param[fine], twin_params[0][fine], rtol=0, atol=0.05)


@pytest.mark.parametrize("path", ["native", "foreach", "loop"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("state_format", SHARING)
def test_a_bad_gradient_leaves_the_shared_variance_alone(state_format, path, value):
    params = parameters(((40, 300),))
    optimizer = build(CASES[0], params, path, state_format=state_format)
    take_steps(optimizer, 3)
    before = optimizer.state[params[0]]["exp_var"].item()
    assert before > 0
    params[0].grad = draw_like(params[0], 0, 9)
    params[0].grad[3, 7] = value
    optimizer.step()
    assert optimizer.state[params[0]]["exp_var"].item() == before


EDGES = [
    {"eps": 0.0},
    {"eps": math.inf},
    {"gamma": 0.0},
    {"gamma": 0.3},
    {"gamma": 1.0, "eps": 0.0},
    {"betas": (0.0, 0.0)},
    {"betas": (0.0, 0.0), "eps": 0.0},
    {"gamma": 0.0, "betas": (0.0, 0.0), "eps": 0.0},
    {"lr": 0.0},
    {"correction": "none", "gamma_decay": 0.5},
]
FILTERS = [case for case in CASES if "gamma" in case.arguments and not case.orthogonal]


@each_format
@pytest.mark.parametrize("case", FILTERS, ids=lambda case: case.name)
@pytest.mark.parametrize("options", EDGES, ids=str)
def test_paths_agree_at_the_edges_of_the_options(case, state_format, options):
    runs = []
    shapes = ((30, 150),)
    for path in ("native", "foreach", "loop"):
        params = parameters(shapes)
        options = {"lr": 0.02, **options}
        optimizer = build(case, params, path, state_format=state_format, **options)
        for step in range(3):
            params[0].grad = draw_like(params[0], 0, step, 0)
            params[0].grad[:5] = 0.0
            params[0].grad[5, :10] = 1e15 * (-1) ** step
            params[0].grad[6, :10] = 1e-30
            optimizer.step()
        runs.append((params, optimizer))
        assert not params[0].isnan().any()
        if options["lr"] == 0.0:
            assert_equal([params[0].detach()], [parameters(shapes)[0].detach()])
        if options.get("gamma") == 0.0 and case.plain is not None:
            start = parameters(shapes)[0].detach()
            moved = sum(options["lr"] * draw_like(start, 0, step, 0) for step in range(3))
            torch.testing.assert_close(
                params[0].detach()[7:], (start - moved)[7:], rtol=1e-5, atol=1e-5
            )
    for params, optimizer in runs[1:]:
        # Where the estimate is 0 but for rounding, its sign is a matter of taste.
        flips = {"flips": 2e-2 if case.jumps else 1e-3}
        assert_alike(params, runs[0][0], **flips)
        assert_alike(states(optimizer), states(runs[0][1]))


@each_row
@each_step_path
@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_zero_gradients_leave_large_parameters_alone(case, state_format, path, eps):
    params = parameters(((64, 80),))
    before = params[0].detach().clone()
    options = case.known(eps=eps)
    optimizer = build(case, params, path, state_format=state_format, **options)
    for _ in range(3):
        params[0].grad = torch.zeros_like(params[0])
        optimizer.step()
    assert torch.equal(params[0], before)
    for key, value in optimizer.state[params[0]].items():
        assert key == "step" or not value.float().any()


# The monitor.


@each_format
def test_the_monitor_sees_the_gains_of_full_state(state_format):
    totals = {}
    for name in ("full", state_format):
        params = parameters(((64, 80), (4200,), (5,)))
        optimizer = sgdf.SGDF(params, lr=0.01, state_format=name)
        monitor = sgdf.monitor.attach(optimizer, every=1)
        # Noise of one size: there a shared variance is that of the elements.
        for step in range(40):
            for index, param in enumerate(params):
                generator = torch.Generator().manual_seed(100 * step + index)
                param.grad = torch.randn(param.shape, generator=generator)
            optimizer.step()
        totals[name] = monitor.latest["total"]
        assert len(monitor.history["gain_mean"]) > 10
    tolerance = 0.15 if state_format in SHARING else 0.02
    for key in ("gain_mean", "powered_gain_mean", "cosine", "update_ratio"):
        assert totals[state_format][key] == pytest.approx(totals["full"][key], rel=tolerance), key


@needs_native
def test_none_stands_for_false_on_every_path():
    for path in ({}, {"foreach": True}, {"foreach": False}):
        (param,) = parameters(((5,),), torch.bfloat16)
        optimizer = sgdf.SGDF([param], lr=0.1, stochastic_rounding=None, **path)
        param.grad = torch.ones_like(param)
        optimizer.step()
        assert optimizer.state[param]["step"] == 1


def test_a_wrong_format_in_one_group_leaves_all_groups_unchanged():
    params = parameters(((90, 80), (90, 80)))
    optimizer = sgdf.SGDF([{"params": [param]} for param in params], lr=0.1)
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    optimizer.param_groups[1]["state_format"] = "int8"
    before = [param.detach().clone() for param in params]
    with pytest.raises(RuntimeError, match="was its group's"):
        optimizer.step()
    for param, start in zip(params, before, strict=True):
        assert torch.equal(param, start)
        assert optimizer.state[param]["step"] == 1


class Sharded(torch.nn.Parameter):
    """Looks like a parameter that is spread over processes."""

    def to_local(self):
        """Return the part of this process."""
        return self


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"state_format": "int8"}, True),
        ({"state_format": "bfloat16-block"}, True),
        ({"stochastic_rounding": True}, True),
        ({"state_format": "block"}, False),
        ({}, False),
    ],
)
def test_sharded_parameters_that_need_noise_are_refused(options, is_refused):
    param = Sharded(torch.ones(90, 80, dtype=torch.bfloat16))
    if not is_refused:
        sgdf.SGDF([param], lr=0.1, **options)
        return
    with pytest.raises(RuntimeError, match="does not support Sharded parameters yet"):
        sgdf.SGDF([param], lr=0.1, **options)


def test_filtered_refuses_sharded_parameters_before_anything_has_changed():
    param = Sharded(torch.ones(90, 80))
    optimizer = sgdf.filtered(torch.optim.SGD)([param], lr=0.1, filter_state_format="int8")
    param.grad = torch.ones(90, 80)
    with pytest.raises(RuntimeError, match="does not support Sharded parameters yet"):
        optimizer.step()
    assert not optimizer.state.get(param)
