"""Let a process that trains keep the memory it frees, instead of asking the system for it again."""

from __future__ import annotations

import ctypes
import os

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
KEPT_BYTES = 2**30


def keep_freed_memory() -> None:
    """Keep up to a gigabyte of freed memory, where the C library is glibc.

    By default glibc returns freed tensors of some megabytes to the system. The next step gets them
    back page by page, each page cleared: that takes a third of the step of a small LSTM on words
    (benchmarks/bench_loop.py). It is a setting of the whole process, so only programs call this,
    and it does nothing if the user has made the setting by environment variables.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return
    for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        set_option(option, KEPT_BYTES)
