"""The loss around and between trained networks: slices, planes and lines."""
