"""Small networks with batches, and their dense Hessian by other means."""

import torch
from torch import nn
from torch.func import functional_call


class Tied(nn.Module):
    """A network that uses the weights of its first layer in its last one again."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.last = nn.Linear(4, 5, bias=False)
        self.last.weight = self.first.weight

    def forward(self, inputs):
        """Return scores of 5 classes."""
        return self.last(torch.tanh(self.first(inputs)) @ self.first.weight)


def mlp():
    """Return a network with two layers."""
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def convolution():
    """Return a convolution with BatchNorm, which has seen data."""
    layers = [nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.Softplus(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(12, 3))
    model(3 * torch.randn(8, 1, 4, 4) + 1)
    return model


SHAPES = {mlp: (4,), convolution: (1, 4, 4), Tied: (4,)}


def make_problem(network, dtype=torch.float64, sizes=(5, 3)):
    """Return a network and batches of these sizes; always the same."""
    torch.manual_seed(0)
    model = network().to(dtype)
    batches = [
        (torch.randn(size, *SHAPES[network], dtype=dtype), torch.randint(3, (size,)))
        for size in sizes
    ]
    return model, batches


def cross_entropy(model, batch):
    """Return the mean loss of a batch."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def dense_hessian(model, batches):
    """Return the Hessian of the mean loss over all examples, in the mode that the model is in."""
    params = dict(model.named_parameters())
    inputs, targets = (torch.cat(tensors) for tensors in zip(*batches, strict=True))

    def loss(flat):
        parts = flat.split([param.numel() for param in params.values()])
        own = {
            name: part.view_as(param)
            for (name, param), part in zip(params.items(), parts, strict=True)
        }
        return nn.functional.cross_entropy(functional_call(model, own, (inputs,)), targets)

    flat = torch.cat([param.detach().reshape(-1) for param in params.values()])
    return torch.autograd.functional.hessian(loss, flat).numpy()
