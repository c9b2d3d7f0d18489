"""What an experiment can name: optimizers, schedules, and any importable object."""
