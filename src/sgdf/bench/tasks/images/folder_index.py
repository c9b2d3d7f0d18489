"""Which pictures a folder has in its class folders, remembered on disk.

To walk through the 1.28 million files of ImageNet takes minutes. What was found is kept in a file
in the folder or, where that cannot be written to, in the user's cache folder. It counts as long as
the times of the class folders are the same: they change when a file is added, removed or renamed.
A class folder with another time is walked again.

When a class folder is walked, the beginning of every picture is read. So a file that is empty, or
a web page in the place of a picture, is found before anything is trained.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError, StoreError
from ...store import files

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
"""Of pictures, in small or capital letters; other files are passed over."""
FORMATS = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n",),
    "PPM": (b"P2", b"P3", b"P5", b"P6"),
    "BMP": (b"BM",),
    "TIFF": (b"II*\x00", b"II+\x00", b"MM\x00"),
    "WEBP": (b"RIFF",),
    "GIF": (b"GIF8",),
}
"""The formats that are read, whatever the name says, as Pillow calls them, and how they begin."""
BEGINNINGS = tuple(itertools.chain(*FORMATS.values()))
READERS = 8
"""Threads that read the beginnings of files, most of which wait for a disk."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a folder that is changed again surely has another time."""
PATIENCE = 5.0
"""Seconds after which a walk says that it takes its time."""
MOST_NAMED = 10
KEPT = ".sgdf-index.npz"


@dataclass(frozen=True)
class ClassFolder:
    """One class folder.

    Attributes:
        time: when it was last changed, in nanoseconds; 0 if that was too short a time ago to be
            relied on.
        names: of its pictures, in order, as the system has them.
    """

    time: int
    names: NDArray[np.bytes_]


def is_picture(name: str) -> bool:
    """Return whether a file is one, by its name; hidden files are none."""
    return name.lower().endswith(EXTENSIONS) and not name.startswith(".")


def read_index(folder: Path, classes: list[str]) -> list[ClassFolder]:
    """Return what each of the class folders has.

    Raises:
        DataError: names the pictures that are none, or cannot be read.
    """
    known = _kept(folder)
    found: dict[str, ClassFolder] = {}
    bad: list[str] = []
    told_at = time.monotonic() + PATIENCE
    with ThreadPoolExecutor(READERS, thread_name_prefix="indexing") as readers:
        for name in classes:
            changed = (folder / name).stat().st_mtime_ns
            if name in known and known[name].time == changed:
                found[name] = known[name]
                continue
            if time.monotonic() > told_at:
                print(
                    f"Looking through the pictures in {folder}, once", file=sys.stderr, flush=True
                )
                told_at = float("inf")
            now = time.time_ns()
            paths = [os.path.join(name, picture) for picture in _pictures_in(folder / name)]
            sound = readers.map(lambda path: _is_sound(os.path.join(folder, path)), paths)
            amiss = [path for path, is_sound in zip(paths, sound, strict=True) if not is_sound]
            bad += amiss
            if not amiss:
                names = np.array([os.fsencode(os.path.basename(path)) for path in paths], np.bytes_)
                found[name] = ClassFolder(changed if now - changed > SETTLED else 0, names)
    # Also if some are amiss: the others need not be walked again when these are repaired.
    if {name: one.time for name, one in found.items()} != {n: one.time for n, one in known.items()}:
        _keep(folder, found)
    if bad:
        more = f" and {len(bad) - MOST_NAMED:,} more" if len(bad) > MOST_NAMED else ""
        raise DataError(
            f"{folder} has files that are not pictures, or cannot be read: "
            f"{', '.join(bad[:MOST_NAMED])}{more}. Replace them, or remove them"
        )
    return [found[name] for name in classes]


def _pictures_in(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if is_picture(entry.name) and entry.is_file())


def _is_sound(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(8).startswith(BEGINNINGS)
    except OSError:
        return False


def _places(folder: Path) -> Iterator[Path]:
    """Yield the files in which an index may be kept, the best one first."""
    yield folder / KEPT
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    name = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]
    yield caches / "sgdf" / "indices" / f"{name}.npz"


def _kept(folder: Path) -> dict[str, ClassFolder]:
    """Return the index that was kept; nothing if there is none, or it is damaged."""
    for place in _places(folder):
        with contextlib.suppress(Exception):  # whatever is wrong with it, it is made anew
            content = files.read(place)
            if content:
                return _of_bytes(content)
    return {}


def _keep(folder: Path, index: dict[str, ClassFolder]) -> None:
    """Keep an index where that is possible; without it the next one takes as long."""
    content = _as_bytes(index)
    for place in _places(folder):
        with contextlib.suppress(StoreError, OSError):
            if place.parent != folder:
                files.make_folder(place.parent)
            files.write(place, content)
            return


def _as_bytes(index: dict[str, ClassFolder]) -> bytes:
    parts = index.values()
    names = np.concatenate([part.names for part in parts]) if index else np.array([], np.bytes_)
    file = io.BytesIO()
    np.savez(
        file,
        classes=np.array([os.fsencode(name) for name in index], np.bytes_),
        times=np.array([part.time for part in parts], np.int64),
        counts=np.array([len(part.names) for part in parts], np.int64),
        names=names,
    )
    return file.getvalue()


def _of_bytes(content: bytes) -> dict[str, ClassFolder]:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        classes, times, counts, names = (file[n] for n in ("classes", "times", "counts", "names"))
    arrays = {"S": (classes, names), "i": (times, counts)}
    kinds_fit = all(array.dtype.kind == kind for kind in arrays for array in arrays[kind])
    if not kinds_fit or counts.sum() != len(names):
        raise ValueError("this is no index")
    parts = np.split(names, counts.cumsum()[:-1])
    return {
        os.fsdecode(name): ClassFolder(int(changed), part)
        for name, changed, part in zip(classes.tolist(), times.tolist(), parts, strict=True)
    }
