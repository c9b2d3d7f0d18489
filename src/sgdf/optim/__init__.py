"""The optimizers: one short file each, over one contract, and the paths that a step can take."""
