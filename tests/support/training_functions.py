"""Training loops of a user's own, as functions that the bench calls."""

import random

import numpy as np
import torch
from torch import nn

from sgdf.bench.tasks import Metric

CALLS = []
"""The seeds with which ``train`` was called in this process."""


def before_steps():
    """Do nothing; a test may do something instead."""


def fit(make_optimizer, seed, epochs, hidden):
    """Train a small classifier; yield validation and test accuracy after each epoch."""
    noise = torch.Generator().manual_seed(0)
    inputs = torch.randn(160, 4, generator=noise)
    targets = (inputs[:, 0] * inputs[:, 1] > 0).long()
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))
    optimizer = make_optimizer(model.parameters())
    before_steps()
    for _ in range(epochs):
        for start in range(0, 80, 20):
            part = slice(start, start + 20)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs[part]), targets[part]).backward()
            optimizer.step()
        right = (model(inputs).argmax(1) == targets).float()
        yield {
            "validation": {"accuracy": right[80:120].mean()},
            "test": {"accuracy": right[120:].mean()},
        }


def train(make_optimizer, seed, epochs=2, hidden=8):
    """Return the test accuracy after the last epoch."""
    CALLS.append(seed)
    return list(fit(make_optimizer, seed, epochs, hidden))[-1]["test"]


def train_by_epochs(make_optimizer, seed, epochs=3):
    """Yield validation and test accuracy after each epoch."""
    yield from fit(make_optimizer, seed, epochs, 8)


def lose(make_optimizer, seed):
    """Return a metric that is not finite."""
    train(make_optimizer, seed, epochs=1)
    return {"loss": float("nan")}


def earn(make_optimizer, seed):
    """Return a metric whose direction its name does not tell."""
    train(make_optimizer, seed, epochs=1)
    return {"reward": 1.0}


def earn_more(make_optimizer, seed):
    """Return a metric whose direction is declared."""
    return earn(make_optimizer, seed)


earn_more.metric = Metric("reward", larger_is_better=True)


def use_another_optimizer(make_optimizer, seed):
    """Train without the optimizer that is to be compared."""
    train(lambda params: torch.optim.SGD(params, 0.1), seed)
    return {"loss": 1.0}


def return_number(make_optimizer, seed):
    """Return what is no metric by name."""
    train(make_optimizer, seed, epochs=1)
    return 0.5


def mix(make_optimizer, seed):
    """Return metrics by name beside metrics by split."""
    train(make_optimizer, seed, epochs=1)
    return {"test": {"loss": 1.0}, "accuracy": 0.5}


def abbreviate(make_optimizer, seed):
    """Return metrics of splits that the bench does not know."""
    train(make_optimizer, seed, epochs=1)
    return {"val": {"loss": 1.0}}


def name_splits(make_optimizer, seed):
    """Return metrics whose names say their split."""
    train(make_optimizer, seed, epochs=1)
    return {"val_acc": 0.5, "test_acc": 0.4}


def catch_everything(make_optimizer, seed):
    """Catch whatever the loop raises, and return metrics all the same."""
    try:
        return train(make_optimizer, seed)
    except Exception:
        return {"accuracy": 0.5}


def make_twice(make_optimizer, seed):
    """Make an optimizer that is not used."""
    make_optimizer([nn.Parameter(torch.zeros(9))])
    return train(make_optimizer, seed)


def yield_late(make_optimizer, seed):
    """Yield a metric whose direction its name does not tell, for two epochs."""
    for number in range(2):
        train(make_optimizer, seed + number, epochs=1)
        yield {"reward": 1.0}


def beep(make_optimizer, seed):
    """Fail with a text that a terminal would obey."""
    raise ValueError("\x1b[31mred\x07")


def draw(make_optimizer, seed):
    """Draw random numbers from generators that it does not seed; return their sum."""
    weight = nn.Parameter(torch.rand(()) + random.random() + np.random.random())
    drawn = weight.item()
    optimizer = make_optimizer([weight])
    weight.square().backward()
    optimizer.step()
    return {"loss": drawn}


def return_graph(make_optimizer, seed):
    """Return a loss that could still be differentiated."""
    train(make_optimizer, seed, epochs=1)
    return {"loss": nn.Parameter(torch.ones(())) * 2}


def break_down(make_optimizer, seed):
    """Fail."""
    raise ValueError("the disk of the user's is full")


def takes_too_little(make_optimizer):
    """Take no seed."""
