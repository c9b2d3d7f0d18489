"""The generator and the critic: sizes, shapes, and what they are initialised with."""

import pytest
import torch
from torch import nn

from sgdf.bench.tasks.wgan.networks import Critic, Generator


def parameters(network):
    return sum(map(torch.numel, network.parameters()))


@pytest.mark.parametrize(
    ("side", "channels", "latent", "counts"),
    [
        (64, 64, 100, (3_576_704, 2_765_569)),
        (32, 16, 64, (107_488, 42_945)),
        (32, 32, 64, (296_896, 167_809)),
    ],
)
def test_networks_have_as_many_parameters_as_the_published_ones(side, channels, latent, counts):
    networks = Generator(latent, channels, side), Critic(channels, side)
    assert tuple(map(parameters, networks)) == counts


@pytest.mark.parametrize(("side", "colours"), [(8, 1), (16, 3), (32, 3), (64, 1), (128, 3)])
def test_the_critic_takes_what_the_generator_makes(side, colours):
    generator, critic = Generator(5, 2, side, colours), Critic(2, side, colours)
    generator.layers[-2].weight.data.mul_(1e3)  # so that values must be bounded
    images = generator(torch.randn(3, 5))
    assert images.shape == (3, colours, side, side)
    assert 0.9 < images.abs().max() <= 1
    assert critic(images).shape == (3,)


@pytest.mark.parametrize("side", [-8, 0, 4, 24, 63])
def test_other_sides_are_refused(side):
    for network in (Generator, Critic):
        with pytest.raises(ValueError, match=f"side = {side}: must be a power of two from 8 on"):
            network(channels=2, side=side)


def test_without_batch_norm_an_image_has_its_own_score_and_convolutions_have_biases():
    images = torch.randn(4, 1, 16, 16)
    alone, together = Critic(8, 16, 1, batch_norm=False), Critic(8, 16, 1)
    torch.testing.assert_close(alone(images[:2]), alone(images)[:2])
    assert not torch.allclose(together(images[:2]), together(images)[:2], rtol=1e-2)
    # One normalised convolution of 16 channels: a weight and a bias each, instead of a bias.
    assert parameters(together) - parameters(alone) == 16
    assert all(not layer.bias.any() for layer in alone.layers if _is_normalised(layer))


def _is_normalised(layer):
    return isinstance(layer, nn.Conv2d) and layer.in_channels > 1


def test_weights_are_initialised_from_narrow_normal_distributions():
    """A wrong deviation of 10 % would pass with a probability below 1e-6: 6 standard errors."""
    for network in (Generator(64, 32, 32), Critic(32, 32)):
        layers = list(network.layers)
        convolutions = [m for m in layers if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
        norms = [m for m in layers if isinstance(m, nn.BatchNorm2d)]
        weights = torch.cat([layer.weight.detach().flatten() for layer in convolutions])
        scales = torch.cat([layer.weight.detach() for layer in norms])
        for values, mean in ((weights, 0.0), (scales, 1.0)):
            error = 0.02 / len(values) ** 0.5
            assert abs(values.mean() - mean) < 6 * error
            assert values.std() == pytest.approx(0.02, abs=6 * error / 2**0.5)
        assert not any(layer.bias.any() for layer in norms)
        assert all(layer.bias is None for layer in convolutions)
    linear = network.layers[-1]
    assert linear.bias is not None
    assert linear.weight.abs().max() <= linear.in_features**-0.5  # as torch initialises it
