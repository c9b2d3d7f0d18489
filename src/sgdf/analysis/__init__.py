"""Studies of optimizers, gradients and networks, each a module of its own."""
