"""The pictures that runs have shown: a row for each setting, a column for each of some epochs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from ...present.plots import Drawing, Sheet, mark, shorten
from ...present.styles import Style
from ...present.words import listed
from ..errors import StoreError
from ..store import pictures
from ..store.run_folder import RunFolder
from .findings import Problem, RunRecord, Setting
from .styled_settings import styled_settings

COLUMNS = 4
MOST_ROWS = 24
WHOLE = 192
"""Pixels of the longest side of a picture that is shown as a whole; else its upper left quarter."""
FINEST = 264
"""Pixels of the longest side that is not made coarser: more would only make the page larger."""
SIDE, LABEL, GAP, TITLE = 1.5, 1.2, 0.08, 0.22
"""In inches: a picture, the names beside the rows, and what is between and above pictures."""
ABOUT = (
    "Pictures that the runs with seed {seeds} have shown: of each setting the run with its first "
    "seed, never the best one. Evaluations draw the same random numbers at all epochs, and within "
    "a seed for all settings."
)


class Row(NamedTuple):
    """The pictures of one series of a run, by epoch."""

    setting: Setting
    run: RunRecord
    series: str
    shown: dict[int, np.ndarray]


def sample_pictures(problem: Problem, by_name: dict[str, Style]) -> tuple[str, Drawing | None]:
    """Return what the pictures are in words, and the figure; None if no run has any."""
    found = [row for setting, _ in styled_settings(problem, by_name) for row in _rows(setting)]
    rows = sorted(found, key=lambda row: row.series)[:MOST_ROWS]
    if not rows:
        return "", None
    sheet = Sheet(len(rows) * COLUMNS, SIDE + GAP, SIDE + GAP + TITLE, [], COLUMNS, beside=LABEL)
    assert sheet.beside is not None
    sheet.beside.remove()  # the names are on the other side
    _place(sheet)
    several = len({row.series for row in rows}) > 1
    for number, row in enumerate(rows):
        panels = sheet.panels[number * COLUMNS : (number + 1) * COLUMNS]
        panels[0].set_ylabel(
            _label(row, several), fontsize=7.5, rotation=0, ha="right", va="center"
        )
        for panel, (epoch, pixels) in zip(panels, row.shown.items(), strict=False):
            # Of the colours as they are, and every pixel with sharp edges.
            panel.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="none")
            panel.set_title(f"epoch {epoch:,}", fontsize=8, pad=3)
        for panel in panels:
            _strip(panel)
            mark(row.setting.optimizer, panel)
    seeds = sorted({row.run.seed for row in rows})
    about = ABOUT.format(seeds=listed([str(seed) for seed in seeds], most=5))
    if len(rows) < len(found):
        about += f" {len(rows)} of {len(found)} rows are drawn."
    return about, sheet.figure


def _rows(setting: Setting) -> list[Row]:
    """Return a row for each series of the first finished run of a setting that has pictures."""
    for run in setting.finished:  # ordered by seed
        known = RunFolder(run.folder).pictures.known()
        rows = [Row(setting, run, series, _shown(files)) for series, files in known.items()]
        rows = [row for row in rows if row.shown]
        if rows:
            return rows
    return []


def _shown(files: dict[int, Path]) -> dict[int, np.ndarray]:
    """Return the pixels at some epochs; a picture that is damaged or too large is left out."""
    shown = {}
    for epoch in spread(list(files)):
        try:
            shown[epoch] = _visible_part(pictures.read(files[epoch]))
        except StoreError:  # the run counts all the same
            continue
    return shown


def spread(epochs: Sequence[int], most: int = COLUMNS) -> list[int]:
    """Return the epochs nearest to an even spacing, the last among them.

    >>> spread([1, 2, 3]), spread(range(5, 101, 5))
    ([1, 2, 3], [25, 50, 75, 100])
    """
    if len(epochs) <= most:
        return list(epochs)
    wanted = [epochs[-1] * (column + 1) / most for column in range(most)]
    nearest = (min(epochs, key=lambda epoch: abs(epoch - place)) for place in wanted)
    return list(dict.fromkeys(nearest))


def _visible_part(picture: pictures.Picture) -> np.ndarray:
    """Return a picture, or its upper left quarter if it has too many pixels to be seen."""
    shape = (picture.height, picture.width, picture.colours)
    pixels = np.frombuffer(picture.pixels, np.uint8).reshape(shape)
    if max(shape) > WHOLE:
        pixels = pixels[: -(-shape[0] // 2), : -(-shape[1] // 2)]
    block = -(-max(pixels.shape) // FINEST)
    if block > 1:
        pixels = _coarser(pixels, block)
    return pixels[:, :, 0] if picture.colours == 1 else pixels


def _coarser(pixels: np.ndarray, block: int) -> np.ndarray:
    """Return the means over square blocks of pixels; what does not fill a block is cut off."""
    high, wide = (max(1, side // block) for side in pixels.shape[:2])
    tall, broad = (min(block, side) for side in pixels.shape[:2])
    whole = pixels[: high * tall, : wide * broad]
    blocks = whole.reshape(high, tall, wide, broad, -1)
    return np.asarray(blocks.mean(axis=(1, 3)).round().astype(np.uint8))


def _label(row: Row, several: bool) -> str:
    name = shorten(f"{row.setting.name}{f', {row.series}' if several else ''}", 64)
    return "\n".join([*textwrap.wrap(name, 17), f"seed {row.run.seed}"])


def _place(sheet: Sheet) -> None:
    """Put the pictures close together, to the right of the names."""
    across, tall = sheet.figure.get_size_inches()
    for number, panel in enumerate(sheet.panels):
        left = LABEL + number % COLUMNS * (SIDE + GAP)
        bottom = sheet.cells[number][1] + GAP / 2.0 / tall
        panel.set_position((left / across, bottom, SIDE / across, SIDE / tall))


def _strip(panel: Axes) -> None:
    """Leave of a panel nothing but its picture, its title and the name beside it."""
    panel.set(xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    panel.patch.set_visible(False)
