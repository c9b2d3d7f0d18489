"""ImageNet: the networks of the paper at full size."""
