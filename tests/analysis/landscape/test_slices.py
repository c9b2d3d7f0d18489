"""Losses along directions: known for a quadratic, equal to the Hessian's form for a network."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from sgdf.analysis.landscape.directions import random_direction
from sgdf.analysis.landscape.slices import curvature, moving, plane_rows, slice_losses

POSITIONS = [-1.0, -0.5, 0.0, 0.5, 1.0]


class Bowl(nn.Module):
    """Has the loss ½ (w - c)ᵀ diag(h) (w - c) + 1 of a matrix w with one row."""

    def __init__(self, curvatures, offset=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, len(curvatures), dtype=torch.float64))
        self.curvatures = torch.tensor(curvatures, dtype=torch.float64)
        self.centre = 1.0 - offset

    def loss(self):
        """Return the loss where the weights are."""
        with torch.no_grad():
            return 0.5 * (self.curvatures * (self.weight - self.centre) ** 2).sum().item() + 1.0


def axes(count):
    return [{"weight": row.view(1, -1)} for row in torch.eye(count, dtype=torch.float64)]


def state_of(model):
    """Return everything that a measurement could change."""
    values = {name: value.clone() for name, value in model.state_dict().items()}
    return values, [module.training for module in model.modules()]


def assert_as_found(model, before):
    values, modes = state_of(model)
    assert all(torch.equal(values[name], before[0][name]) for name in before[0])
    assert modes == before[1]


def network():
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 4)),
        nn.Dropout(),
    ).double()
    inputs, classes = torch.randn(20, 2, 4, 4).double(), torch.randint(4, (20,))
    model(inputs)  # so that the running statistics are not those of a new network
    return model, lambda: nn.functional.cross_entropy(model(inputs), classes)


def test_a_quadratic_has_the_losses_and_the_curvature_of_its_formula():
    bowl = Bowl([2.0, 6.0, 10.0], offset=0.25)
    first, second, _ = axes(3)
    expected = 1.0 + 0.5 * (
        2.0 * (np.array(POSITIONS)[None, :] + 0.25) ** 2
        + 6.0 * (np.array(POSITIONS)[:, None] + 0.25) ** 2
        + 10.0 * 0.25**2
    )
    rows = list(plane_rows(bowl, bowl.loss, first, second, POSITIONS))
    np.testing.assert_allclose(rows, expected, rtol=1e-14)
    middle = slice_losses(bowl, bowl.loss, first, POSITIONS)
    assert middle == rows[2]
    assert curvature(bowl, bowl.loss, second, 0.02) == pytest.approx(6.0, rel=1e-9)
    both = {"weight": first["weight"] + second["weight"]}
    assert curvature(bowl, bowl.loss, both, 0.02) == pytest.approx(8.0, rel=1e-9)


def test_rows_can_be_resumed():
    bowl, (first, second) = Bowl([1.0, 2.0]), axes(2)
    rows = list(plane_rows(bowl, bowl.loss, first, second, POSITIONS))
    assert list(plane_rows(bowl, bowl.loss, first, second, POSITIONS, start=3)) == rows[3:]


@pytest.mark.parametrize("vectors", ["zero", "scaled"])
def test_the_curvature_is_the_quadratic_form_of_the_hessian(vectors):
    model, loss = network()
    direction = random_direction(model, 0, 0, vectors)

    def value():
        with torch.no_grad():
            return loss().item()

    measured = curvature(model, value, direction, 1e-4)
    model.eval()
    params = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss(), list(params.values()), create_graph=True)
    slope = sum(
        (gradient * direction[name]).sum() for name, gradient in zip(params, gradients, strict=True)
    )
    products = torch.autograd.grad(slope, list(params.values()))
    form = sum(
        (product * direction[name]).sum().item()
        for name, product in zip(params, products, strict=True)
    )
    assert abs(form) > 0.05
    assert measured == pytest.approx(form, rel=1e-5)


def test_losses_are_measured_in_evaluation_mode_and_the_model_is_left_as_found():
    model, loss = network()
    model[1].eval()  # a mode of its own
    before, seen = state_of(model), []

    def value():
        seen.append(any(module.training for module in model.modules()))
        with torch.no_grad():
            return loss().item()

    for row in plane_rows(
        model, value, random_direction(model, 0, 0), random_direction(model, 0, 1), POSITIONS
    ):
        assert_as_found(model, before)  # between two rows too
        assert len(set(row)) > 1
    curvature(model, value, random_direction(model, 0, 0), 0.1)
    assert_as_found(model, before)
    assert not any(seen)


def test_the_model_is_left_as_found_after_an_error():
    model, _ = network()
    before, calls = state_of(model), itertools.count()

    def value():
        if next(calls) == 3:
            with torch.no_grad():
                model[1].running_mean += 1.0  # a loss that changes a buffer is undone too
            raise RuntimeError("no further")
        return 0.0

    with pytest.raises(RuntimeError, match="no further"):
        slice_losses(model, value, random_direction(model, 0, 0), POSITIONS)
    assert_as_found(model, before)


def test_the_centre_is_the_model_itself_to_the_bit():
    model, _ = network()
    weights = [param.detach().clone() for param in model.parameters()]
    with moving(model) as move:
        move((0.7, random_direction(model, 0, 0)))
        assert not torch.equal(model[0].weight, weights[0])
        move((0.0, random_direction(model, 0, 0)), (0.0, random_direction(model, 0, 1)))
        assert all(map(torch.equal, model.parameters(), weights))


def test_a_loss_that_was_computed_before_can_still_go_backward():
    model, loss = network()
    before = loss()
    slice_losses(model, lambda: 0.0, random_direction(model, 0, 0), POSITIONS)
    before.backward()
    assert all(param.grad is not None for param in model.parameters())
