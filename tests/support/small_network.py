"""A small network with data to fit, for tests of whole trainings."""

import torch


def network(dtype=torch.float64):
    """Return a network, its inputs and its targets; always the same."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2))
    return model.to(dtype), torch.randn(16, 4, dtype=dtype), torch.randn(16, 2, dtype=dtype)
