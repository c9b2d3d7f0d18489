"""The tables of the paper as data: its results and its settings."""
