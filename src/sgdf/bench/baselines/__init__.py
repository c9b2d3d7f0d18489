"""Optimizers for comparisons that maintained libraries lack, or implement incorrectly."""
