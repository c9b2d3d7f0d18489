"""torch.compile(optimizer.step): one graph, no recompiles, the same numbers."""

import copy
import shutil

import pytest
import torch
import torch._inductor.config
from torch._dynamo.utils import counters

from cases import (
    CASES,
    Quadratic,
    build,
    describe,
    each_case,
    each_traced_path,
    needs_native,
    skip_without,
)

needs_cpp = pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs g++")


def each_backend(inductor_for):
    """Parametrize a test by optimizer, path and backend; inductor only for one optimizer's path.

    Dynamo decides which values are constants and when to compile again, and it is the same for
    all backends; "eager" runs its graphs unchanged. Inductor needs seconds for each graph. It can
    only go wrong where a changing value enters the arithmetic: in the filter and in the update,
    which all optimizers share; foreach is the path that they take by default. The slow tests
    compile the other optimizers and the other path with it as well.
    """
    return pytest.mark.parametrize(
        ("case", "path", "backend"),
        [
            pytest.param(case, path, backend, marks=marks)
            for case in CASES
            for path in ("single", "foreach")
            for backend, marks in (
                ("eager", []),
                (
                    "inductor",
                    [needs_cpp, *[pytest.mark.slow] * ((case.name, path) != inductor_for)],
                ),
            )
        ],
        ids=describe,
    )


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Let inductor compile afresh and leave neither files nor workers behind."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch(compile_threads=1):
        yield


def compiled_against_eager(case, path, backend, steps, dtype=torch.float64, change=None, **options):
    """Train twins, compare parameters and state, return the number of graphs."""
    torch._dynamo.reset()
    counters.clear()
    problems = Quadratic(dtype), Quadratic(dtype)
    for problem in problems:
        # torch 2.13 compiles 0-dimensional float64 tensors on the CPU wrongly, those of
        # its own SGD and Adam too: it takes their first value for a constant.
        problem.drop_scalars()
    eager = build(case, problems[0].params, path, **options)
    traced = build(case, problems[1].params, path, **options)
    step = torch.compile(traced.step, backend=backend, fullgraph=True)
    for index in range(steps):
        noise = problems[0].noise()
        for problem in problems:
            problem.set_gradients(problem.params, noise)
        if change:
            for optimizer in (eager, traced):
                change(index, optimizer.param_groups[0])
        eager.step()
        step()
    for p, q in zip(problems[0].params, problems[1].params, strict=True):
        pairs = [(p, q)] + [(eager.state[p][k], traced.state[q][k]) for k in eager.state[p]]
        for a, b in pairs:
            tolerance = 1e-12 if dtype == torch.float64 else 1e-6 * max(0.1, a.abs().max().item())
            if backend == "inductor" and case.orthogonal and p.dim() >= 2:
                tolerance = 0.03  # it rounds to bfloat16 at other places
            torch.testing.assert_close(b, a, rtol=0, atol=tolerance)
    return counters["stats"]["unique_graphs"]


# The filter is one piece of code for all optimizers that have it, so that its options are traced
# in SGDF; the slow tests trace them in the others as well.
@each_traced_path
@pytest.mark.parametrize(
    ("case", "options"),
    [
        pytest.param(case, options, marks=[pytest.mark.slow] * repeats)
        for case in CASES
        for options, repeats in (
            (case.another, False),
            ({"weight_decay": 0.1}, False),
            ({"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}, False),
            ({"gamma": 0.3, "gamma_decay": 0.5, "correction": "none"}, case.name != "SGDF"),
            ({"betas": (0.0, 0.9), "eps": 0.0}, case.name != "SGDF"),
        )
    ],
    ids=describe,
)
def test_one_graph_and_the_same_numbers(case, options, path):
    if not case.compiles:
        pytest.skip(f"{case.name} does not compile")
    skip_without(case, set(options) <= case.arguments, "filter")
    graphs = compiled_against_eager(case, path, "aot_eager", 50, **options)
    assert graphs == 1


@needs_native
@each_case
@pytest.mark.parametrize("path", ["default", "fused"])
def test_a_compiled_step_is_not_native(case, path):
    if not (case.compiles and case.fused):
        pytest.skip(f"{case.name} does not have both")
    assert compiled_against_eager(case, path, "aot_eager", 20, weight_decay=0.1) == 1


@needs_native
@each_case
def test_native_and_compiled_steps_may_alternate(case):
    """One state, whichever of them moves it."""
    if not (case.compiles and case.fused):
        pytest.skip(f"{case.name} does not have both")
    torch._dynamo.reset()
    counters.clear()
    mixed, native = Quadratic(), Quadratic()
    for problem in (mixed, native):
        problem.drop_scalars()  # as above
    optimizer, expected = (build(case, problem.params, "default") for problem in (mixed, native))
    compiled = torch.compile(optimizer.step, backend="aot_eager", fullgraph=True)
    for index in range(12):
        noise = mixed.noise()
        for problem in (mixed, native):
            problem.set_gradients(problem.params, noise)
        (compiled if index % 3 else optimizer.step)()
        expected.step()
    for p, q in zip(mixed.params, native.params, strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=1e-12)
    assert counters["stats"]["unique_graphs"] == 1


@each_case
@each_traced_path
def test_tensor_lr_never_recompiles(case, path):
    def change(index, group):
        group["lr"].fill_(0.1 / (1 + index))

    graphs = compiled_against_eager(
        case, path, "eager", 30, change=change, lr=torch.tensor(0.1, dtype=torch.float64)
    )
    assert graphs == 1


@each_backend(inductor_for=("SGDF", "foreach"))
def test_float_lr_recompiles_once(case, path, backend, own_cache):
    """As Adam's does: a constant at first, an input of the graph once it has changed."""

    def change(index, group):
        group["lr"] = 0.1 / (1 + index // 2)

    assert compiled_against_eager(case, path, backend, 10, change=change) == 2


@each_backend(inductor_for=("SGDF", "foreach"))
def test_changing_betas_are_never_stale(case, path, backend, own_cache):
    """What OneCycleLR does at each step: a graph per value, as Adam has.

    Three values tell this from a value that becomes an input of the second graph.
    """
    skip_without(case, "betas" in case.arguments, "betas")

    def change(index, group):
        group["betas"] = (0.95 - 0.05 * (index // 2), 0.999)

    assert compiled_against_eager(case, path, backend, 6, change=change) == 3


@each_case
def test_loaded_state_compiles(case):
    torch._dynamo.reset()
    problem = Quadratic(torch.float32)
    first = build(case, problem.params)
    problem.set_gradients(problem.params, problem.noise())
    first.step()
    second = build(case, problem.params)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    torch.compile(second.step, backend="eager", fullgraph=True)()
    assert all(state["step"] == 2 for state in second.state.values())


# Each optimizer and path has arithmetic of its own; the dtype changes no line of it.
@needs_cpp
@each_traced_path
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, marks=[pytest.mark.slow] * repeats)
        for case in CASES
        for dtype, repeats in ((torch.float32, False), (torch.float64, True))
    ],
    ids=describe,
)
def test_inductor_gives_the_same_numbers(case, path, dtype, own_cache):
    options = {"dtype": dtype, "weight_decay": 0.1}
    assert compiled_against_eager(case, path, "inductor", 300, **options) == 1
