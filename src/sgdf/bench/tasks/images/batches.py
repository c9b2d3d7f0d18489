"""The batches of one epoch over pictures on disk, and those of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

import torch
from torch import Tensor

from ..supervised import Pair, ShuffledBatches
from .crops import PositionNumbers
from .decoding import Decode, decoded, decoding_threads
from .folders import ClassFolders
from .pictures import Bytes, CentralPicture, TrainingPicture


class PictureBatches(ShuffledBatches):
    """The training pictures of an epoch in a new order, each a random piece.

    The order and a seed are drawn at once from the epoch's generator, and everything else depends
    on the seed and on a picture's position in the order. So batches can be skipped, and batches of
    another size have the same pieces.

    Args:
        data: the folder.
        rows: which of its pictures are trained on.
        batch_size: pictures in a batch; the last one may have fewer.
        order: where the random numbers come from.
        picture: what is made of a file.
        threads: how many decode; if it is None, as many as ``decoding_threads`` says.
    """

    def __init__(
        self,
        data: ClassFolders,
        rows: Tensor,
        batch_size: int,
        order: torch.Generator,
        picture: TrainingPicture,
        threads: int | None = None,
    ) -> None:
        self.data, self.picture, self.threads = data, picture, threads
        shuffled = rows[torch.randperm(len(rows), generator=order)]
        self.numbers = PositionNumbers(order)
        firsts = range(0, len(rows), batch_size)
        self.chunks: Sequence[tuple[int, Tensor]] = list(
            zip(firsts, torch.split(shuffled, batch_size), strict=True)
        )

    def __iter__(self) -> Iterator[Pair]:
        asked = ((len(rows), self._decoder(first, rows)) for first, rows in self.chunks)
        threads = self.threads or decoding_threads()
        with closing(decoded(asked, self.picture.side, threads)) as pictures:
            for batch, (_, rows) in zip(pictures, self.chunks, strict=True):
                yield batch, self.data.targets[rows]

    def _decoder(self, first: int, rows: Tensor) -> Decode:
        numbers = self.numbers.of(first, len(rows))
        return lambda n: self.picture(self.data.path(int(rows[n])), numbers[n])


def central_batches(
    data: ClassFolders,
    rows: Tensor,
    batch_size: int,
    picture: CentralPicture,
    threads: int | None = None,
) -> Iterator[Pair]:
    """Yield the centres of pictures in batches, and their classes."""
    chunks = torch.split(rows, batch_size)
    asked = ((len(chunk), partial(_centre, data, chunk, picture)) for chunk in chunks)
    with closing(decoded(asked, picture.side, threads or decoding_threads())) as pictures:
        for batch, chunk in zip(pictures, chunks, strict=True):
            yield batch, data.targets[chunk]


def _centre(data: ClassFolders, rows: Tensor, picture: CentralPicture, number: int) -> Bytes:
    return picture(data.path(int(rows[number])))
