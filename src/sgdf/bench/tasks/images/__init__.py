"""What the networks for images have in common."""
