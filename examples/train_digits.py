"""Train a small convolutional network on scikit-learn's digits with SGDF.

It needs scikit-learn, which the ``bench`` extra has: ``pip install '.[bench]'``.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import sgdf


def digits():
    """Return training images and labels, then test images and labels, split once for all."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], torch.tensor(labels)[order]
    return images[:1400], labels[:1400], images[1400:], labels[1400:]


def network():
    """Return two convolutions and a linear layer, about 20,000 weights."""
    convolutions = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1)]
    return nn.Sequential(
        *convolutions, nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(256, 10)
    )


def train(model, optimizer, epochs, data=None, batch_size=64):
    """Train, and yield loss and test accuracy after each epoch."""
    images, labels, test_images, test_labels = data or digits()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        losses = []
        for batch in torch.randperm(len(images)).split(batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        with torch.no_grad():
            accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
        yield sum(losses) / len(losses), accuracy


if __name__ == "__main__":
    torch.manual_seed(0)
    model = network()
    # In place of torch.optim.SGD(lr=0.1, momentum=0.9): 0.1 / (1 - 0.9) is 1.
    optimizer = sgdf.SGDF(model.parameters(), lr=1.0, weight_decay=5e-4)
    for epoch, (loss, accuracy) in enumerate(train(model, optimizer, epochs=20), start=1):
        print(f"epoch {epoch:2}  loss {loss:.4f}  test accuracy {accuracy:.2%}")
