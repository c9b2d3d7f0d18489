"""The optimizers, one file each; the contract that they share; the paths that a step can take."""
