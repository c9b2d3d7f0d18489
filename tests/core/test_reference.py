"""Every path and option against the literal algorithm."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
import torch

from cases import CASES, FILTERS, Quadratic, build, describe, needs_native

STEPS = 500

# Every decay and direction is combined with these options of the filter and the momentum. Decay and
# direction are applied outside of both, by lines that do not depend on the other options.
OUTSIDE = {"weight_decay", "decoupled_weight_decay", "maximize"}
USUAL = [
    {},
    {"gamma": 0.5, "gamma_decay": 0.0, "correction": "paper", "betas": (0.9, 0.999)},
    {"beta": 0.9, "u": None},
]
UNUSUAL = [
    {"gamma": 0.5},
    {"gamma": 1.0, "correction": "none"},
    {"gamma": 1.0, "gamma_decay": 0.0, "correction": "none", "betas": (0.9, 0.999)},
    {"gamma": 0.3, "gamma_decay": 0.5, "betas": (0.5, 0.9)},
    {"gamma": 0.3, "gamma_decay": 0.5, "correction": "paper", "betas": (0.5, 0.9)},
    {"beta": 0.9, "u": 1.5},
]


def is_repetition(options, path, dtype):
    """Return whether other tests run each line that this one would run."""
    inside = {name: value for name, value in options.items() if name not in OUTSIDE}
    if "lr" in options:
        return False
    if inside == options:
        # The product of the filter's options is for float64. Rounding needs the extremes of it.
        return dtype == torch.float32 and inside in FILTERS and inside not in USUAL + UNUSUAL
    if path.endswith("capturable"):
        return True  # there the step count is a tensor, which decay and direction do not read
    return inside not in (USUAL if dtype == torch.float32 else USUAL + UNUSUAL)


def each_run(cases, dtype):
    """Parametrize a test by all options and paths; mark those that repeat others as slow."""
    return pytest.mark.parametrize(
        ("case", "options", "path"),
        [
            pytest.param(
                *(case, options, path),
                marks=[needs_native] * (path == "fused")
                + [pytest.mark.slow] * is_repetition(options, path, dtype),
            )
            for case in cases
            for options in case.options
            for path in case.paths
        ],
        ids=describe,
    )


class Expected(NamedTuple):
    """A run of the reference, which is the same for all paths."""

    noise: list
    """Of each step."""
    tensors: list
    """The values after the last step by attribute of the reference, for each parameter."""


@functools.lru_cache(maxsize=4)
def expected_run(name, index, dtype):
    """Return the reference's run with the options of this index in the row of the case."""
    (case,) = (case for case in CASES if case.name == name)
    options = case.options[index]
    problem = Quadratic(dtype, sign=-1.0 if options.get("maximize") else 1.0)
    start, target = (
        np.concatenate([np.ravel(values) for values in columns])
        for columns in ([p.detach().double().numpy() for p in problem.params], problem.targets)
    )
    # The algorithm is elementwise, so that one array can stand for all parameters.
    reference = case.reference(start, **{"lr": case.lr, **options})
    noises = [problem.noise() for _ in range(STEPS)]
    for noise in noises:
        flat = np.concatenate([np.ravel(values) for values in noise])
        reference.step(problem.sign * ((reference.theta - target) + flat))
    ends = np.cumsum([param.numel() for param in problem.params])
    columns = {
        name: np.split(getattr(reference, name), ends[:-1])
        for name in ("theta", *case.buffers.values())
    }
    return Expected(
        noises,
        [
            {name: values[i].reshape(shape) for name, values in columns.items()}
            for i, shape in enumerate(problem.shapes)
        ],
    )


def follow(case, options, path, dtype):
    """Run the optimizer; return it, its problem and the values that are expected."""
    expected = expected_run(case.name, case.options.index(options), dtype)
    problem = Quadratic(dtype, sign=-1.0 if options.get("maximize") else 1.0)
    optimizer = build(case, problem.params, path, **options)
    for noise in expected.noise:
        problem.set_gradients(problem.params, noise)
        optimizer.step()
    assert bool(optimizer._native.tables) == (path == "fused")  # no other path was taken instead
    return problem, optimizer, expected.tensors


def largest_error(actual, expected):
    return np.abs(actual.detach().double().numpy() - expected).max()


@each_run(CASES, torch.float64)
def test_float64_agrees_with_the_reference(case, options, path):
    problem, optimizer, expected = follow(case, options, path, torch.float64)
    for param, values in zip(problem.params, expected, strict=True):
        assert largest_error(param, values["theta"]) < 1e-12
        for key, attribute in case.buffers.items():
            assert largest_error(optimizer.state[param][key], values[attribute]) < 1e-12
        assert optimizer.state[param]["step"].item() == STEPS


@each_run([case for case in CASES if case.rounding], torch.float32)
def test_float32_stays_within_rounding_of_the_reference(case, options, path):
    problem, _, expected = follow(case, options, path, torch.float32)
    for param, values in zip(problem.params, expected, strict=True):
        size = np.abs(values["theta"]).max()
        assert largest_error(param, values["theta"]) <= case.rounding * size
