"""Drawing images with a network, by every sampler."""

import pytest
import torch

from sgdf.bench.errors import SpecError
from sgdf.bench.tasks.diffusion.ddpm import Diffusion
from sgdf.bench.tasks.diffusion.draw import check_sampler, draw
from sgdf.bench.tasks.diffusion.flow import Flow
from sgdf.bench.tasks.diffusion.guidance import Guided
from sgdf.bench.tasks.diffusion.transformer import DiffusionTransformer

PAIRS = [(Diffusion(), "ddpm"), (Flow(), "heun"), (Flow(), "dopri5"), (Flow(), "sde")]
each = pytest.mark.parametrize(("process", "sampler"), PAIRS, ids=[name for _, name in PAIRS])
SHAPE = (1, 4, 4)
CLASSES = torch.tensor([0, 1, 1])


def made(**options):
    return DiffusionTransformer(4, 1, 2, 16, 2, 2, classes=2, **options)


def shaken(**options):
    model = made(**options).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model


def drawn(model, process, sampler, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return draw(model, process, SHAPE, CLASSES, generator, sampler, **{"steps": 5, **options})


@each
@pytest.mark.parametrize("learns_variance", [True, False])
def test_images_depend_on_the_generator_and_the_network_only(process, sampler, learns_variance):
    model = shaken(learns_variance=learns_variance)
    first = drawn(model, process, sampler)
    assert first.shape == (3, *SHAPE)
    assert first.isfinite().all()
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert torch.equal(drawn(model, process, sampler), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.isclose(drawn(model, process, sampler, seed=1), first).any()


@each
def test_each_image_is_of_its_class(process, sampler):
    """The predictions know nothing but the class, so images of one class move alike."""

    def network(images, times, classes):
        return classes.view(-1, 1, 1, 1).float().expand_as(images)

    def blind(images, times, classes):
        return torch.zeros_like(images)

    moved = drawn(network, process, sampler) - drawn(blind, process, sampler)
    assert not moved[0].any()
    assert (moved[1:].abs() > 0.1).all()


@each
def test_drawing_leaves_mode_and_gradients_of_the_network_alone(process, sampler):
    model = shaken()
    model.last.train()
    modes = [module.training for module in model.modules()]
    assert not drawn(model, process, sampler).requires_grad
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


@each
def test_progress_is_told(process, sampler):
    told = []
    drawn(shaken(), process, sampler, progress=lambda *numbers: told.append(numbers))
    assert told[-1] == ((1, 1) if sampler == "dopri5" else (5, 5))


@each
def test_guidance_1_draws_the_same_images(process, sampler):
    model = shaken()
    plain = drawn(model, process, sampler)
    assert torch.equal(drawn(Guided(model, 1.0, model.no_class), process, sampler), plain)
    assert not torch.allclose(drawn(Guided(model, 3.0, model.no_class), process, sampler), plain)


def test_clipped_images_stay_within_the_bounds():
    model = shaken()
    assert drawn(model, *PAIRS[0]).abs().max() > 1
    assert drawn(model, *PAIRS[0], clip=1.0).abs().max() == 1


def test_the_noise_is_the_same_in_every_precision():
    def network(images, times, classes):
        seen.append(images)
        return torch.zeros_like(images)

    seen = []
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        try:
            drawn(network, *PAIRS[0])
        finally:
            torch.set_default_dtype(torch.float32)
    half = len(seen) // 2
    assert all(torch.equal(a, b) for a, b in zip(seen[:half], seen[half:], strict=True))


@pytest.mark.parametrize(
    ("process", "sampler", "steps", "message"),
    [
        (Diffusion(), "heun", 50, 'sampler = "heun": allowed are ddpm'),
        (Flow(), "hein", 50, 'sampler = "hein": allowed are heun, dopri5, sde; did you mean heun?'),
        (Flow(), "ddpm", 50, 'sampler = "ddpm": allowed are heun, dopri5, sde'),
        (Diffusion(100), "ddpm", 101, "sampling_steps = 101: allowed are 1 to 100"),
        (Flow(), "heun", 0, "sampling_steps = 0: the sampler heun needs at least 1"),
        (Flow(), "sde", 1, "sampling_steps = 1: the sampler sde needs at least 2"),
    ],
)
def test_samplers_and_steps_that_do_not_fit_are_refused(process, sampler, steps, message):
    with pytest.raises(SpecError) as error:
        check_sampler(process, sampler, steps)
    assert str(error.value).startswith(message)
    with pytest.raises(SpecError):
        drawn(made(), process, sampler, steps=steps)


@pytest.mark.parametrize(("process", "sampler"), PAIRS[:2], ids=["ddpm", "heun"])
def test_a_trained_network_draws_the_images_of_each_class(process, sampler):
    """Two images, one of each class, from a training of a second."""
    patterns = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).view(2, 1, 2, 1).repeat(1, 1, 2, 4)
    model = DiffusionTransformer(4, 1, 2, 16, 1, 2, classes=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(250):
        classes = torch.randint(2, (64,))
        images = patterns[classes]
        times, noise = process.draw_times(64), torch.randn_like(images)
        loss = sum(process.losses(model, images, classes, times, noise).values()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    classes = torch.arange(40) % 2
    generator = torch.Generator().manual_seed(0)
    images = draw(model.eval(), process, SHAPE, classes, generator, sampler, steps=25)
    away = (images.unsqueeze(1) - patterns).square().mean((2, 3, 4)).sqrt()
    # With ten seeds these were 38 to 40, and 0.06 to 0.38.
    assert (away.argmin(1) == classes).sum() >= 32
    assert away.gather(1, classes.unsqueeze(1)).mean() < 0.6
