"""The monitor shows what theory says of the gain on steady noise."""

import re

import pytest
import torch

import sgdf
from locations import ROOT
from sgdf.theory import steady_gain


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"betas": (0.5, 0.999), "gamma": 0.7},
        {"betas": (0.9, 0.9), "gamma": 1.0},
        {"betas": (0.95, 0.99), "gamma_decay": 0.1},
        {"correction": "none"},
        {"betas": (0.9, 0.0)},
    ],
)
@pytest.mark.parametrize("mean", [0.0, 0.5])
def test_the_monitor_sees_what_theory_says(options, mean):
    """Noise with any mean of the gradient; three looks at 10,000 elements know it to a per cent."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(10_000))
    optimizer = sgdf.SGDF([weight], lr=0.0, **options)
    monitor = sgdf.monitor.attach(optimizer, every=50, max_elements=None)
    looks = []
    for step in range(1, 501):
        weight.grad = torch.randn(10_000) + mean
        optimizer.step()
        if step > 350 and step % 50 == 0:
            looks.append(monitor.latest["total"])
    for name, value in monitor.latest["steady_noise"].items():
        measured = sum(look[name] for look in looks) / len(looks)
        # The mean leaks into the variance and is forgotten slowly.
        assert measured == pytest.approx(value, rel=0.02 + 0.04 * mean), name


def test_the_guide_has_these_numbers():
    page = (ROOT / "docs/guide/not_helping.md").read_text()
    rows = re.findall(r"^\| (0\.\d+) \| (0\.\d+) \| (0\.\d+) \| 0\.", page, re.M)
    assert len(rows) == 5
    for beta1, *shown in rows:
        found = steady_gain(betas=(float(beta1), 0.999))
        assert [f"{value:.3f}" for value in found] == shown


def test_groups_count_by_their_elements():
    def params(size):
        weight = torch.nn.Parameter(torch.ones(size))
        weight.grad = torch.ones(size)
        return [weight]

    groups = [{"params": params(10)}, {"params": params(30), "betas": (0.5, 0.999)}]
    optimizer = sgdf.SGDF(groups, lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    optimizer.step()
    parts = [steady_gain(betas=group["betas"]).mean for group in optimizer.param_groups]
    found = monitor.latest["steady_noise"]["gain_mean"]
    assert found == pytest.approx((10 * parts[0] + 30 * parts[1]) / 40)


def test_without_a_filter_there_is_nothing_to_expect():
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.ones(3)
    optimizer = sgdf.UnifiedMomentum([weight], lr=0.1)
    monitor = sgdf.monitor.attach(optimizer, every=1)
    optimizer.step()
    assert monitor.latest["steady_noise"] == {}
