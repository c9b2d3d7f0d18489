"""A shadow filter: it watches the gradients of a training, and takes no part in it.

A shadow filter is a pure function from its state and an observation to an estimate and its next
state. So the same state can be shown many mini-batches, and stays as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

State = Any
"""Whatever a filter keeps of one tensor; None before the first step."""


class Observation(NamedTuple):
    """The noisy gradient of one tensor, as a mini-batch gives it."""

    grad: Tensor
    noise: Tensor | None = None
    """A sample of the noise in ``grad``: of the same variance, and without the signal. Half the
    difference of the gradients of two half batches is one."""


class ShadowFilter(ABC):
    """An estimate of a gradient from the mini-batches so far; each tensor has its own state.

    Attributes:
        name: as reports show it.
        optimizer: the name of the optimizer that steps with it, for its colour; or none.
    """

    name: str
    optimizer: str = ""

    @abstractmethod
    def step(self, state: State, observation: Observation) -> tuple[Tensor, State]:
        """Return the estimate after an observation, and the state for the next; change nothing."""
