"""Problems whose solution is known."""

import pytest
import torch

from cases import CASES, build, describe, each_case, each_path, skip_without

# That the paths agree is tested elsewhere (test_paths.py), so for problems of thousands of steps
# the fastest one is enough: what the optimizer takes by default.
fastest_path = pytest.mark.parametrize(
    "path",
    [
        "default",
        pytest.param("single", marks=pytest.mark.slow),
        pytest.param("foreach", marks=pytest.mark.slow),
    ],
)


def minimise(case, path, start, loss_of, steps, **options):
    param = torch.nn.Parameter(start.clone())
    optimizer = build(case, [param], path, **options)
    # Steps of one size end up as near as the last of them is large.
    factor = (lambda step: 1 - step / steps) if case.scale_free else (lambda step: 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(param).backward()
        optimizer.step()
        schedule.step()
    return param.detach()


@each_case
@each_path
def test_parabola(case, path):
    start = torch.tensor([5.0, -3.0, 0.5], dtype=torch.float64)
    scales = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    found = minimise(case, path, start, lambda x: (scales * (x - 1).square()).sum(), 300)
    atol = 1e-3 if case.scale_free else 1e-6
    torch.testing.assert_close(found, torch.ones(3, dtype=torch.float64), atol=atol, rtol=0)


# FilterMuon takes FilterAdam's steps on a vector.
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] * case.orthogonal) for case in CASES],
    ids=describe,
)
@fastest_path
def test_rosenbrock(case, path):
    start = torch.tensor([-1.2, 1.0], dtype=torch.float64)

    def rosenbrock(x):
        return (1 - x[0]).square() + 100 * (x[1] - x[0].square()).square()

    found = minimise(case, path, start, rosenbrock, 12_000, lr=2e-3)
    atol = 0.03 if case.scale_free else 1e-3
    torch.testing.assert_close(found, torch.ones(2, dtype=torch.float64), atol=atol, rtol=0)


@each_case
@fastest_path
def test_matrix_factorisation(case, path):
    generator = torch.Generator().manual_seed(3)
    left, right = (torch.randn(n, 3, generator=generator) for n in (8, 6))
    target = left @ right.T
    factors = torch.randn(14, 3, generator=generator)

    def misfit(x):
        return (x[:8] @ x[8:].T - target).square().sum()

    found = minimise(case, path, factors, misfit, 3000, lr=0.02)
    assert misfit(found) < (1e-2 if case.scale_free else 1e-8)


@each_case
def test_weight_decay_pulls_to_the_ridge_solution(case):
    """Coupled decay λ on |x-1|² ends at 2/(2+λ)."""
    skip_without(case, case.coupled_decay, "coupled decay")
    found = minimise(
        case, "single", torch.zeros(1), lambda x: (x - 1).square().sum(), 500, weight_decay=0.5
    )
    assert found.item() == pytest.approx(2 / 2.5, abs=1e-3 if case.scale_free else 1e-5)
