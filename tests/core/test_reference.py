"""Every path and option against the literal algorithm."""

import numpy as np
import pytest
import torch

from cases import CASES, Quadratic, build, describe, every_path

STEPS = 500


def follow(case, options, path, dtype):
    """Run optimizer and reference on one problem; return both with the problem."""
    problem = Quadratic(dtype, sign=-1.0 if options.get("maximize") else 1.0)
    optimizer = build(case, problem.params, path, **options)
    references = [
        case.reference(p.detach().double().numpy(), **{"lr": case.lr, **options})
        for p in problem.params
    ]
    for _ in range(STEPS):
        noise = problem.noise()
        problem.set_gradients(problem.params, noise)
        optimizer.step()
        points = [reference.theta for reference in references]
        for reference, grad in zip(references, problem.gradients(points, noise), strict=True):
            reference.step(grad)
    assert bool(optimizer._tables) == (path == "fused")  # no other path stood in for it
    return problem, optimizer, references


def largest_error(actual, expected):
    return np.abs(actual.detach().double().numpy() - expected).max()


@every_path
@pytest.mark.parametrize(
    ("case", "options"),
    [(case, options) for case in CASES for options in case.options],
    ids=describe,
)
def test_float64_agrees_with_the_reference(case, options, path):
    if path not in case.paths:
        pytest.skip(f"{case.name} has no path {path}")
    problem, optimizer, references = follow(case, options, path, torch.float64)
    for param, reference in zip(problem.params, references, strict=True):
        assert largest_error(param, reference.theta) < 1e-12
        for key, attribute in case.buffers.items():
            assert largest_error(optimizer.state[param][key], getattr(reference, attribute)) < 1e-12
        assert optimizer.state[param]["step"].item() == STEPS


@every_path
@pytest.mark.parametrize(
    ("case", "options"),
    [(case, options) for case in CASES if case.rounding for options in case.options],
    ids=describe,
)
def test_float32_stays_within_rounding_of_the_reference(case, options, path):
    if path not in case.paths:
        pytest.skip(f"{case.name} has no path {path}")
    problem, _, references = follow(case, options, path, torch.float32)
    for param, reference in zip(problem.params, references, strict=True):
        size = np.abs(reference.theta).max()
        assert largest_error(param, reference.theta) <= case.rounding * size
