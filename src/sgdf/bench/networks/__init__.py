"""The networks of the paper: three families, each for images of two sizes."""
