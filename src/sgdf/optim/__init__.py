"""The optimizers; import them from ``sgdf``."""
