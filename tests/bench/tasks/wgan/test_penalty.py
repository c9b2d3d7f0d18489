"""The gradient penalty against critics whose gradient is known, and against differences."""

import pytest
import torch
from torch import nn

from sgdf.bench.tasks.wgan.networks import Critic
from sgdf.bench.tasks.wgan.penalty import gradient_penalty


class Quadratic(nn.Module):
    """D(x) = ½ xᵀ A x, whose gradient is A x for a symmetric A."""

    def __init__(self, size):
        super().__init__()
        root = torch.randn(size, size, dtype=torch.float64)
        self.matrix = nn.Parameter(root + root.t())

    def forward(self, images):
        """Return a score for each image."""
        rows = images.flatten(1)
        return 0.5 * (rows @ self.matrix * rows).sum(1)


def images(count=6, side=2):
    return torch.randn(count, 1, side, side, dtype=torch.float64)


def shares(count=6):
    return torch.rand(count, 1, 1, 1, dtype=torch.float64)


def by_differences(function, param, step):
    """Return the gradient of a function of no arguments by each element of a parameter."""
    flat, slopes = param.data.view(-1), []
    for index in range(len(flat)):
        value, ends = flat[index].item(), []
        for change in (step, -step):
            flat[index] = value + change
            ends.append(function().item())
        flat[index] = value
        slopes.append((ends[0] - ends[1]) / (2 * step))
    return torch.tensor(slopes, dtype=param.dtype).view_as(param)


def test_the_penalty_of_a_quadratic_critic():
    critic, real, fake, mix = Quadratic(4), images(), images(), shares()
    points = (mix * real + (1 - mix) * fake).flatten(1)
    norms = (points @ critic.matrix).norm(dim=1)
    penalty = gradient_penalty(critic, real, fake, mix)
    assert penalty.item() == pytest.approx(((norms - 1) ** 2).mean().item(), rel=1e-12)
    # By the elements of A one by one: of any matrix the gradient by x is (A + Aᵀ) x / 2.
    factors = 2 * (norms - 1) / norms / len(norms)
    outer = (factors[:, None] * (points @ critic.matrix)).t() @ points
    penalty.backward()
    torch.testing.assert_close(critic.matrix.grad, (outer + outer.t()) / 2)


def test_the_points_lie_between_real_and_fake_images():
    seen = []

    def critic(points):
        seen.append(points.detach().clone())
        return points.flatten(1).sum(1)

    real, fake, mix = images(), images(), shares()
    mix[:2, 0, 0, 0] = torch.tensor([0.0, 1.0])
    gradient_penalty(critic, real, fake, mix)
    (points,) = seen
    assert torch.equal(points[0], fake[0])
    assert torch.equal(points[1], real[1])
    torch.testing.assert_close(points - fake, mix * (real - fake))


def test_a_slope_of_one_costs_nothing_and_a_flat_critic_one():
    """The norm has no gradient at zero; taken for zero, it leaves the parameters as they are."""
    weight = torch.full((4,), 0.5, dtype=torch.float64, requires_grad=True)  # of norm 1
    for factor, expected in ((1.0, 0.0), (3.0, 4.0), (0.0, 1.0)):

        def critic(points, factor=factor):
            return points.flatten(1) @ (factor * weight)

        penalty = gradient_penalty(critic, images(), images(), shares())
        assert penalty.item() == pytest.approx(expected, abs=1e-12)
        (slope,) = torch.autograd.grad(penalty, weight)
        assert slope.isfinite().all()


@pytest.mark.parametrize("batch_norm", [True, False])
def test_the_critics_gradient_of_the_penalty_is_that_by_finite_differences(batch_norm):
    critic = Critic(2, 16, 1, batch_norm).double()
    with torch.no_grad():  # initial weights give so small slopes that little would be tested
        for param in critic.parameters():
            param.normal_(std=0.5)
    real, fake, mix = images(3, 16), images(3, 16), shares(3)

    def penalty():
        return gradient_penalty(critic, real, fake, mix)

    penalty().backward()
    for name, param in critic.named_parameters():
        expected = by_differences(penalty, param, step=1e-6)
        got = torch.zeros_like(param) if param.grad is None else param.grad
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-7, msg=lambda m, n=name: n + m)
    assert critic.layers[0].weight.grad.abs().max() > 1e-2


def test_the_penalty_leaves_no_gradient_anywhere():
    critic, real, fake = Quadratic(4), images(), images()
    gradient_penalty(critic, real, fake, shares())
    assert critic.matrix.grad is None
    assert not real.requires_grad
    assert not fake.requires_grad
