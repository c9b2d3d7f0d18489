"""The step that compiles itself: when it is taken, what it computes, and how often it compiles."""

import copy
import io
import logging
import pickle
import shutil
import warnings

import pytest
import torch
import torch._inductor.config
from torch._subclasses.fake_tensor import FakeTensorMode

import sgdf
from cases import CASES, assert_equal, describe, each_case, snapshot
from native_tensors import takes_native_step
from operations import Operations
from sgdf.optim import compiled, foreach
from sgdf.optim.direction_table import DIRECTIONS
from sgdf.optim.noise import SEED, noise_key, noise_keys
from sgdf.optim.part import Part
from sgdf.optim.state import FORMATS

SHAPES = (70, 80), (5,), (), (3, 4, 5), (64, 70)


@pytest.fixture
def graphs(monkeypatch):
    """Force the compiled step, without inductor, which takes seconds; list what is compiled."""
    found = []
    compile_graph = compiled._Compiled._compile

    def counted(self, graph, inputs):
        found.append(graph)
        return compile_graph(self, graph, inputs)

    monkeypatch.setattr(compiled._Compiled, "_compile", counted)
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    monkeypatch.setenv("SGDF_STEP", "compiled")
    return found


def parameters(shapes=SHAPES, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in shapes]


def set_gradients(params, index, missing=()):
    generator = torch.Generator().manual_seed(index)
    for position, param in enumerate(params):
        grad = torch.randn(param.shape, generator=generator, dtype=param.dtype)
        param.grad = None if position in missing else grad


def schedule(index, group):
    """Change all that may change between steps without another compilation."""
    group["lr"] = 0.05 / (1 + index)
    for name, value in (("betas", (0.9 - 0.02 * index, 0.99 + 0.001 * index)), ("beta", 0.9)):
        if name in group:
            group[name] = value
    if "eps" in group:
        group["eps"] = 1e-8 * (1 + index)
    if group["weight_decay"]:
        group["weight_decay"] = 0.1 + 0.01 * index
    if group.get("gamma", 0.5) != 0.5:
        group["gamma"] = 0.3 + 0.01 * index


def train(optimizer, steps=5, missing=None):
    params = [param for group in optimizer.param_groups for param in group["params"]]
    for index in range(steps):
        set_gradients(params, index, (missing or {}).get(index, ()))
        for group in optimizer.param_groups:
            schedule(index, group)
        optimizer.step()


def assert_alike(optimizer, other, tolerance=1e-6):
    """Compare parameters and state, in units of the largest element of each."""
    for group, group2 in zip(optimizer.param_groups, other.param_groups, strict=True):
        for p, q in zip(group["params"], group2["params"], strict=True):
            pairs = [(p, q)]
            pairs += [(optimizer.state[p][key], other.state[q][key]) for key in other.state[q]]
            for a, b in pairs:
                largest = max(1.0, b.abs().max().item())
                torch.testing.assert_close(a, b, rtol=0, atol=tolerance * largest)


def twins(case, dtype=torch.float32, steps=5, missing=None, **options):
    """Train with the compiled step and with foreach."""
    own = case.make(parameters(dtype=dtype), **options)
    other = case.make(parameters(dtype=dtype), foreach=True, **options)
    for optimizer in (own, other):
        train(optimizer, steps, missing)
    return own, other


OPTIONS = [
    {},
    {"weight_decay": 0.1},
    {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True},
    {"gamma": 0.3, "gamma_decay": 0.5, "correction": "none", "dtype": torch.float64},
    {"dtype": torch.bfloat16},
    {"dtype": torch.bfloat16, "stochastic_rounding": True},
    {"dtype": torch.float16, "stochastic_rounding": True},
    {"dtype": torch.complex64},
    {"lr": torch.tensor(0.05)},
]


