"""How gradients, and the directions that optimizers make of them, are distributed."""
