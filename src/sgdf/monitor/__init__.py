"""Live statistics of a running optimizer: what the filter does to the gradients.

Monitoring does not change the training by a single bit, and nothing that it meets stops it: the
statistics are computed after a step, from the gradients and the state that it leaves, on a fixed
selection of elements.
"""

from .handle import Monitor, attach

__all__ = ["Monitor", "attach"]
