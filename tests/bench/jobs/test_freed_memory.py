"""Programs that train keep the memory they free: the next step needs no new pages."""

import os
import subprocess
import sys

import pytest

STEPS, MEGABYTES = 20, 20
PAGES = MEGABYTES * 2**20 // 4096
PROGRAM = f"""
import ctypes, resource
from sgdf.bench.jobs.freed_memory import keep_freed_memory

keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def step():
    place = libc.malloc({MEGABYTES} << 20)
    ctypes.memset(place, 1, {MEGABYTES} << 20)
    libc.free(place)

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({STEPS}):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(**variables):
    """Return how many pages a program asks for that uses and frees the same memory in steps."""
    rest = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC"))}
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**rest, **variables}, capture_output=True, check=True
    )
    return int(answer.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about glibc")
def test_freed_memory_is_kept_unless_the_user_decides():
    assert new_pages() < PAGES
    # The threshold as glibc has it at first: every step gets its pages anew.
    assert new_pages(MALLOC_MMAP_THRESHOLD_="131072") > (STEPS - 1) * PAGES
