"""Pictures of runs: PNG files that any program reads, of which only ours are read again."""

import io
import os
import struct
import zlib

import matplotlib.image
import numpy as np
import pytest

from sgdf.bench.errors import DamagedError, StoreError
from sgdf.bench.store import pictures
from sgdf.bench.store.pictures import Picture, Pictures, decode, encode

pytestmark = pytest.mark.usefixtures("_watchdog")


def noise(height, width, colours):
    """Return random pixels, and the picture of them."""
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, colours), np.uint8)
    return pixels, Picture(height, width, colours, pixels.tobytes())


SHAPES = [(1, 1, 1), (5, 3, 3), (40, 31, 1), (64, 64, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_another_program_reads_what_is_written(shape):
    pixels, picture = noise(*shape)
    found = np.rint(255 * matplotlib.image.imread(io.BytesIO(encode(picture))))
    np.testing.assert_array_equal(found, pixels if shape[2] == 3 else pixels[:, :, 0])


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_written_is_read_again(shape):
    _, picture = noise(*shape)
    assert decode(encode(picture)) == picture


def test_every_changed_byte_is_noticed(tmp_path):
    content, path = encode(noise(3, 4, 3)[1]), tmp_path / "a-000001.png"
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DamagedError, match="is not a picture of a run"):
            pictures.read(path)


def test_every_shortened_file_is_noticed(tmp_path):
    content, path = encode(noise(3, 4, 1)[1]), tmp_path / "a-000001.png"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedError):
            pictures.read(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(DamagedError):
        pictures.read(path)


def made(width, height, rows, depth=8, kind=0):
    """Return a PNG file as anybody may make one."""
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return pictures.SIGNATURE + b"".join(
        struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
        for kind, part in parts
    )


FOREIGN = {
    "another kind of pixels": (made(2, 2, b"\0aa\0aa", kind=4), "another kind"),
    "16 bits": (made(1, 1, b"\0aa", depth=16), "another kind"),
    "a filter": (made(2, 2, b"\0aa\2aa"), "another program"),
    "too few rows": (made(2, 2, b"\0aa"), "another program"),
    "no pixels": (made(0, 2, b""), "0 by 2 pixels"),
    "many pixels": (made(1 << 31, 1 << 31, b"\0"), "2,147,483,648 by 2,147,483,648 pixels"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_pictures_of_other_programs_are_not_read(what):
    content, words = FOREIGN[what]
    with pytest.raises(ValueError, match=words):
        decode(content)


def test_a_picture_that_unpacks_to_more_than_it_says_is_not_unpacked(monkeypatch):
    """A hundred megabytes of zeros have a hundred kilobytes; two pixels are what is read."""
    sizes, decompressobj = [], zlib.decompressobj

    class Counting:
        def __init__(self):
            self.one = decompressobj()

        def decompress(self, packed, most):
            """Remember how much came out."""
            found = self.one.decompress(packed, most)
            sizes.append(len(found))
            return found

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    decode(made(1, 2, bytes(10_000_000)))
    assert sizes == [4]


# In the folder of a run


def test_pictures_are_known_by_series_and_epoch(tmp_path):
    kept = Pictures(tmp_path / "pictures")
    assert kept.known() == {}
    for series, epoch in (("b-2", 10), ("a", 3), ("b-2", 9), ("a", 1_000_000)):
        kept.write(series, epoch, noise(2, 2, 1)[1])
    for name in ("a.png", "a-1.png", "a-0000001x.png", "..-000001.png", "a b-000001.png"):
        (kept.path / name).write_bytes(b"")
    known = kept.known()
    assert [(series, list(files)) for series, files in known.items()] == [
        ("a", [3, 1_000_000]),
        ("b-2", [9, 10]),
    ]
    assert known["a"][3].name == "a-000003.png"
    assert pictures.read(known["b-2"][9]) == noise(2, 2, 1)[1]


def test_of_a_long_series_every_second_picture_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_PICTURES", 6)
    kept = Pictures(tmp_path / "pictures")
    for epoch in range(1, 8):
        kept.write("a", epoch, noise(1, 1, 1)[1])
        kept.write("b", 1, noise(1, 1, 1)[1])
    assert {series: list(files) for series, files in kept.known().items()} == {
        "a": [1, 3, 5, 7],
        "b": [1],
    }


def test_a_picture_that_is_too_large_is_not_written(tmp_path, monkeypatch):
    kept = Pictures(tmp_path / "pictures")
    monkeypatch.setattr(pictures, "LARGEST", 1000)
    with pytest.raises(StoreError, match=r"20 by 30 pixels, 1,[0-9]+ bytes as PNG, is too"):
        kept.write("a", 1, noise(30, 20, 3)[1])
    monkeypatch.setattr(pictures, "MOST_PIXELS", 10)
    monkeypatch.setattr(pictures, "encode", lambda picture: pytest.fail("slow"))
    with pytest.raises(StoreError, match=r"4 by 3 pixels is too .* allowed: 10 pixels"):
        kept.write("a", 1, noise(3, 4, 1)[1])
    assert kept.known() == {}


def test_nothing_is_written_or_read_through_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a-000001.png").write_bytes(encode(noise(1, 1, 1)[1]))
    (tmp_path / "elsewhere" / ".tmp-x").write_bytes(b"")
    kept = Pictures(tmp_path / "pictures")
    kept.path.symlink_to("elsewhere")
    with pytest.raises(StoreError, match="nothing is written through it"):
        kept.write("a", 2, noise(1, 1, 1)[1])
    assert kept.known() == {}
    kept.remove_leftovers()
    assert len(os.listdir(tmp_path / "elsewhere")) == 2


def test_what_a_killed_process_left_is_removed(tmp_path):
    kept = Pictures(tmp_path / "pictures")
    kept.write("a", 1, noise(1, 1, 1)[1])
    (kept.path / ".tmp-x").write_bytes(b"half")
    kept.remove_leftovers()
    assert os.listdir(kept.path) == ["a-000001.png"]
