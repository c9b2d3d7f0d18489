"""Batches of pictures that threads decode ahead of their use.

Pillow decodes and resizes without Python's lock, so threads do it side by side, and there is
nothing to copy between processes. Each picture goes to its own place in its batch: what comes out
does not depend on how many threads there are.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from .pictures import Bytes

AHEAD = 2
"""Batches that are decoded while another one is used; so many are in memory besides it."""
PORTION = 4
"""Pictures that a thread takes at once."""

PROCESSES = "LOCAL_WORLD_SIZE"
"""Set by torchrun: how many processes it has started on this machine."""

Decode = Callable[[int], Bytes]
"""Returns one of the pictures of a batch, (side, side, 3)."""


def decoding_threads() -> int:
    """Return how many threads decode for this process.

    As many as torch has, which ``train.threads`` says, or the share of a worker beside others. But
    torchrun gives torch one thread, since the rest is done on GPUs: there each process has an equal
    share of the cores of its machine that it may use, at least one thread.
    """
    processes = os.environ.get(PROCESSES)
    if processes is None:
        return torch.get_num_threads()
    return max(1, _cores() // int(processes))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS, where no process is kept to some of them


def decoded(batches: Iterable[tuple[int, Decode]], side: int, threads: int) -> Generator[Tensor]:
    """Yield batches of pictures as bytes (n, 3, side, side), laid out channels last.

    When the iterator is closed, or an error comes out of it, its threads have ended.

    Args:
        batches: for each batch the number of its pictures, and what decodes one by its number.
        side: of the pictures.
        threads: how many decode.

    Raises:
        DataError: of the first picture of a batch that cannot be decoded.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="decoding")
    waiting: deque[tuple[Tensor, list[Future[None]]]] = deque()
    try:
        for count, decode in batches:
            pictures = torch.empty((count, side, side, 3), dtype=torch.uint8)
            portions = [range(n, min(n + PORTION, count)) for n in range(0, count, PORTION)]
            waiting.append((pictures, [pool.submit(_fill, pictures, decode, p) for p in portions]))
            if len(waiting) > AHEAD:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _fill(pictures: Tensor, decode: Decode, numbers: range) -> None:
    places = pictures.numpy()
    for number in numbers:
        places[number] = decode(number)


def _finished(pictures: Tensor, portions: list[Future[None]]) -> Tensor:
    for portion in portions:
        portion.result()
    return pictures.permute(0, 3, 1, 2)
