"""Classifier-free guidance: what it leaves alone, and where it leads."""

import pytest
import torch

from normal_mixture import Mixture
from sgdf.bench.tasks.diffusion.ddpm import Diffusion
from sgdf.bench.tasks.diffusion.draw import draw
from sgdf.bench.tasks.diffusion.flow import Flow
from sgdf.bench.tasks.diffusion.guidance import Guided
from sgdf.bench.tasks.diffusion.transformer import DiffusionTransformer

ERROR = 4.5  # standard errors: a right moment fails one in 150,000 times
NONE = 2


@pytest.fixture
def model():
    """Return a small network with random parameters."""
    network = DiffusionTransformer(4, 1, 2, 8, 1, 2, classes=2).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network


def inputs():
    return torch.randn(3, 1, 4, 4), torch.rand(3), torch.tensor([0, 1, 0])


class Counted:
    """A network that counts its calls and the images of each."""

    def __init__(self, network):
        self.network, self.calls = network, []

    def __call__(self, images, times, classes):
        """Return what the network returns."""
        self.calls.append(len(images))
        return self.network(images, times, classes)


def test_scale_1_is_no_guidance_bit_for_bit(model):
    images, times, classes = inputs()
    counted = Counted(model)
    found = Guided(counted, 1.0, NONE)(images, times, classes)
    assert torch.equal(found, model(images, times, classes))
    assert counted.calls == [3]


@pytest.mark.parametrize("scale", [0.0, 1.5, 4.0])
def test_other_scales_extrapolate_from_no_class_in_one_batch(model, scale):
    images, times, classes = inputs()
    counted = Counted(model)
    found = Guided(counted, scale, NONE)(images, times, classes)
    assert counted.calls == [6]
    with_class = model(images, times, classes)
    without = model(images, times, torch.full_like(classes, NONE))
    expected = without + scale * (with_class - without)
    torch.testing.assert_close(found[:, :1], expected[:, :1])
    torch.testing.assert_close(found[:, 1:], with_class[:, 1:])  # the variance


def test_all_channels_of_the_prediction_are_guided():
    def network(images, times, classes):
        return images + classes.view(-1, 1, 1, 1)

    images = torch.randn(2, 3, 2, 2)
    found = Guided(network, 3.0, NONE)(images, torch.zeros(2), torch.tensor([0, 1]))
    shifted = images + NONE + 3.0 * (torch.tensor([0.0, 1.0]) - NONE).view(-1, 1, 1, 1)
    torch.testing.assert_close(found, shifted)


@pytest.mark.parametrize(("process", "sampler"), [(Diffusion(), "ddpm"), (Flow(), "heun")])
def test_guidance_of_normals_moves_their_mean_by_the_scale(process, sampler):
    """Predictions of normals with one deviation are linear in the mean, so the mean moves.

    A right mean fails one in 150,000 times but for the error of the sampler, which is allowed
    0.01; the deviation likewise.
    """
    deviation, means, scale, count = 0.5, {0: 1.0, NONE: 0.2}, 2.5, 4_000
    mixtures = {key: Mixture((1.0,), (mean,), (deviation,)) for key, mean in means.items()}

    def network(points, times, classes):
        parts = [
            mixture.noise_of(process) if sampler == "ddpm" else mixture.velocity
            for mixture in mixtures.values()
        ]
        of_class, of_none = (part(points, times) for part in parts)
        return torch.where((classes == NONE).view(-1, 1, 1, 1), of_none, of_class)

    classes = torch.zeros(count, dtype=torch.long)
    generator = torch.Generator().manual_seed(3)
    guided = Guided(network, scale, NONE)
    drawn = draw(guided, process, (1, 1, 1), classes, generator, sampler, steps=100)
    expected = means[NONE] + scale * (means[0] - means[NONE])
    assert abs(drawn.mean() - expected) < ERROR * deviation / count**0.5 + 0.01
    assert abs(drawn.std() - deviation) < ERROR * deviation / (2 * count) ** 0.5 + 0.01
