"""The chain of a diffusion, its bound, and its loss."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from normal_mixture import Mixture
from sgdf.bench.errors import SpecError
from sgdf.bench.tasks.diffusion.ddpm import Chain, Diffusion
from sgdf.bench.tasks.diffusion.likelihood import kl_of_normals, log_likelihood_of_levels

ERROR = 4.5  # standard errors: a right moment fails one in 150,000 times
FULL = Diffusion()
LEVEL = 2 / 255


def normal_density(x, mean, variance):
    return torch.exp(-((x - mean) ** 2) / (2 * variance)) / (2 * math.pi * variance) ** 0.5


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


# The chain


def test_betas_rise_linearly_between_their_ends():
    betas = [1e-4 + (0.02 - 1e-4) * k / 999 for k in range(1000)]
    assert FULL.betas.tolist() == pytest.approx(betas, rel=1e-9)
    assert FULL.times.tolist() == list(range(1000))


@pytest.mark.parametrize("step", [0, 300, 999])
def test_noised_images_have_the_moments_of_the_chain(step):
    """Each of the two moments fails one in 150,000 times if it is right."""
    count, start = 200_000, 0.7
    noise = torch.randn(count, 1, 1, 1)
    steps = torch.full((count,), step)
    points = FULL.noised(torch.full_like(noise, start), steps, noise).double()
    signal = math.prod(1 - (1e-4 + (0.02 - 1e-4) * k / 999) for k in range(step + 1))
    mean_error = math.sqrt((1 - signal) / count)
    assert abs(points.mean() - math.sqrt(signal) * start) < ERROR * mean_error
    variance_error = (1 - signal) * math.sqrt(2 / count)
    assert abs(points.var() - (1 - signal)) < ERROR * variance_error


def test_each_image_is_noised_by_its_own_step():
    images, noise = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    steps = torch.tensor([0, 500, 999])
    together = FULL.noised(images, steps, noise)
    for i in range(3):
        alone = FULL.noised(images[i : i + 1], steps[i : i + 1], noise[i : i + 1])
        assert torch.equal(together[i : i + 1], alone)


def test_the_image_is_found_from_points_and_noise():
    images, noise = torch.randn(5, 1, 2, 2).double(), torch.randn(5, 1, 2, 2).double()
    steps = torch.tensor([0, 10, 200, 700, 999])
    points = FULL.noised(images, steps, noise)
    torch.testing.assert_close(FULL.image_of(points, steps, noise), images)


@pytest.mark.parametrize("chain", [FULL, FULL.respaced(7)], ids=["full", "respaced"])
@pytest.mark.parametrize("place", [0.001, 0.5, 1.0])
def test_the_posterior_is_that_of_bayes_rule(chain, place):
    """By integration over a fine grid of what may have been there before the step."""
    step = max(1, round(place * (len(chain) - 1)))
    before, signal = chain.signal[step - 1].item(), chain.signal[step].item()
    image, point = 0.6, 0.6 * math.sqrt(signal) - 0.8 * math.sqrt(1 - signal)
    kept = signal / before
    width = 12 * math.sqrt(1 - before)
    x = torch.linspace(-width, width, 400_001, dtype=torch.float64) + math.sqrt(before) * image
    density = normal_density(x, math.sqrt(before) * image, 1 - before) * normal_density(
        double(point), math.sqrt(kept) * x, 1 - kept
    )
    density /= density.sum()
    mean = (density * x).sum()
    found = chain.posterior_mean(double(image), double(point), torch.tensor([step]))
    torch.testing.assert_close(found, mean.view(1), rtol=1e-8, atol=1e-8)
    variance = (density * (x - mean) ** 2).sum()
    torch.testing.assert_close(chain.posterior_variance[step], variance, rtol=1e-7, atol=0)


def test_the_last_step_back_leads_to_the_image():
    image, point = double(0.6), double(-0.4)
    found = FULL.posterior_mean(image, point, torch.tensor([0]))
    torch.testing.assert_close(found, image, rtol=0, atol=1e-12)
    assert FULL.posterior_variance[0] == 0


@pytest.mark.parametrize(
    ("learned", "table"),
    [(-1.0, "posterior_variance"), (None, "posterior_variance"), (1.0, "betas")],
)
def test_the_variance_lies_between_its_two_bounds(learned, table):
    points = torch.zeros(2, 1, 2, 2, dtype=torch.float64)
    steps = torch.tensor([5, 900])
    choice = None if learned is None else torch.full_like(points, learned)
    found = FULL.log_variance(steps, points, choice).exp()
    expected = getattr(FULL, table)[steps].view(2, 1, 1, 1)
    torch.testing.assert_close(found.expand_as(points), expected.expand_as(points))


def test_between_the_bounds_the_logarithm_of_the_variance_is_interpolated():
    steps, points = torch.tensor([40]), torch.zeros(1, 1, dtype=torch.float64)
    found = FULL.log_variance(steps, points, points).exp()
    expected = (FULL.betas[40] * FULL.posterior_variance[40]).sqrt()
    torch.testing.assert_close(found.squeeze(), expected)


def test_the_variance_of_the_first_step_is_finite():
    points = torch.zeros(1, 1)
    for chain in (FULL, FULL.respaced(250), Diffusion(1)):
        found = chain.log_variance(torch.tensor([0]), points, None)
        assert math.log(1e-5) < found.item() < 0


# Fewer steps


def test_a_respaced_chain_is_evenly_spaced_and_keeps_the_noise_of_its_steps():
    chain = FULL.respaced(250)
    assert len(chain) == 250
    assert (chain.times[0], chain.times[-1]) == (0, 999)
    assert chain.times.diff().unique().tolist() == [4, 5]
    assert torch.equal(chain.signal, FULL.signal[chain.times])
    torch.testing.assert_close((1 - chain.betas).cumprod(0), chain.signal)


def test_a_respaced_chain_with_all_steps_is_the_same_chain():
    chain = FULL.respaced(1000)
    assert torch.equal(chain.times, FULL.times)
    assert torch.equal(chain.betas, FULL.betas)


def test_one_step_is_the_one_from_pure_noise():
    assert FULL.respaced(1).times.tolist() == [999]


@pytest.mark.parametrize("steps", [0, 1001])
def test_steps_that_a_chain_does_not_have_are_refused(steps):
    with pytest.raises(SpecError, match=rf"steps = {steps}: allowed are 1 to 1000"):
        FULL.respaced(steps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps = 0"),
        ({"beta_start": 0.0}, "beta_start = 0.0"),
        ({"beta_end": 1.0}, "beta_end = 1.0"),
        ({"beta_start": 0.5}, "beta_start = 0.5, beta_end = 0.02"),
    ],
)
def test_impossible_chains_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        Diffusion(**options)


# Likelihoods


@pytest.mark.parametrize(
    ("first", "second"), [((0.3, 0.5), (-0.2, 1.7)), ((1.0, 2.0), (1.0, 2.0)), ((0, 0.1), (3, 4))]
)
def test_the_divergence_of_normals_is_the_integral_that_defines_it(first, second):
    x = torch.linspace(-20, 20, 200_001, dtype=torch.float64)
    p, q = normal_density(x, *first), normal_density(x, *second)
    known = p > 0
    integral = torch.trapezoid(torch.where(known, p * (p.clamp_min(1e-300) / q).log(), 0.0), x)
    (mean, variance), (other_mean, other_variance) = first, second
    found = kl_of_normals(
        double(mean), double(variance).log(), double(other_mean), double(other_variance).log()
    )
    torch.testing.assert_close(found, integral.view(1), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.01), (0.2, 0.5), (-1.3, 0.3), (2.0, 0.2)])
def test_the_probabilities_of_all_levels_add_up_to_one(mean, deviation):
    levels = torch.linspace(-1, 1, 256, dtype=torch.float64)
    log_variance = torch.full_like(levels, 2 * math.log(deviation))
    logs = log_likelihood_of_levels(levels, torch.full_like(levels, mean), log_variance)
    assert logs.exp().sum().item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mean", [0.1, -0.1, 0.9])
def test_the_probability_of_a_level_is_the_area_around_it(mean, dtype):
    level, deviation = 100 * LEVEL - 1, 0.05
    x = torch.linspace(level - LEVEL / 2, level + LEVEL / 2, 10_001, dtype=torch.float64)
    area = torch.trapezoid(normal_density(x, mean, deviation**2), x)
    found = log_likelihood_of_levels(
        torch.tensor([level], dtype=dtype),
        torch.tensor([mean], dtype=dtype),
        torch.tensor([2 * math.log(deviation)], dtype=dtype),
    )
    assert found.item() == pytest.approx(area.log().item(), rel=1e-4)


def test_improbable_levels_have_finite_logarithms_and_slopes():
    values = torch.tensor([-1.0, -0.5, 0.5, 1.0])
    for mean in (-9.0, 9.0):
        log_variance = torch.full((4,), -9.0, requires_grad=True)
        logs = log_likelihood_of_levels(values, torch.full((4,), mean), log_variance)
        logs.sum().backward()
        assert logs.isfinite().all()
        assert log_variance.grad.isfinite().all()
        # A larger variance would make every level that is not beyond the mean's edge likelier.
        assert log_variance.grad.max() > 1


# The bound


def test_the_bound_is_zero_where_the_network_knows_the_step_back():
    images, noise = torch.rand(4, 1, 2, 2).double(), torch.randn(4, 1, 2, 2).double()
    steps = torch.tensor([1, 10, 300, 999])
    points = FULL.noised(images, steps, noise)
    found = FULL.bound(images, points, steps, noise, torch.full_like(images, -1.0))
    torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-12)


def test_the_bound_is_the_divergence_of_the_known_step_from_the_predicted_one():
    step, image, point, guess = 300, 0.6, 0.1, -0.7
    steps, points = torch.tensor([step]), double(point).view(1, 1)
    learned = torch.ones_like(points)  # the variance is then beta
    found = FULL.bound(double(image).view(1, 1), points, steps, 0 * points + guess, learned)
    signal = FULL.signal[step].item()
    predicted = (point - math.sqrt(1 - signal) * guess) / math.sqrt(signal)
    before, beta = FULL.signal[step - 1].item(), FULL.betas[step].item()
    known = beta * (1 - before) / (1 - signal)
    squares = (math.sqrt(before) * beta / (1 - signal) * (image - predicted)) ** 2
    divergence = math.log(beta / known) / 2 + (known + squares) / (2 * beta) - 1 / 2
    assert found.item() == pytest.approx(divergence / math.log(2), rel=1e-9)


def test_the_bound_of_a_perfect_network_is_just_above_the_entropy_of_the_data():
    """That holds for the terms of all steps but 0, if the first step hides nothing.

    The mean over points is an integral, by Gauss and Hermite's nodes.
    """
    levels, shares = (0, 60, 128, 190, 255), (0.1, 0.25, 0.3, 0.2, 0.15)
    data = Mixture(shares, tuple(k * LEVEL - 1 for k in levels), (0.0,) * 5)
    nodes, weights = hermite(16)
    steps = torch.arange(1000).repeat_interleave(len(nodes))
    noise, weights = nodes.repeat(1000).view(-1, 1), weights.repeat(1000)
    predict, total = data.noise_of(FULL), 0.0
    for share, value in zip(shares, data.means, strict=True):
        images = torch.full_like(noise, value)
        points = FULL.noised(images, steps, noise)
        terms = weights * FULL.bound(images, points, steps, predict(points, steps), None)
        total += share * (terms[steps > 0].sum().item() + bits_at_the_end(value))
        # The network knows the image, but the variance of the last step blurs it.
        deviation = FULL.posterior_variance[1].sqrt().item()
        inside = math.erf(LEVEL / 2 / deviation / 2**0.5)
        kept = inside if abs(value) < 1 else (1 + inside) / 2
        assert terms[steps == 0].sum().item() == pytest.approx(-math.log2(kept))
    entropy = -sum(p * math.log2(p) for p in shares)
    assert entropy < total < entropy + 0.05


def hermite(count):
    """Return nodes and weights for means over a normal number."""
    nodes, weights = map(torch.from_numpy, np.polynomial.hermite_e.hermegauss(count))
    return nodes, weights / math.sqrt(2 * math.pi)


def bits_at_the_end(value):
    """Return the term for the noise at the end, by which the bound is one of the likelihood."""
    signal = FULL.signal[-1].item()
    return (signal * value**2 - signal - math.log(1 - signal)) / 2 / math.log(2)


def test_the_end_of_the_chain_costs_next_to_nothing():
    assert 0 < bits_at_the_end(1.0) < 1e-4


# The loss


class TwoNumbers(nn.Module):
    """Predicts one number for all noise, and another for all variance."""

    def __init__(self):
        super().__init__()
        self.noise = nn.Parameter(double(0.3))
        self.variance = nn.Parameter(double(-0.2))

    def forward(self, images, times, classes):
        """Return the two numbers for all values."""
        halves = [number * torch.ones_like(images) for number in (self.noise, self.variance)]
        return torch.cat(halves, dim=1)


def example():
    images = torch.rand(6, 1, 2, 2).double() * 2 - 1
    steps = torch.tensor([0, 1, 20, 400, 800, 999])
    return images, torch.zeros(6, dtype=torch.long), steps, torch.randn_like(images)


def test_the_bound_trains_the_variance_and_not_the_noise():
    model, length = TwoNumbers(), 1e-5
    images, classes, steps, noise = example()

    def bound():
        return FULL.losses(model, images, classes, steps, noise)["bound"].mean()

    bound().backward()
    assert model.noise.grad is None or not model.noise.grad.any()
    with torch.no_grad():
        model.variance += length
        above = bound()
        model.variance -= 2 * length
        below = bound()
    slope = ((above - below) / (2 * length)).item()
    assert model.variance.grad.item() == pytest.approx(slope, rel=1e-6)
    assert abs(slope) > 1e-3


def test_the_squared_error_trains_the_noise_and_not_the_variance():
    model = TwoNumbers()
    images, classes, steps, noise = example()
    error = FULL.losses(model, images, classes, steps, noise)["squared_error"].mean()
    error.backward()
    assert error.item() == pytest.approx((0.3 - noise).square().mean().item())
    assert model.noise.grad.item() == pytest.approx(2 * (0.3 - noise).mean().item())
    assert not model.variance.grad.any()


@pytest.mark.parametrize("steps", [1000, 100])
def test_the_bound_is_weighted_so_that_its_mean_is_a_thousandth_of_the_sum(steps):
    chain = Diffusion(steps)
    images = torch.rand(1, 1, 2, 2).double().expand(steps, -1, -1, -1)
    noise, every = torch.randn_like(images), torch.arange(steps)
    classes = torch.zeros(steps, dtype=torch.long)
    weighted = chain.losses(TwoNumbers(), images, classes, every, noise)["bound"]
    points = chain.noised(images, every, noise)
    predicted, learned = (torch.full_like(images, number) for number in (0.3, -0.2))
    plain = chain.bound(images, points, every, predicted, learned)
    assert weighted.isfinite().all()
    torch.testing.assert_close(weighted.mean(), 0.001 * plain.sum())


def test_each_term_of_a_bound_sees_its_own_image():
    images, classes, steps, noise = example()
    together = FULL.losses(TwoNumbers(), images, classes, steps, noise)["bound"]
    for i in range(6):
        rows = (v[i : i + 1] for v in (images, classes, steps, noise))
        torch.testing.assert_close(FULL.losses(TwoNumbers(), *rows)["bound"], together[i : i + 1])


def test_without_a_variance_the_loss_is_the_squared_error_alone():
    images, classes, steps, noise = example()
    losses = FULL.losses(lambda points, times, _: points * 0, images, classes, steps, noise)
    assert losses.keys() == {"squared_error"}
    torch.testing.assert_close(losses["squared_error"], noise.square().mean((1, 2, 3)))


def test_the_network_is_told_the_points_the_steps_and_the_classes():
    images, _, steps, noise = example()
    classes = torch.arange(6)
    seen = []

    def network(*inputs):
        seen.extend(inputs)
        return torch.zeros_like(images)

    FULL.losses(network, images, classes, steps, noise)
    assert torch.equal(seen[0], FULL.noised(images, steps, noise))
    assert torch.equal(seen[1], steps)
    assert torch.equal(seen[2], classes)


def test_steps_to_train_on_are_all_equally_likely_and_the_generators():
    """The chance that a right generator fails is one in 150,000 for each of ten parts."""
    steps = FULL.draw_times(50_000, torch.Generator().manual_seed(1))
    assert torch.equal(steps, FULL.draw_times(50_000, torch.Generator().manual_seed(1)))
    assert (steps.min().item(), steps.max().item()) == (0, 999)
    counts = torch.histc(steps.float(), 10, 0, 1000)
    assert (counts - 5_000).abs().max() < ERROR * math.sqrt(50_000 * 0.1 * 0.9)


def test_a_chain_counts_its_steps():
    assert len(Chain(double(0.9, 0.5), torch.tensor([3, 8]))) == 2
