"""The transformer of DiT (Peebles & Xie, 2023), which SiT uses too.

Patches of a noisy image are its tokens. Time and class act through adaLN-Zero: they shift and
scale the normalised tokens before each part of a block, and scale what the part adds. All these
numbers are 0 at first, so that each block begins as the identity.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  # torch's own convention

from ...errors import SpecError
from .positions import grid_positions, waves

SIZES = {"s": (384, 12, 6), "b": (768, 12, 12), "l": (1024, 24, 16), "xl": (1152, 28, 16)}
"""The published sizes: hidden width, blocks, heads."""

TIME_WAVES = 256
NORM_EPS = 1e-6
FIRST_DEVIATION = 0.02
"""Of the weights for classes and times, before training."""


def modulated(tokens: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Return tokens (n, token, h) normalised one by one, then scaled by 1 + scale and shifted.

    Args:
        tokens: the tokens of n images.
        shift: what is added to each token of an image (n, h).
        scale: likewise.
    """
    normalised = F.layer_norm(tokens, tokens.shape[-1:], eps=NORM_EPS)
    return normalised * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class TimeEmbedding(nn.Module):
    """Makes vectors of times (n,), by sines and cosines and two layers."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(TIME_WAVES, hidden)
        self.second = nn.Linear(hidden, hidden)

    def forward(self, times: Tensor) -> Tensor:
        """Return the vectors (n, h)."""
        dtype = self.first.weight.dtype
        # In 16 bits, neighbours among a thousand steps would be the same number.
        precise = times.to(torch.promote_types(dtype, torch.float32))
        vectors: Tensor = self.second(F.silu(self.first(waves(precise, TIME_WAVES).to(dtype))))
        return vectors


class Attention(nn.Module):
    """Lets each token look at all tokens of its image, with several heads."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(hidden, 3 * hidden)
        self.mixed = nn.Linear(hidden, hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return what each token sees (n, token, h)."""
        by_head = self.queries_keys_values(tokens).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(queries, keys, values)
        mixed: Tensor = self.mixed(seen.transpose(1, 2).flatten(2))
        return mixed


class Block(nn.Module):
    """Attention, then two layers on each token, both as the condition says."""

    def __init__(self, hidden: int, heads: int, mlp_ratio: float) -> None:
        super().__init__()
        inner = int(hidden * mlp_ratio)
        self.attention = Attention(hidden, heads)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, inner), nn.GELU(approximate="tanh"), nn.Linear(inner, hidden)
        )
        self.modulation = nn.Linear(hidden, 6 * hidden)

    def forward(self, tokens: Tensor, condition: Tensor) -> Tensor:
        """Return the tokens after this block.

        Args:
            tokens: those of n images (n, token, h).
            condition: time and class of each image (n, h).
        """
        numbers = self.modulation(condition).chunk(6, dim=1)
        shift, scale, gate = numbers[:3]
        tokens = tokens + gate.unsqueeze(1) * self.attention(modulated(tokens, shift, scale))
        shift, scale, gate = numbers[3:]
        result: Tensor = tokens + gate.unsqueeze(1) * self.mlp(modulated(tokens, shift, scale))
        return result


class LastLayer(nn.Module):
    """Makes pixels of tokens, as the condition says."""

    def __init__(self, hidden: int, values: int) -> None:
        super().__init__()
        self.modulation = nn.Linear(hidden, 2 * hidden)
        self.pixels = nn.Linear(hidden, values)

    def forward(self, tokens: Tensor, condition: Tensor) -> Tensor:
        """Return the values of each patch (n, token, value)."""
        shift, scale = self.modulation(condition).chunk(2, dim=1)
        values: Tensor = self.pixels(modulated(tokens, shift, scale))
        return values


class DiffusionTransformer(nn.Module):
    """Predicts noise or velocity of noisy images, given the time and the class of each.

    In training, the class of an image is left out at random, so that one network learns to do
    with it and without it. ``no_class``, as a class, leaves it out for certain. Evaluation mode
    leaves out none.

    Args:
        size: the side of the images.
        channels: their colours, or the channels of latents.
        patch: the side of the patches; it divides the size.
        hidden: the width of the tokens; a multiple of four and of the heads.
        blocks: how many blocks there are.
        heads: how many heads attention has.
        classes: how many classes there are.
        mlp_ratio: how many times as wide as a token the layer between the two of a block is.
        class_dropout: the share of images whose class is left out in training.
        learns_variance: whether there are twice as many channels in the output, the second half
            for the variance.

    Raises:
        SpecError: if patch, heads and width do not fit.
    """

    positions: Tensor

    def __init__(
        self,
        size: int,
        channels: int,
        patch: int,
        hidden: int,
        blocks: int,
        heads: int,
        classes: int,
        mlp_ratio: float = 4,
        class_dropout: float = 0.1,
        learns_variance: bool = True,
    ) -> None:
        super().__init__()
        check_fit(size, patch, hidden, heads)
        self.side, self.patch = size // patch, patch
        self.no_class, self.class_dropout = classes, class_dropout
        outputs = 2 * channels if learns_variance else channels
        self.patches = nn.Conv2d(channels, hidden, patch, stride=patch)
        self.time = TimeEmbedding(hidden)
        self.classes = nn.Embedding(classes + 1, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, mlp_ratio) for _ in range(blocks))
        self.last = LastLayer(hidden, patch * patch * outputs)
        # They follow from the sizes, so a checkpoint need not have them.
        self.register_buffer("positions", grid_positions(self.side, hidden), persistent=False)
        self._initialise()

    def forward(self, images: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """Return the prediction (n, C or 2 C, H, W).

        Args:
            images: noisy images (n, C, H, W).
            times: the time of each (n,), a number of any type.
            classes: the class of each (n,); ``no_class`` for none.
        """
        tokens = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        condition = F.silu(self.time(times) + self.classes(self._kept(classes)))
        for block in self.blocks:
            tokens = block(tokens, condition)
        values = self.last(tokens, condition).transpose(1, 2)
        return F.pixel_shuffle(values.unflatten(2, (self.side, self.side)), self.patch)

    def _kept(self, classes: Tensor) -> Tensor:
        """Return the classes, in training without those that are left out."""
        if not self.training:
            return classes
        is_dropped = torch.rand(classes.shape, device=classes.device) < self.class_dropout
        return classes.masked_fill(is_dropped, self.no_class)

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(module.weight.detach().flatten(1))
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        for weight in (self.classes.weight, self.time.first.weight, self.time.second.weight):
            nn.init.normal_(weight, std=FIRST_DEVIATION)
        for part in (*self.blocks, self.last):
            nn.init.zeros_(part.modulation.weight)
        nn.init.zeros_(self.last.pixels.weight)


def check_fit(size: int, patch: int, hidden: int, heads: int) -> None:
    """Refuse sizes that do not fit each other, as ``DiffusionTransformer`` names them.

    Raises:
        SpecError: says which.
    """
    if size % patch:
        raise SpecError(f"patch = {patch}: must divide the side of the images, {size}")
    if hidden % heads or hidden % 4:
        raise SpecError(f"hidden = {hidden}: must be a multiple of 4 and of heads = {heads}")
