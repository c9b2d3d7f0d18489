"""Steps in a forked child take one thread, because a fork copies none of its parent's threads.

OpenMP does not notice a fork. In the child, the next operation that is shared among threads,
torch's or ours, would wait forever for threads that do not exist there.
"""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager, nullcontext

import torch

_has_stepped = False
_parent_has_stepped = False


class _OneThread(AbstractContextManager[None]):
    """Lets torch and the native step use one thread in a forked child; the results are the same.

    The first step warns if a parent has stepped: it has then used threads, and the child's forward
    pass can hang.
    """

    def __init__(self) -> None:
        self.before: list[int] = []
        self.warns = _parent_has_stepped

    def __enter__(self) -> None:
        threads = torch.get_num_threads()
        if self.warns and threads > 1:
            self.warns = False
            warnings.warn(  # which may raise, so nothing is changed before it
                "this process was forked after a parent had stepped: the optimizer uses one "
                "thread, but other operations of torch on large tensors can hang here; start the "
                "process with the method 'spawn', or call torch.set_num_threads(1) in it first",
                RuntimeWarning,
                stacklevel=4,
            )
        self.before.append(threads)
        if threads > 1:
            torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        threads = self.before.pop()
        if threads > 1:
            torch.set_num_threads(threads)


usable_threads: AbstractContextManager[None] = nullcontext()
"""The context of a step. It costs nothing but in a forked child, where another takes its place."""


def note_step() -> None:
    """Remember that this process has stepped: its threads exist from then on."""
    global _has_stepped
    _has_stepped = True


def _note_fork() -> None:
    global usable_threads, _has_stepped, _parent_has_stepped
    _parent_has_stepped = _parent_has_stepped or _has_stepped  # or the parent's own parent
    _has_stepped = False
    usable_threads = _OneThread()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_note_fork)
