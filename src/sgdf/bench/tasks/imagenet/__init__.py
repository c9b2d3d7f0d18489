"""ImageNet: data, networks and the task."""
