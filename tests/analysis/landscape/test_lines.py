"""Lines between two networks: exact ends, stated statistics of BatchNorm, barriers."""

import copy

import pytest
import torch
from torch import nn

from sgdf.analysis.landscape.lines import line_losses, recompute_statistics


def linear(weight):
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, weight)
    return model


def test_a_quadratic_has_the_losses_of_its_formula():
    start, end = linear(-1.0), linear(3.0)
    losses = line_losses(
        start, lambda: start.weight.item() ** 2, end.state_dict(), [0.0, 0.25, 0.5, 1.0]
    )
    assert losses == [1.0, 0.0, 1.0, 9.0]
    assert start.weight.item() == -1.0


def normalised(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    inputs = 2.0 * torch.randn(60, 3) + 1.0
    for _ in range(50):
        model(inputs)
    return model.eval(), inputs


@pytest.mark.parametrize("statistics", ["recomputed", "interpolated"])
def test_statistics_are_those_that_were_asked_for(statistics):
    (start, inputs), (end, _) = normalised(0), normalised(1)
    seen, before = [], copy.deepcopy(start.state_dict())

    def loss():
        with torch.no_grad():
            outputs = start(inputs)
        if not start[1].training:
            seen.append((start[1].running_mean.clone(), start[0](inputs).detach().mean(0)))
        return outputs.mean().item()

    line_losses(start, loss, end.state_dict(), [0.0, 0.5, 1.0], statistics)
    for position, (used, true) in zip((0.0, 0.5, 1.0), seen, strict=True):
        mixed = torch.lerp(before["1.running_mean"], end[1].running_mean, position)
        torch.testing.assert_close(used, true if statistics == "recomputed" else mixed)
        assert not torch.allclose(mixed, true), "else the two choices cannot be told apart"
    assert all(torch.equal(value, before[name]) for name, value in start.state_dict().items())


def test_the_end_of_a_line_is_the_other_network_to_the_bit():
    (start, inputs), (end, _) = normalised(0), normalised(1)

    def loss_of(model):
        with torch.no_grad():
            return model(inputs).square().mean().item()

    losses = line_losses(
        start, lambda: loss_of(start), end.state_dict(), [0.0, 1.0], "interpolated"
    )
    assert losses == [loss_of(start), loss_of(end)]


def test_recomputed_statistics_are_means_over_the_batches_and_nothing_else_changes():
    model, inputs = normalised(0)
    momentum = model[1].momentum
    modes = []

    def loss():
        modes.append([module.training for module in model])
        with torch.no_grad():
            for batch in inputs.split(20):
                model(batch)
        return 0.0

    recompute_statistics(model, loss)
    assert modes == [[False, True, False, False]], "dropout stays off"
    hidden = model[0](inputs).detach()
    torch.testing.assert_close(model[1].running_mean, hidden.mean(0))
    variances = torch.stack([part.var(0) for part in hidden.split(20)]).mean(0)
    torch.testing.assert_close(model[1].running_var, variances)
    assert model[1].momentum == momentum
    assert not any(module.training for module in model)


def test_networks_without_batch_normalisation_need_no_second_pass():
    calls = []
    recompute_statistics(linear(1.0), lambda: calls.append(1) or 0.0)
    assert not calls


def test_a_loss_that_was_computed_before_can_still_go_backward():
    (start, inputs), (end, _) = normalised(0), normalised(1)
    before = start(inputs).square().mean()
    line_losses(start, lambda: 0.0, end.state_dict(), [0.0, 0.5])
    before.backward()
    assert all(param.grad is not None for param in start.parameters())
