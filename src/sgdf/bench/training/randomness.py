"""All generators of random numbers that a training may use, handled together."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators, those of accelerators included."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes a hundred times as long
    if _has_cuda():
        torch.cuda.manual_seed_all(seed)
    if _has_mps():
        torch.mps.manual_seed(seed)


# Asked once: every epoch is seeded, and one of a tiny task takes a few milliseconds.
_has_cuda = functools.cache(torch.cuda.is_available)
_has_mps = functools.cache(torch.backends.mps.is_available)


def derived_seed(*parts: int) -> int:
    """Return a seed for one purpose out of a run's seed and numbers that name the purpose.

    >>> derived_seed(0, 1) == derived_seed(0, 2)
    False
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7])


def capture() -> dict[str, Any]:
    """Return the state of all generators, as data that ``weights_only`` loads."""
    kind, keys, *position = np.random.get_state(legacy=True)
    state = {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *position),
        "torch": torch.get_rng_state(),
    }
    if _has_cuda():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if _has_mps():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Set all generators to what ``capture`` returned."""
    random.setstate(state["python"])
    kind, keys, *position = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *position))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and _has_cuda():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "mps" in state and _has_mps():
        torch.mps.set_rng_state(state["mps"])


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from freshly seeded generators, and leave the caller's as they were."""
    state = capture()
    seed_all(seed)
    try:
        yield
    finally:
        restore(state)


@contextlib.contextmanager
def isolated(seed: int, threads: int) -> Iterator[None]:
    """Train with this seed and thread count, and leave the caller's as they were.

    Args:
        seed: of all generators.
        threads: those that torch may use; 0 for as many as it has.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with seeded(seed):
            yield
    finally:
        torch.set_num_threads(before)