@pytest.mark.parametrize(
    ("case", "options"), [(case, options) for case in CASES for options in OPTIONS], ids=describe
)
def test_the_same_numbers_and_one_compilation(case, options, graphs, monkeypatch):
    options = dict(options)
    if not set(options) - {"dtype"} <= case.arguments:
        pytest.skip(f"{case.name} has not all options")
    if not case.complex and options.get("dtype", torch.float32).is_complex:
        pytest.skip(f"{case.name} takes no complex parameters")
    if case.orthogonal and not options.get("decoupled_weight_decay", True):
        pytest.skip(f"{case.name}'s decay is decoupled")
    own, other = twins(case, **options)
    assert_alike(own, other)
    assert len(graphs) == 1


@each_case
@pytest.mark.parametrize("state_format", ["bfloat16", "block", "bfloat16-block"])
def test_state_formats(case, state_format, graphs, monkeypatch):
    if "block" in state_format and not case.optimizer._has_variance():
        pytest.skip(f"{case.name} has no variance")
    own, other = twins(case, state_format=state_format)
    for p, q in zip(own.param_groups[0]["params"], other.param_groups[0]["params"], strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=2e-5)
        for key, value in other.state[q].items():
            wrong = own.state[p][key] != value
            # Rounded with the same noise: on other sides of a border once in some thousands.
            if value.dtype == torch.bfloat16:
                assert wrong.float().mean() < 0.002
    # Small tensors have a full state, and a list of their own.
    assert len(graphs) == (1 if case.orthogonal else 2)


