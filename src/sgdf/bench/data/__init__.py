"""Data sets that have to be fetched: where they are kept, how they are checked and read."""
