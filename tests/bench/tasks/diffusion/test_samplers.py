"""The samplers, on mixtures of normals for which the perfect network is a formula."""

import itertools
import math

import pytest
import torch

from normal_mixture import Mixture
from sgdf.bench.tasks.diffusion.ddpm import Diffusion
from sgdf.bench.tasks.diffusion.samplers import ancestral, dopri5, euler_maruyama, heun

MIXTURE = Mixture((0.3, 0.5, 0.2), (-2.0, 0.5, 2.0), (0.3, 0.4, 0.2))
NORMAL = Mixture((1.0,), (1.5,), (0.3,))
CHAIN = Diffusion().respaced(250)


def generator(seed=1):
    return torch.Generator().manual_seed(seed)


def noise(count, dtype=torch.float32):
    return torch.randn(count, 1, generator=generator(0)).to(dtype)


def by_ddpm(mixture, start, seed=1, **options):
    return ancestral(mixture.noise_of(CHAIN), CHAIN, start, generator(seed), **options)


def by_heun(mixture, start, seed=1, steps=25, **options):
    return heun(mixture.velocity, start, steps, **options)


def by_dopri5(mixture, start, seed=1, **options):
    return dopri5(mixture.velocity, start, **options)


def by_sde(mixture, start, seed=1, **options):
    return euler_maruyama(mixture.velocity, start, generator(seed), **options)


EVERY = {"ddpm": by_ddpm, "heun": by_heun, "dopri5": by_dopri5, "sde": by_sde}
RANDOM = ("ddpm", "sde")
each = pytest.mark.parametrize("name", EVERY)


# Where they lead


@each
def test_samplers_draw_from_the_mixture(name):
    """A perfect sampler fails one in 150,000 times (Dvoretzky, Kiefer, Wolfowitz, Massart).

    The samplers' own error is allowed to be 0.006; with half a million numbers it was 0.0048 for
    ddpm, 0.0016 for heun, 0.0024 for dopri5 and 0.0030 for sde.
    """
    count = 10_000
    chance = math.sqrt(math.log(2 * 150_000) / (2 * count))
    assert MIXTURE.gap(EVERY[name](MIXTURE, noise(count))) < chance + 0.006


@pytest.mark.parametrize("name", ["heun", "dopri5"])
def test_velocities_carry_evenly_spread_noise_to_the_mixture(name):
    """Without chance: numbers at all quantiles. Their distance is 0.0014 without any error."""
    shares = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    start = torch.special.ndtri(shares).view(-1, 1)
    assert MIXTURE.distance(EVERY[name](MIXTURE, start)) < 0.003


def test_the_error_of_heun_falls_with_the_square_of_the_steps():
    start = noise(100, torch.float64)
    exact = NORMAL.means[0] + NORMAL.deviations[0] * start  # the flow of a normal is linear
    errors = [(by_heun(NORMAL, start, steps=n) - exact).abs().mean().item() for n in (40, 80, 160)]
    for coarse, fine in itertools.pairwise(errors):
        assert math.log2(coarse / fine) == pytest.approx(2, abs=0.15)
    assert errors[-1] < 1e-4


def test_dopri5_is_as_near_as_it_is_asked_to_be():
    start = noise(100, torch.float64)
    exact = NORMAL.means[0] + NORMAL.deviations[0] * start
    for tolerance in (1e-3, 1e-6, 1e-9):
        found = dopri5(NORMAL.velocity, start, rtol=tolerance, atol=tolerance)
        assert (found - exact).abs().max() < 10 * tolerance


def test_the_limit_of_clipping_holds_for_the_image_at_the_end():
    drawn = by_ddpm(MIXTURE, noise(200), clip=1.0)
    assert drawn.abs().max() == 1
    assert by_ddpm(MIXTURE, noise(200)).abs().max() > 2


@pytest.mark.parametrize(("choice", "table"), [(-1.0, "posterior_variance"), (1.0, "betas")])
def test_ddpm_adds_noise_with_the_variance_that_the_network_says(choice, table):
    """One step is looked at; a right variance fails one in 150,000 times."""
    chain, count = Diffusion().respaced(2), 20_000

    def network(points, times):
        noise = torch.zeros_like(points)
        if times[0] < 999:  # the last step would go on to the image
            after.append(points)
        return torch.cat([noise, torch.full_like(points, choice)], dim=1)

    after = []
    ancestral(network, chain, torch.ones(count, 1), generator())
    variance = getattr(chain, table)[1].item()
    assert abs(after[0].var() / variance - 1) < 4.5 * math.sqrt(2 / count)


