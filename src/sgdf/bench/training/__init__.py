"""How one run trains: the loop, the update, checkpoints, and the result."""
