"""Pictures that a run shows at its evaluations: PNG files, written and read without a library.

A results folder may come from anywhere. So a picture is read only if it is made as the pictures
here are: rows of bytes without a filter, of a size that is known before they are unpacked.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from ..errors import DamagedError, StoreError
from . import files

SERIES = re.compile(r"[A-Za-z0-9-]{1,40}")
PICTURE = re.compile(rf"({SERIES.pattern})-(\d{{6,9}})\.png")
LARGEST = 4 << 20
"""Bytes of the largest file."""
MOST_PIXELS = 4_000_000
MOST_PICTURES = 128
"""Of a series, in the folder of a run."""
SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, COLOUR = 0, 2
"""The codes of PNG for the two kinds of pixels."""


class Picture(NamedTuple):
    """A picture: rows of pixels from the top, with one byte each (grey) or three."""

    height: int
    width: int
    colours: int
    pixels: bytes


class Pictures:
    """The pictures of a run, in files ``SERIES-EPOCH.png``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, series: str, epoch: int, picture: Picture) -> None:
        """Write a picture; where a series has too many, every second one is removed.

        Raises:
            StoreError: if it is too large, or cannot be written.
        """
        pixels = picture.height * picture.width
        content = encode(picture) if pixels <= MOST_PIXELS else b""  # which would take a second
        if not 0 < len(content) <= LARGEST:
            size = f", {len(content):,} bytes as PNG," if content else ""
            raise StoreError(
                f"a picture of {picture.width:,} by {picture.height:,} pixels{size} is too large; "
                f"allowed: {MOST_PIXELS:,} pixels and {LARGEST:,} bytes"
            )
        if self.path.is_symlink():
            raise StoreError(f"{self.path} is a link: nothing is written through it")
        with files.store_errors(self.path):
            self.path.mkdir(exist_ok=True)
        files.write(self.path / f"{series}-{epoch:06}.png", content)
        known = list(self.known().get(series, {}).values())
        if len(known) > MOST_PICTURES:
            for path in known[1:-1:2]:  # the first and the last stay
                files.remove(path)

    def remove_leftovers(self) -> None:
        """Remove what killed processes left unfinished; only the owner of the run may."""
        if not self.path.is_symlink():
            files.remove_leftovers(self.path)

    def known(self) -> dict[str, dict[int, Path]]:
        """Return the files by series and by epoch, both in order; a link is not followed."""
        found: dict[str, dict[int, Path]] = {}
        try:
            names = [] if self.path.is_symlink() else sorted(os.listdir(self.path))
        except OSError:  # pictures are a copy for people: without them all else counts the same
            names = []
        for name in filter(None, map(PICTURE.fullmatch, names)):
            found.setdefault(name[1], {})[int(name[2])] = self.path / name[0]
        return {series: dict(sorted(found[series].items())) for series in sorted(found)}


def read(path: Path) -> Picture:
    """Return the picture in a file.

    Raises:
        DamagedError: if it is not a picture as they are written here.
        StoreError: if it cannot be read.
    """
    try:
        return decode(files.read(path, most=LARGEST))
    except (ValueError, struct.error, zlib.error) as error:
        raise DamagedError(f"{path} is not a picture of a run: {error}") from error


def encode(picture: Picture) -> bytes:
    """Return a picture as the content of a PNG file."""
    height, width, colours, pixels = picture
    row = width * colours
    # Each row begins with the number of its filter, of which 0 is none.
    rows = b"".join(b"\0" + pixels[i : i + row] for i in range(0, height * row, row))
    head = struct.pack(">IIBBBBB", width, height, 8, COLOUR if colours == 3 else GREY, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in parts)


def decode(content: bytes) -> Picture:
    """Return the picture that ``encode`` has made a content of.

    Raises:
        ValueError: if it is anything else; or ``struct.error``, or ``zlib.error``.
    """
    start, size = len(SIGNATURE), 13
    head = content[start + 8 : start + 8 + size]
    width, height, depth, kind, *ways = struct.unpack(">IIBBBBB", head)
    if (depth, *ways) != (8, 0, 0, 0) or kind not in (GREY, COLOUR):
        raise ValueError("it has another kind of pixels")
    if not 0 < width * height <= MOST_PIXELS:
        raise ValueError(f"it has {width:,} by {height:,} pixels")
    colours = 3 if kind == COLOUR else 1
    row = 1 + width * colours
    packed = content[start + size + 20 : -16]
    rows = zlib.decompressobj().decompress(packed, height * row)
    pixels = b"".join(rows[i + 1 : i + row] for i in range(0, len(rows), row))
    picture = Picture(height, width, colours, pixels)
    parts = (_chunk(b"IHDR", head), _chunk(b"IDAT", packed), _chunk(b"IEND", b""))
    if content != SIGNATURE + b"".join(parts) or len(rows) != height * row or any(rows[::row]):
        raise ValueError("it is damaged, or was made by another program")
    return picture


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
