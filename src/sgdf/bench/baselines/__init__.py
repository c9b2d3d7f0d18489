"""Optimizers to compare with that no well-kept library has, or has without a fault."""
