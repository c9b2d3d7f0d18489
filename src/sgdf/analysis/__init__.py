"""Studies of optimizers, gradients and networks, on runs of the bench or on any model."""