@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs g++")
@pytest.mark.parametrize(
    "options",
    [
        {"betas": (0.9, 0.999)},
        {"dtype": torch.bfloat16, "state_format": "bfloat16", "stochastic_rounding": True},
    ],
    ids=describe,
)
def test_inductors_code(options, graphs, tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "BACKEND", "inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    (case,) = (case for case in CASES if case.name == "SGDF")
    missing = {3: (0, 1)}
    with torch._inductor.config.patch(compile_threads=1):
        own, other = twins(case, missing=missing, **options)
    for p, q in zip(own.param_groups[0]["params"], other.param_groups[0]["params"], strict=True):
        differs = (p - q).abs() > 1e-6
        assert differs.float().mean() < (0.002 if "dtype" in options else 1e-9)
    assert own.state[own.param_groups[0]["params"][0]]["step"] == 4


# How often it compiles.


def test_parameters_without_gradient_stay_and_cost_one_compilation(graphs):
    params = parameters()
    optimizer = sgdf.FilterAdam(params, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True)
    other = sgdf.FilterAdam(
        parameters(), lr=0.1, weight_decay=0.1, decoupled_weight_decay=True, foreach=True
    )
    others = other.param_groups[0]["params"]
    for index, missing in enumerate([(), (1,), (0, 2), (1, 3, 4), (), (0,), (0, 1, 2, 3, 4), (2,)]):
        before = [snapshot_of(optimizer, param) for param in params]
        for optimizer_, params_ in ((optimizer, params), (other, others)):
            set_gradients(params_, index, missing)
            optimizer_.step()
        for position in missing:
            assert_equal(snapshot_of(optimizer, params[position]), before[position])
    assert_alike(optimizer, other)
    assert len(graphs) == 2  # one for steps in which none is missing


def snapshot_of(optimizer, param):
    return copy.deepcopy([param.detach(), optimizer.state.get(param)])


def test_a_parameter_that_gets_its_first_gradient_late(graphs):
    params = parameters([(3,), (4,), (5,)])
    optimizer = sgdf.SGDF(params, lr=0.1)
    other = sgdf.SGDF(parameters([(3,), (4,), (5,)]), lr=0.1, foreach=True)
    for optimizer_ in (optimizer, other):
        train(optimizer_, 4, {0: (2,), 1: (1,), 2: (0, 1)})
    assert_alike(optimizer, other)
    assert [optimizer.state[param]["step"].item() for param in params] == [3.0, 2.0, 3.0]


def test_frozen_parameters_are_left_out_in_the_end(graphs, monkeypatch):
    monkeypatch.setattr(compiled, "PATIENCE", 2)
    params = parameters([(3,), (4,)])
    optimizer = sgdf.SGDF(params, lr=0.1)
    train(optimizer, 6, dict.fromkeys(range(1, 6), (0,)))
    first, second, third = ([*graph.graph.find_nodes(op="placeholder")] for graph in graphs)
    assert len(first) == len(second) == 2 * len(third) - 1  # the vector is for all
    assert optimizer.state[params[1]]["step"] == 6


def test_each_group_and_dtype_has_a_function(graphs):
    groups = [
        {"params": parameters([(2,), (3,)])},
        {"params": [*parameters([(4,)]), *parameters([(4,)], torch.float64)], "maximize": True},
    ]
    optimizer = sgdf.SGDF(groups, lr=0.1)
    train(optimizer, 4)
    assert len(graphs) == 3


def test_more_lists_than_torch_compiles_for_one_function(graphs):
    limit = torch._dynamo.config.recompile_limit
    optimizer = sgdf.SGDF([{"params": parameters([(2 + i,)])} for i in range(limit + 2)], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(optimizer, 2)
    assert len(graphs) == limit + 2


def test_the_message_comes_once(graphs, caplog, monkeypatch):
    monkeypatch.setattr(compiled, "_has_told", False)
    with caplog.at_level(logging.WARNING, "sgdf"):
        for _ in range(2):
            train(sgdf.SGDF(parameters(), lr=0.1), 2)
    assert [record.getMessage() for record in caplog.records] == [
        "compiling the step of 5 tensors; this takes up to a minute, once for each list of "
        "parameters"
    ]


# When it is taken.


@pytest.mark.parametrize(
    "options",
    [
        {"foreach": True},
        {"foreach": False},
        {"fused": False},
        {"differentiable": True},
        {"state_format": "int8"},
    ],
    ids=describe,
)
def test_options_that_ask_for_another_path(options, graphs):
    params = [param.requires_grad_(False) for param in parameters([(64, 128)])]
    train(sgdf.SGDF(params, lr=0.1, **options), 1)
    assert not graphs


@pytest.mark.parametrize("options", [{}, {"fused": True}], ids=describe)
def test_the_environment_is_read_at_each_step(options, graphs, monkeypatch):
    params = parameters()
    optimizer = sgdf.SGDF(params, lr=0.1, **options)
    other = sgdf.SGDF(parameters(), lr=0.1, foreach=True)
    for index in range(6):
        monkeypatch.setenv("SGDF_STEP", "compiled" if index % 3 == 1 else "")
        for optimizer_ in (optimizer, other):
            set_gradients(optimizer_.param_groups[0]["params"], index)
            optimizer_.step()
        assert len(graphs) == (index > 0)
    assert_alike(optimizer, other)


def test_another_value_of_the_environment_is_refused(monkeypatch):
    optimizer = sgdf.SGDF(parameters(), lr=0.1)
    train(optimizer, 1)
    before = snapshot(optimizer)
    monkeypatch.setenv("SGDF_STEP", "complied")
    with pytest.raises(ValueError, match=r"Invalid SGDF_STEP: 'complied', expected 'compiled'"):
        optimizer.step()
    assert_equal(snapshot(optimizer), before)


def test_a_step_that_the_user_compiles_is_one_graph(graphs):
    optimizer = sgdf.SGDF(parameters(SHAPES[:2]), lr=0.1)
    counter = torch._dynamo.testing.CompileCounter()
    step = torch.compile(optimizer.step, backend=counter, fullgraph=True)
    set_gradients(optimizer.param_groups[0]["params"], 0)
    step()
    assert counter.frame_count == 1
    assert not graphs


def test_dispatch_modes_see_torchs_kernels(graphs):
    optimizer = sgdf.SGDF(parameters([(3,)]), lr=0.1)
    set_gradients(optimizer.param_groups[0]["params"], 0)
    with Operations() as seen:
        optimizer.step()
    assert not graphs
    assert seen.counts["_foreach_sub_.List"] == 1


@each_case
def test_fused_is_for_accelerators_too(case):
    with FakeTensorMode(allow_non_fake_inputs=True), warnings.catch_warnings():
        warnings.simplefilter("error")  # no native step is missed
        params = [torch.nn.Parameter(torch.ones(2, 3, device="cuda"))]
        optimizer = case.make(params, fused=True)
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(2, device="xpu"))]})
        optimizer.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize(("device", "wanted"), [("cuda", True), ("xpu", True), ("meta", False)])
