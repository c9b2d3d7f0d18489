"""The search for the best settings, with an equal budget for each optimizer."""
