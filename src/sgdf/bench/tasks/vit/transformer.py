"""The vision transformer (Dosovitskiy et al., 2021), and the classifier that is tuned.

The patches of an image are its tokens, and one token more stands for the whole of it: what the last
block makes of that one are the image's features. Each block normalises before it attends, and
before its two layers, and adds what comes out to what went in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..diffusion.transformer import Attention
from ..images.normalised import Normalised
from .positions import resized_positions

COLOURS = 3
NORM_EPS = 1e-6
FIRST_DEVIATION = 0.02
"""Of the position embeddings, before training."""
HALVES = (0.5,) * COLOURS
"""Mean and deviation that images are normalised with: colours from -1 to 1."""


@dataclass(frozen=True)
class Size:
    """The size of a vision transformer.

    Attributes:
        patch: the side of the patches.
        hidden: the width of the tokens.
        blocks: how many blocks there are.
        heads: how many heads attention has.
        inner: the width of the layer between the two of a block.
    """

    patch: int
    hidden: int
    blocks: int
    heads: int
    inner: int


SIZES = {
    "vit-b-32": Size(patch=32, hidden=768, blocks=12, heads=12, inner=3072),
    "vit-l-32": Size(patch=32, hidden=1024, blocks=24, heads=16, inner=4096),
    "vit-tiny-4": Size(patch=4, hidden=64, blocks=4, heads=4, inner=128),
}
"""Two published networks, and a small one for images of 32 pixels and more."""


class Block(nn.Module):
    """Attention, then two layers on each token."""

    def __init__(self, size: Size, dropout: float) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self.attention = Attention(size.hidden, size.heads)
        self.before_mlp = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self.mlp = nn.Sequential(
            nn.Linear(size.hidden, size.inner),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(size.inner, size.hidden),
            nn.Dropout(dropout),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the tokens (n, token, h) after this block."""
        tokens = tokens + self.attention(self.before_attention(tokens))
        result: Tensor = tokens + self.mlp(self.before_mlp(tokens))
        return result


class VisionTransformer(nn.Module):
    """Makes features of images.

    Args:
        size: its size.
        side: of the images, a multiple of the side of the patches.
        dropout: the share of numbers that training drops of the embedded patches and within the
            two layers of a block. Attention drops none.
    """

    def __init__(self, size: Size, side: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.size = size
        places = (side // size.patch) ** 2
        self.patches = nn.Conv2d(COLOURS, size.hidden, size.patch, stride=size.patch)
        self.whole = nn.Parameter(torch.zeros(1, 1, size.hidden))
        self.positions = nn.Parameter(torch.empty(1, 1 + places, size.hidden))
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(size, dropout) for _ in range(size.blocks))
        self.norm = nn.LayerNorm(size.hidden, eps=NORM_EPS)
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (n, h) of images (n, 3, side, side)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        whole = self.whole.expand(len(images), -1, -1).to(patches.dtype)
        tokens = self.dropout(torch.cat([whole, patches], dim=1) + self.positions)
        for block in self.blocks:
            tokens = block(tokens)
        features: Tensor = self.norm(tokens[:, 0])
        return features

    def resize(self, side: int) -> None:
        """Take images of another side from now on, with interpolated position embeddings."""
        resized = resized_positions(self.positions.detach(), side // self.size.patch)
        self.positions = nn.Parameter(resized)

    def digest(self) -> str:
        """Return a digest of the weights."""
        content = hashlib.sha256()
        for values in self.state_dict().values():
            content.update(f"{values.dtype} {tuple(values.shape)}".encode())
            flat = values.detach().cpu().contiguous().flatten()
            content.update(flat.view(torch.uint8).numpy().data)
        return content.hexdigest()[:16]

    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.xavier_uniform_(module.weight.detach().flatten(1))
                assert module.bias is not None
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.positions, std=FIRST_DEVIATION)


class Classifier(nn.Module):
    """A vision transformer with one linear layer, which is zero at first, on its features.

    Args:
        backbone: the transformer.
        classes: how many classes there are.
        is_frozen: whether only the head is trained. The backbone is then always in evaluation mode.
    """

    def __init__(self, backbone: VisionTransformer, classes: int, is_frozen: bool = False) -> None:
        super().__init__()
        self.normalised = Normalised(HALVES, HALVES)
        self.backbone = backbone
        self.head = nn.Linear(backbone.size.hidden, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.is_frozen = is_frozen
        if is_frozen:
            backbone.requires_grad_(False)
            backbone.eval()

    def train(self, mode: bool = True) -> Classifier:
        """Set the mode, but not that of a frozen backbone."""
        super().train(mode)
        if self.is_frozen:
            self.backbone.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores of the classes (n, class).

        Args:
            inputs: images as bytes (n, 3, side, side), or their features (n, h).
        """
        scores: Tensor = self.head(self.features(inputs) if inputs.dim() == 4 else inputs)
        return scores

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, h) of images as bytes."""
        features: Tensor = self.backbone(self.normalised(images))
        return features
