"""Optimizers to compare with that no library has as they were published."""