def test_which_devices_it_is_for(device, wanted, monkeypatch):
    with FakeTensorMode(allow_non_fake_inputs=True):
        param = torch.empty(2, device=device)
    assert compiled.is_accelerated(param) == wanted
    assert not compiled.is_accelerated(torch.empty(2))
    options = {"fused": True, "foreach": None, "differentiable": False, "capturable": False}
    part = Part(options, DIRECTIONS["sgdf"], FORMATS["full"], [param], [], [], [], [])
    monkeypatch.setattr(compiled, "are_plain", lambda params: True)  # fake tensors are not
    assert compiled.CompiledSteps().wants(part) == wanted


# What happens when it cannot be.


def broken(graph, inputs):
    raise FileNotFoundError("no compiler is installed\nand much more")


def test_foreach_with_a_reason_where_it_cannot_be_compiled(graphs, monkeypatch):
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: broken)
    mixed = [*parameters([(2,), (3,)]), *parameters([(4,)], torch.float64)]
    optimizer = sgdf.SGDF(mixed, lr=0.1)
    mixed2 = [*parameters([(2,), (3,)]), *parameters([(4,)], torch.float64)]
    other = sgdf.SGDF(mixed2, lr=0.1, foreach=True)
    set_gradients(mixed, 0)
    message = r"no compiled step \(FileNotFoundError: no compiler is installed\); using foreach"
    with pytest.warns(UserWarning, match=message) as warned:
        optimizer.step()
    assert len(warned) == 1
    assert warned[0].filename == __file__
    monkeypatch.undo()
    monkeypatch.setenv("SGDF_STEP", "compiled")
    for index in range(1, 4):
        set_gradients(mixed, index)
        optimizer.step()
    for index in range(4):
        set_gradients(mixed2, index)
        other.step()
    assert_equal(snapshot(optimizer), {**snapshot(other), "param_groups": groups_of(optimizer)})
    assert not takes_native_step(optimizer)


def groups_of(optimizer):
    return snapshot(optimizer)["param_groups"]


def test_only_what_is_not_compiled_takes_foreach(graphs, monkeypatch):
    """The first list has stepped when the second cannot be compiled."""
    lookups = []

    def lookup(name):
        lookups.append(name)
        return broken if len(lookups) > 1 else lambda graph, inputs: graph

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lookup)
    mixed = [*parameters([(2,)]), *parameters([(4,)], torch.float64), *parameters([(3,)])]
    optimizer = sgdf.SGDF(mixed, lr=0.1)
    set_gradients(mixed, 0)
    with pytest.warns(UserWarning, match="no compiled step"):
        optimizer.step()
    assert [optimizer.state[param]["step"].item() for param in mixed] == [1.0, 1.0, 1.0]


def test_switched_off_compilers_are_a_reason(graphs):
    optimizer = sgdf.SGDF(parameters(), lr=0.1)
    set_gradients(optimizer.param_groups[0]["params"], 0)
    with (
        torch._dynamo.config.patch(disable=True),
        pytest.warns(UserWarning, match="torch.compile is switched off"),
    ):
        optimizer.step()
    assert optimizer.state[optimizer.param_groups[0]["params"][0]]["step"] == 1


def test_errors_of_a_step_that_has_begun_are_raised(graphs, monkeypatch):
    """It may have changed something: another path must not step again."""

    def backend(graph, inputs):
        def run(*arguments):
            raise MemoryError("out of memory")

        return run

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: backend)
    optimizer = sgdf.SGDF(parameters(), lr=0.1)
    set_gradients(optimizer.param_groups[0]["params"], 0)
    with pytest.raises(MemoryError, match="out of memory"):
        optimizer.step()


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_compile_for_themselves(clone, graphs):
    optimizer = sgdf.SGDF(parameters(), lr=0.1)
    train(optimizer, 2)
    other = clone(optimizer)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    for each in (optimizer, other):
        train(each, 2)
    assert_alike(other, optimizer, 0.0)
    assert len(graphs) == 2
    file.seek(0)
    optimizer.load_state_dict(torch.load(file, weights_only=True))
    train(optimizer, 1)
    assert len(graphs) == 2


