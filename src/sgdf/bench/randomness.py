"""Every generator of random numbers that a training may draw from, as one thing."""

from __future__ import annotations

import contextlib
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
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


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
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        state["mps"] = torch.mps.get_rng_state()
    return state


def restore(state: dict[str, Any]) -> None:
    """Set all generators to what ``capture`` returned."""
    random.setstate(state["python"])
    kind, keys, *position = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *position))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    if "mps" in state and torch.backends.mps.is_available():
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
