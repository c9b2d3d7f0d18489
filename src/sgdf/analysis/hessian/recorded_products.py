"""Products that are kept on disk, so that what was killed continues where it was.

An algorithm that starts again asks for the same products again, because its random vectors are
drawn from a seed. Products that are in the file are read, and only the others are computed.

The file starts with :data:`FORMAT` and the number of columns, as eight bytes. A record is a
digest of the vector, its product in float64, and a digest of both; all numbers are little-endian.
"""

from __future__ import annotations

import os
import time
import weakref
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import torch
from torch import Tensor

from .arrays import Array, Multiplies, norms
from .probes import rademacher
from .symmetric import SymmetricOperator

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where nothing keeps two processes apart
    fcntl = None  # type: ignore[assignment]

FORMAT = b"sgdf products 1\n"
DIGEST = 16
"""Bytes of a digest."""
SYNC_SECONDS = 10.0
"""A kill loses nothing; a loss of power at most what was computed in this time."""
AGREEMENT = 1e-5
"""By how much a product may differ from the recorded one, relative to its norm: float32 sums
differ by about a tenth of it if the number of threads is another."""


class ForeignProductsError(ValueError):
    """A file has products of another operator; the message names it."""


class RecordedProducts(SymmetricOperator):
    """A symmetric operator whose products are kept in a folder.

    ``top``, ``trace`` and ``density`` on it can be killed at any moment and called again, and
    return the same to the last bit. One product is computed each time that a folder is opened:
    if it differs from the recorded one, the products are of another operator.

    On the disk each product takes 8 bytes for each column. One process at a time can use a folder.

    Args:
        operator: whose products are kept.
        folder: where; it is made if it is missing.

    Raises:
        RuntimeError: if another process, or another object in this one, uses the folder.
        ForeignProductsError: if the folder has products of another operator.
    """

    def __init__(self, operator: Multiplies, folder: str | os.PathLike[str]) -> None:
        super().__init__(operator.shape[0])
        self._operator = operator
        self._header = FORMAT + self.shape[0].to_bytes(8, "little")
        self._length = 2 * DIGEST + 8 * self.shape[0]
        self._path = Path(folder) / "products.bin"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = _open_alone(self._path)
        self.close = weakref.finalize(self, _close, self._file)
        """Close the file; this also happens when the object is no longer used."""
        self._synced = time.monotonic()
        try:
            self._places, self._end = self._read_places()
            self._check_operator()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _multiply(self, columns: Tensor) -> Tensor:
        # One by one, so that a kill loses one of them only.
        products = torch.empty_like(columns)
        for index, vector in enumerate(columns.numpy().T):
            products[:, index] = torch.from_numpy(self._product(vector.copy()))
        return products

    def _product(self, vector: Array) -> Array:
        digest = _digest(_bytes(vector))
        product = self._recorded(digest)
        if product is None:
            product = self._operator @ vector
            self._record(digest, product)
        return product

    def _recorded(self, digest: bytes) -> Array | None:
        """Return the product with the vector of a digest, or None if it is not in the file."""
        if digest not in self._places:
            return None
        self._file.seek(self._places[digest])
        record = self._file.read(self._length)
        content, check = record[:-DIGEST], record[-DIGEST:]
        if check != _digest(content) or not content.startswith(digest):
            return None  # as after a loss of power, which can leave zeros in a file
        return np.frombuffer(content[DIGEST:], "<f8").astype(np.float64)

    def _record(self, digest: bytes, product: Array) -> None:
        content = digest + _bytes(product)
        place = self._places.get(digest, self._end)
        self._file.seek(place)
        self._file.write(content + _digest(content))
        self._file.flush()
        self._places[digest] = place
        self._end = max(self._end, place + self._length)
        if time.monotonic() > self._synced + SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def _read_places(self) -> tuple[dict[bytes, int], int]:
        """Return where the record of each vector is, and where the last one ends."""
        header = self._file.read(len(self._header))
        if not self._header.startswith(header):
            raise ForeignProductsError(
                f"{self._path} has no products of an operator with {self.shape[0]} columns; remove "
                "the file to start anew"
            )
        if len(header) < len(self._header):
            self._file.seek(0)
            self._file.write(self._header)
            self._file.flush()
        size = self._file.seek(0, os.SEEK_END)
        half_written = (size - len(self._header)) % self._length
        end = self._file.truncate(size - half_written)
        places = {}
        for place in range(len(self._header), end, self._length):
            self._file.seek(place)
            places[self._file.read(DIGEST)] = place
        return places, end

    def _check_operator(self) -> None:
        """Compute a product, and compare it with the recorded one."""
        vector = rademacher(self.shape[0], 0, 0)  # the first that a trace asks for, by default
        digest = _digest(_bytes(vector))
        product, recorded = self._operator @ vector, self._recorded(digest)
        if recorded is None:  # then nothing shows of which operator the other products are
            self._places, self._end = {}, self._file.truncate(len(self._header))
            self._record(digest, product)
        elif norms(product - recorded) > AGREEMENT * norms(recorded):
            raise ForeignProductsError(
                f"{self._path} has products of another operator: one of them differs by "
                f"{norms(product - recorded) / norms(recorded):.1e}; remove the file to start anew"
            )


def _bytes(numbers: Array) -> bytes:
    return numbers.astype("<f8").tobytes()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST).digest()


def _open_alone(path: Path) -> BinaryIO:
    """Open a file to read and write it; a missing one is made."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until it is closed
        except OSError as error:
            file.close()
            raise RuntimeError(f"{path} is in use") from error
    return file


def _close(file: BinaryIO) -> None:
    with file:
        os.fsync(file.fileno())
