"""CIFAR-10 and CIFAR-100: data, augmentation, networks and tasks."""
