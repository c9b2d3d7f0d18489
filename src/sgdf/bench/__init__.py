"""The bench: compare optimizers fairly on any task, and never lose a run."""
