"""How many runs get done: alone, by worker processes, or on a Ray cluster."""
