"""Every path and option against the literal algorithm."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
import torch

from cases import CASES, Quadratic, build, describe, every_path

STEPS = 500

# The options that are combined with every decay and direction. Both are applied outside the
# filter and the momentum, by lines that do not depend on the other options, so that the further
# combinations run no code of their own: they are marked as slow.
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


def each_option(cases, combined):
    """Parametrize a test by all options; mark combinations that repeat others as slow."""

    def is_repetition(options):
        inside = {name: value for name, value in options.items() if name not in OUTSIDE}
        return inside != options and "lr" not in options and inside not in combined

    return pytest.mark.parametrize(
        ("case", "options"),
        [
            pytest.param(case, options, marks=[pytest.mark.slow] * is_repetition(options))
            for case in cases
            for options in case.options
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
    assert bool(optimizer._tables) == (path == "fused")  # no other path was taken instead
    return problem, optimizer, expected.tensors


def largest_error(actual, expected):
    return np.abs(actual.detach().double().numpy() - expected).max()


@every_path
@each_option(CASES, USUAL + UNUSUAL)
def test_float64_agrees_with_the_reference(case, options, path):
    if path not in case.paths:
        pytest.skip(f"{case.name} has no path {path}")
    problem, optimizer, expected = follow(case, options, path, torch.float64)
    for param, values in zip(problem.params, expected, strict=True):
        assert largest_error(param, values["theta"]) < 1e-12
        for key, attribute in case.buffers.items():
            assert largest_error(optimizer.state[param][key], values[attribute]) < 1e-12
        assert optimizer.state[param]["step"].item() == STEPS


@every_path
@each_option([case for case in CASES if case.rounding], USUAL)
def test_float32_stays_within_rounding_of_the_reference(case, options, path):
    if path not in case.paths:
        pytest.skip(f"{case.name} has no path {path}")
    problem, _, expected = follow(case, options, path, torch.float32)
    for param, values in zip(problem.params, expected, strict=True):
        size = np.abs(values["theta"]).max()
        assert largest_error(param, values["theta"]) <= case.rounding * size
