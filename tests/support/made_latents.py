"""Folders of made-up latents, and an autoencoder that stands in for those that diffusers reads."""

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional


def write_latents(folder, latents, flipped=None, labels=None, **facts):
    """Write a folder of latents; without labels the classes are 0, 1, 2, 0, … of three."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "latents.npy", latents)
    if flipped is not None:
        np.save(folder / "flipped.npy", flipped)
    np.save(folder / "classes.npy", np.arange(len(latents)) % 3 if labels is None else labels)
    facts = {"factor": 0.5, "encoder": "made up", "side": 16, "classes": 3, **facts}
    (folder / "latents.json").write_text(json.dumps(facts))
    return folder


class Config(dict):
    """Names and values, as a diffusers network has them."""

    __getattr__ = dict.__getitem__


class MadeAutoencoder(nn.Module):
    """Means are averages of 4 x 4 pixels, in three colours and grey, and deviations half of that.

    Decoding takes the colours, and multiplies them by ten, which is beyond what images can have.
    """

    settings: ClassVar = {
        "scaling_factor": 0.25,
        "latent_channels": 4,
        "block_out_channels": (8, 8, 8),
    }
    missing = ()

    def __init__(self):
        super().__init__()
        self.config = Config(self.settings)
        self.weight = nn.Parameter(torch.tensor(10.0))
        self.encoded, self.decoded = [], []

    @classmethod
    def from_pretrained(cls, folder, **options):
        """Return a network, for which random numbers are drawn, and what was missing."""
        torch.randn(3)
        network = cls().train()
        network.read_with = {"folder": folder, **options}
        return network, {"missing_keys": list(cls.missing)}

    def encode(self, images):
        """Return the Gaussian of latents."""
        self.encoded.append(len(images))
        averages = functional.avg_pool2d(images, 4)
        means = torch.cat([averages, averages.mean(1, keepdim=True)], 1)
        return SimpleNamespace(latent_dist=SimpleNamespace(mean=means, std=means.abs() / 2))

    def decode(self, latents):
        """Return images."""
        self.decoded.append(len(latents))
        enlarged = functional.interpolate(latents[:, :3], scale_factor=4)
        return SimpleNamespace(sample=self.weight * enlarged)


def install(network=MadeAutoencoder, modules=sys.modules):
    """Let diffusers be a module with this autoencoder alone."""
    diffusers = ModuleType("diffusers")
    diffusers.AutoencoderKL = network
    made = {"diffusers": diffusers}
    made |= {name: ModuleType(name) for name in ("safetensors", "safetensors.torch")}
    modules.update(made)


def save_real_autoencoder(folder):
    """Save a small autoencoder of diffusers with random weights, and return it."""
    diffusers = pytest.importorskip("diffusers", reason="needs the extra latents")
    pytest.importorskip("safetensors.torch", reason="needs the extra latents")
    network = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        latent_channels=4,
    )
    network.save_pretrained(folder)
    return network.eval()


def autoencoder_folder(folder):
    """Return a folder that looks like that of an autoencoder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    return folder
