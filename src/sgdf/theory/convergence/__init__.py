"""Convergence: regret on convex losses, squared gradients on smooth functions, their bounds."""
