"""Steps in a forked child take one thread, because a fork copies none of its parent's threads.

OpenMP does not notice a fork. In the child, the next operation that is shared among threads,
torch's or ours, would wait forever for threads that do not exist there.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

_is_forked = False
_has_stepped = False
_parent_has_stepped = False
_UNCHANGED = nullcontext()


def _note_fork() -> None:
    global _is_forked, _has_stepped, _parent_has_stepped
    _parent_has_stepped = _parent_has_stepped or _has_stepped  # or the parent's own parent
    _is_forked, _has_stepped = True, False


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_note_fork)


def usable_threads() -> AbstractContextManager[None]:
    """Return a context for a step: in a forked child, torch and the native step use one thread.

    The results are the same. The first step in a child warns if the parent has stepped: it has
    then used threads, and the child's forward pass can hang.
    """
    global _has_stepped
    is_first, _has_stepped = not _has_stepped, True
    if not _is_forked or torch.get_num_threads() == 1:
        return _UNCHANGED
    if is_first and _parent_has_stepped:
        warnings.warn(
            "this process was forked after a parent had stepped: the optimizer uses one thread, "
            "but other operations of torch on large tensors can hang here; start the process "
            "with the method 'spawn', or call torch.set_num_threads(1) in it first",
            RuntimeWarning,
            stacklevel=4,
        )
    return _one_thread()


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