# Which times they visit


class Watched:
    """A velocity of zero that notes the times it was asked for."""

    def __init__(self):
        self.times = []

    def __call__(self, points, times):
        """Return zeros, and note the time."""
        assert times.shape == (len(points),)
        assert len(times.unique()) == 1
        self.times.append(times[0].item())
        return torch.zeros_like(points)


def test_ddpm_visits_the_times_of_its_chain_backwards():
    watched = Watched()
    ancestral(watched, CHAIN, noise(2), generator())
    assert watched.times == CHAIN.times.tolist()[::-1]


def test_heun_looks_at_both_ends_of_each_step():
    watched = Watched()
    heun(watched, noise(2), 4)
    assert watched.times == [0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1]


def test_euler_maruyama_ends_with_a_step_of_the_stated_length():
    watched = Watched()
    euler_maruyama(watched, noise(2), generator(), steps=5, last_step=0.2)
    assert watched.times == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    watched = Watched()
    euler_maruyama(watched, noise(2), generator())
    assert len(watched.times) == 250
    assert watched.times[-1] == pytest.approx(0.96)


def test_the_last_step_of_euler_maruyama_takes_the_mean():
    """Where the velocity is 1, the score is (t - x) / (1 - t), and the drift 1 + (t - x) / 2."""

    def velocity(points, times):
        seen.append(points)
        return torch.ones_like(points)

    seen = []
    drawn = euler_maruyama(velocity, noise(50), generator(), steps=3)
    torch.testing.assert_close(drawn, seen[-1] + 0.04 * (1 + (0.96 - seen[-1]) / 2))


# What all samplers have in common


@each
def test_only_random_samplers_depend_on_the_generator(name):
    first, again, other = (EVERY[name](MIXTURE, noise(20), seed=s) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name not in RANDOM)


@each
def test_samplers_tell_how_far_they_are(name):
    told = []
    EVERY[name](MIXTURE, noise(5), progress=lambda *numbers: told.append(numbers))
    done, totals = zip(*told, strict=True)
    assert len(set(totals)) == 1
    assert done[-1] == totals[0] == {"ddpm": 250, "heun": 25, "dopri5": 1, "sde": 250}[name]
    assert all(a < b for a, b in itertools.pairwise(done))
    if name != "dopri5":
        assert list(done) == list(range(1, totals[0] + 1))


@each
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samplers_keep_no_gradients_and_leave_the_start_alone(name, dtype):
    start = noise(5, dtype).requires_grad_()
    before = start.detach().clone()
    drawn = EVERY[name](MIXTURE, start)
    assert not drawn.requires_grad
    assert drawn.dtype == dtype
    assert torch.equal(start, before)


@pytest.mark.parametrize("begin", [-1.0, 0.0, 0.5])
def test_dopri5_loses_the_image_alone_whose_velocity_is_not_finite(begin):
    def velocity(points, times):
        slopes = 1e3 * torch.ones_like(points)
        slopes[1] /= times[1] <= begin
        return slopes

    start = noise(3, torch.float64)
    before = start.clone()
    found = dopri5(velocity, start)
    assert found.isnan().flatten().tolist() == [False, True, False]
    assert torch.allclose(found[::2], start[::2] + 1e3)
    assert torch.equal(start, before)


def test_dopri5_asks_no_more_when_all_images_are_lost():
    def velocity(points, times):
        asked.append(times[0])
        return points * math.nan

    asked, start = [], noise(3, torch.float64)
    before = start.clone()
    assert dopri5(velocity, start).isnan().all()
    assert len(asked) == 2  # for the length of the first step
    assert torch.equal(start, before)


def test_dopri5_gives_up_when_its_steps_get_too_small():
    def velocity(points, times):
        return 1 / ((times.view(-1, 1) - 0.5) ** 2 + 1e-40) + 0 * points

    assert dopri5(velocity, noise(3, torch.float64)).isnan().all()


def test_dopri5_gives_up_when_its_steps_get_too_many():
    def velocity(points, times):
        return torch.sin(1e5 * times.view(-1, 1)) * 1e5 + 0 * points

    told = []
    options = {"most_steps": 20, "progress": lambda *numbers: told.append(numbers)}
    assert dopri5(velocity, noise(3), **options).isnan().all()
    assert len(told) == 20
    assert dopri5(MIXTURE.velocity, noise(3), most_steps=20).isfinite().all()