# What does not wait for a device.


def filled_part(optimizer, direction="sgdf"):
    group = optimizer.param_groups[0]
    row, format = DIRECTIONS[direction], FORMATS[group["state_format"]]
    lists = [[] for _ in range(4 + len(format.keys(row.buffers)))]
    optimizer._init_group(group, direction, format.name, *lists)
    return Part(group, row, format, *lists[:4], lists[4:])


@pytest.mark.parametrize("capturable", [False, True])
def test_the_numbers_reach_the_device_without_waiting(capturable):
    with FakeTensorMode(allow_non_fake_inputs=True):
        params = [torch.nn.Parameter(torch.ones(64, 64, device="cuda")) for _ in range(3)]
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer = sgdf.SGDF(
            params,
            lr=torch.tensor(0.1),  # on the CPU
            fused=True,
            capturable=capturable,
            state_format="bfloat16",
            weight_decay=0.1,
        )
        part = filled_part(optimizer)
        with torch.no_grad(), CopiesToCuda() as copies:
            _, (_, _, _, vector, keys) = compiled.arguments_of(part)
    assert vector.device.type == keys.device.type == "cuda"
    assert copies.count == (0 if capturable else 2)  # a CUDA graph can record none


class CopiesToCuda(Operations):
    """Counts copies from the host, and fails where a number is read from the device."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert "local_scalar" not in func.__name__ or args[0].device.type == "cpu"
        device = (kwargs or {}).get("device")
        if func.__name__ == "_to_copy.default" and args[0].is_cpu and device is not None:
            self.count += torch.device(device).type == "cuda"
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_numbers_on_a_device_are_those_of_the_host():
    optimizer = sgdf.SGDF(parameters(SHAPES[:3]), lr=0.1, weight_decay=0.1)
    set_gradients(optimizer.param_groups[0]["params"], 0)
    part = filled_part(optimizer)
    for count, step in enumerate(part.steps):
        step.fill_(10.0**count)
    group = {**part.group, "capturable": True}
    (rule, own), (rule2, other) = (
        compiled.arguments_of(each, [True, False, True])
        for each in (part, part._replace(group=group))
    )
    assert rule == rule2
    torch.testing.assert_close(own[3], other[3], rtol=1e-6, atol=0)
    assert [step.item() for step in part.steps] == [1.0, 10.0, 100.0]


def test_lists_do_not_wait_for_numbers_on_a_device():
    """What a fake tensor cannot tell, a device would have to be waited for."""
    with FakeTensorMode():
        number = torch.ones((), device="cuda")
        grads, *state, estimates = ([torch.ones(2, device="cuda")] for _ in range(5))
        each = [number]
        numbers = foreach.FilterNumbers(number, number, number, number, each, each, each)
        foreach.filter_gradients(numbers, grads, state[:2])
        numbers = foreach.AdamNumbers(number, number, number, each)
        foreach.adam_directions(numbers, estimates, grads, state[2])


def test_keys_of_the_noise():
    parameters, steps = torch.tensor([0, 5, 70_000]), torch.tensor([1, 2, 3_000_000_000])
    rows = noise_keys(parameters, steps).T.tolist()
    for row, parameter, step in zip(rows, parameters.tolist(), steps.tolist(), strict=True):
        expected = [noise_key(SEED, stream, parameter, step) for stream in (0, 1)]
        assert row == [*expected[0], *expected[1]]


def test_each_function_has_code_of_its_own():
    rule = compiled.Rule("sgdf", "full", None, False, False)
    codes = set()
    for _ in range(2):
        function = compiled._Compiled(compiled.list_function(rule))._function
        codes.add(id(function.__wrapped__.__code__))
    assert len(codes) == 2
