"""Gradient sequences of an adversary who knows the filter's state, for hypothesis."""

import torch
from hypothesis import strategies

from sgdf.theory import Descent

MOVES = strategies.lists(
    strategies.one_of(
        strategies.floats(-1.0, 1.0),
        strategies.sampled_from([-1.0, 1.0, 0.0, 1e-9, -1e-5]),
        # A gradient at the running mean, or close to it, lets the residual variance decay.
        strategies.tuples(strategies.just("mean"), strategies.sampled_from([0.0, 1e-6, -1e-3])),
    ),
    min_size=2,
    max_size=30,
)
"""Numbers between −1 and 1, or an offset from the running mean."""


def descents(powers=(0.0, 0.01, 0.5, 1.0, 3.0, float("inf")), lowest=0.0):
    """Return options from all corners of their ranges; betas and ε are not below ``lowest``."""
    rates, small = [0.3, 0.9, 0.99], [1e-8, 1e-2]
    return strategies.builds(
        Descent,
        lr=strategies.sampled_from([0.05, 0.5]),
        schedule=strategies.sampled_from(["step", "horizon"]),
        gamma=strategies.sampled_from(powers),
        gamma_decay=strategies.sampled_from([0.0, 0.5, 1.0]),
        betas=strategies.tuples(
            strategies.sampled_from([lowest, *rates]),
            strategies.sampled_from([lowest, 0.5, 0.999]),
        ),
        eps=strategies.sampled_from([lowest, *small]),
    )


def filtered_moves(moves, size, descent):
    """Return gradients of at most ``size``, and what the filter makes of each."""
    mean = var = torch.zeros(1, dtype=torch.float64)
    gradients, outputs = [], []
    for step, move in enumerate(moves, start=1):
        gradient = mean + size * move[1] if isinstance(move, tuple) else torch.full_like(mean, move)
        if not isinstance(move, tuple):
            gradient = size * gradient
        gradient = gradient.clamp(-size, size)
        out = descent.filtered(gradient, mean, var, step)
        mean, var = out.mean, out.var
        gradients.append(gradient)
        outputs.append(out)
    return torch.cat(gradients), outputs
