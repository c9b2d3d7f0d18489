"""The straight path from noise to images, and its loss."""

import torch
from torch import nn

from normal_mixture import Mixture
from sgdf.bench.tasks.diffusion.flow import Flow

FLOW = Flow()
MIXTURE = Mixture((0.3, 0.7), (-1.5, 1.0), (0.4, 0.2))


def example(count=5):
    images, noise = torch.randn(count, 1, 2, 2).double(), torch.randn(count, 1, 2, 2).double()
    return images, torch.rand(count).double(), noise


def test_the_path_begins_at_noise_and_ends_at_the_image():
    images, _, noise = example()
    assert torch.equal(FLOW.noised(images, torch.zeros(5), noise), noise)
    assert torch.equal(FLOW.noised(images, torch.ones(5), noise), images)


def test_the_velocity_is_the_slope_of_the_path():
    images, times, noise = example()
    length = 1e-6
    ahead, behind = (FLOW.noised(images, times + d, noise) for d in (length, -length))
    slope = (ahead - behind) / (2 * length)
    torch.testing.assert_close(FLOW.velocity(images, noise), slope, rtol=1e-8, atol=1e-8)


def test_the_score_is_the_slope_of_the_log_density():
    """Of a mixture, whose density at any time is known; its slope is torch's."""
    for time in (0.0, 0.3, 0.9):
        points = torch.linspace(-3, 3, 31, dtype=torch.float64).view(-1, 1).requires_grad_()
        times = torch.full((31,), time, dtype=torch.float64)
        density = 0.0
        parts = zip(MIXTURE.shares, MIXTURE.means, MIXTURE.deviations, strict=True)
        for share, mean, deviation in parts:
            variance = (time * deviation) ** 2 + (1 - time) ** 2
            away = (points - time * mean) ** 2 / variance
            density = density + share * torch.exp(-away / 2) / variance**0.5
        (slope,) = torch.autograd.grad(density.log().sum(), points)
        found = FLOW.score(MIXTURE.velocity(points, times), points, times)
        torch.testing.assert_close(found, slope, rtol=1e-8, atol=1e-8)


def test_the_loss_is_the_squared_error_of_the_velocity():
    images, times, noise = example()
    seen = []

    def network(*inputs):
        seen.extend(inputs)
        return 0.5 * inputs[0]

    classes = torch.arange(5)
    losses = FLOW.losses(network, images, classes, times, noise)
    points = FLOW.noised(images, times, noise)
    expected = (0.5 * points - (images - noise)).square().mean((1, 2, 3))
    assert losses.keys() == {"squared_error"}
    torch.testing.assert_close(losses["squared_error"], expected)
    assert torch.equal(seen[0], points)
    assert torch.equal(seen[1], times)
    assert torch.equal(seen[2], classes)


def test_channels_for_the_variance_are_not_used():
    images, times, noise = example()
    network = nn.Conv2d(1, 2, 1).double()
    losses = FLOW.losses(lambda x, *_: network(x), images, torch.zeros(5), times, noise)
    losses["squared_error"].mean().backward()
    assert network.weight.grad[0].all()
    assert not network.weight.grad[1].any()


def test_times_are_uniform_and_the_generators():
    """The chance that a right generator fails is one in 150,000 for each of ten parts."""
    times = FLOW.draw_times(50_000, torch.Generator().manual_seed(1))
    assert torch.equal(times, FLOW.draw_times(50_000, torch.Generator().manual_seed(1)))
    counts = torch.histc(times, 10, 0, 1)
    assert counts.sum() == 50_000
    assert (counts - 5_000).abs().max() < 4.5 * (50_000 * 0.1 * 0.9) ** 0.5
