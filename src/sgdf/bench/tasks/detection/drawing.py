"""Pictures of what a detector has found, small enough that a report shows them whole."""

from __future__ import annotations

import colorsys
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .boxes import Found

LONGEST = 192
"""Pixels of the longer side of a picture: a report shows larger ones in part."""
SURE = 0.5
"""The score from which on a detection is drawn."""
LINE = 14
"""Pixels of the height of a line of text."""
LARGE_FIRST = (0.0, 0.55, 0.3)
"""Hues of the first classes, which a small data set needs no more of: red, blue, green."""


def draw(pixels: Tensor, found: Found, names: Sequence[str]) -> Tensor:
    """Return a photograph with boxes around what was surely found, as bytes (height, width, 3).

    Below it stands how many things of each class that is, in the colour of the class.

    Args:
        pixels: bytes (3, height, width).
        found: what was found in it, in the same pixels.
        names: those of the classes.
    """
    from PIL import Image, ImageDraw

    photograph = Image.fromarray(pixels.permute(1, 2, 0).cpu().numpy())
    width, height = photograph.size
    factor = min(1.0, LONGEST / width, (LONGEST - LINE) / height)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    photograph = photograph.resize(size, Image.Resampling.BILINEAR)
    picture = Image.new("RGB", (size[0], size[1] + LINE), "white")
    picture.paste(photograph)
    pen = ImageDraw.Draw(picture)
    sure = (found.scores > SURE).cpu()
    boxes = (found.boxes.cpu()[sure] * factor).tolist()
    classes = found.classes.cpu()[sure].tolist()
    for (left, top, right, bottom), number in zip(boxes, classes, strict=True):
        ends = (left, top, max(left, min(right, size[0] - 1)), max(top, min(bottom, size[1] - 1)))
        pen.rectangle(ends, outline=colour(number - 1), width=2 if max(size) > 100 else 1)
    place = 1.0
    for number, count in sorted(Counter(classes).items()):
        text = f"{count} {names[number - 1]}"
        pen.text((place, size[1] + 1), text, fill=colour(number - 1))
        place += pen.textlength(text) + 6
    return torch.from_numpy(np.array(picture))


def colour(number: int) -> tuple[int, int, int]:
    """Return the colour of a class, counted from 0; each is far from those before it.

    >>> colour(0), colour(1) == colour(2)
    ((217, 33, 33), False)
    """
    golden = 0.618034
    hue = LARGE_FIRST[number] if number < len(LARGE_FIRST) else number * golden % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, 0.85 if number % 2 == 0 else 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)
