"""The two networks of a DCGAN (Radford et al., 2016), for square images of several sizes.

A level of the generator doubles the side and halves the channels, from 4 × 4 pixels on; the critic
goes the same way back. Images of half the side have networks without the widest level.
"""

from __future__ import annotations

import itertools

from torch import Tensor, nn

SMALLEST = 4
"""The side where the generator begins and the critic's convolutions end."""
DEVIATION = 0.02
SLOPE = 0.2


def channels_of_levels(channels: int, side: int) -> list[int]:
    """Return the channels behind each convolution of the critic, from large images to small ones.

    Raises:
        ValueError: if no number of halvings leads from the side to 4 × 4 pixels.

    >>> channels_of_levels(64, side=64)
    [64, 128, 256, 512]
    """
    if not is_side(side):
        raise ValueError(f"side = {side}: must be a power of two from {2 * SMALLEST} on")
    levels = (side // SMALLEST).bit_length() - 1
    return [channels * 2**level for level in range(levels)]


def is_side(side: int) -> bool:
    """Return whether images of this side can be drawn."""
    return side >= 2 * SMALLEST and side.bit_count() == 1


class Generator(nn.Module):
    """Make images, with values from -1 to 1, of vectors of normal random numbers.

    Args:
        latent: the length of a vector.
        channels: the channels before the last convolution; every level before it has twice as many.
        side: the side of the images.
        colours: how many numbers a pixel has.
    """

    def __init__(
        self, latent: int = 100, channels: int = 64, side: int = 64, colours: int = 3
    ) -> None:
        super().__init__()
        widths = channels_of_levels(channels, side)[::-1]
        layers = _up(latent, widths[0], stride=1, padding=0)
        for inputs, outputs in itertools.pairwise(widths):
            layers += _up(inputs, outputs)
        layers += [nn.ConvTranspose2d(widths[-1], colours, 4, 2, 1, bias=False), nn.Tanh()]
        self.latent, self.layers = latent, nn.Sequential(*layers)
        initialise(self)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the images of vectors (n, latent)."""
        images: Tensor = self.layers(vectors[:, :, None, None])
        return images


class Critic(nn.Module):
    """Give each image a score, which is to be high for real ones.

    With ``batch_norm`` the score of an image depends on the others in its batch. Without it the
    convolutions that were normalised have biases instead.

    Args:
        channels: the channels of the first convolution; each further one has twice as many.
        side: the side of the images.
        colours: how many numbers a pixel has.
        batch_norm: normalise what comes out of all convolutions but the first.
    """

    def __init__(
        self, channels: int = 64, side: int = 64, colours: int = 3, batch_norm: bool = True
    ) -> None:
        super().__init__()
        widths = channels_of_levels(channels, side)
        layers: list[nn.Module] = [nn.Conv2d(colours, channels, 4, 2, 1, bias=False)]
        for inputs, outputs in itertools.pairwise(widths):
            convolution = nn.Conv2d(inputs, outputs, 4, 2, 1, bias=not batch_norm)
            layers += [nn.LeakyReLU(SLOPE), convolution]
            if batch_norm:
                layers.append(nn.BatchNorm2d(outputs))
        layers += [nn.LeakyReLU(SLOPE), nn.Flatten(), nn.Linear(widths[-1] * SMALLEST**2, 1)]
        self.layers = nn.Sequential(*layers)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return a score for each image, (n,)."""
        scores: Tensor = self.layers(images)
        return scores.squeeze(1)


def _up(inputs: int, outputs: int, stride: int = 2, padding: int = 1) -> list[nn.Module]:
    return [
        nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    ]


def initialise(network: nn.Module) -> None:
    """Draw the weights of convolutions and normalisations from narrow normal distributions.

    Linear layers keep what torch gave them.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.normal_(module.weight, 0.0, DEVIATION)
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1.0, DEVIATION)
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
