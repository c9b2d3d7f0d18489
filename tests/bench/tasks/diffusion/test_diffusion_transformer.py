"""The transformer: its sizes, how it begins, what it sees, and its gradient."""

import math

import pytest
import torch

from operations import Operations
from sgdf.bench.errors import SpecError
from sgdf.bench.tasks.diffusion.flow import Flow
from sgdf.bench.tasks.diffusion.transformer import SIZES, DiffusionTransformer, modulated

ERROR = 4.5  # standard errors: a right share fails one in 150,000 times
CLASSES = 3


def made(size=8, channels=1, patch=2, hidden=16, blocks=2, heads=4, **options):
    return DiffusionTransformer(
        size, channels, patch, hidden, blocks, heads, classes=CLASSES, **options
    )


def shaken(deviation=0.3, **options):
    """Return a network whose parameters are all random, so that none hides another."""
    model = made(**options)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=deviation)
    return model


def examples(count=4, size=8, channels=1, dtype=torch.float32):
    images = torch.randn(count, channels, size, size, dtype=dtype)
    return images, torch.rand(count, dtype=dtype), torch.arange(count) % CLASSES


# Sizes


@pytest.mark.parametrize(
    ("name", "patch", "learns_variance", "with_positions", "without"),
    [
        ("b", 4, True, 130_475_648, 130_426_496),
        ("b", 2, True, 130_512_416, 130_315_808),
        ("b", 2, False, 130_500_112, 130_303_504),
        ("xl", 2, True, 675_129_632, 674_834_720),
    ],
)
def test_the_published_sizes_have_the_known_numbers_of_parameters(
    name, patch, learns_variance, with_positions, without
):
    with torch.device("meta"):
        model = DiffusionTransformer(
            32, 4, patch, *SIZES[name], classes=1000, learns_variance=learns_variance
        )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert parameters == without
    assert parameters + sum(buffer.numel() for buffer in model.buffers()) == with_positions


@pytest.mark.parametrize("learns_variance", [True, False])
def test_the_output_has_the_shape_of_images_and_twice_the_channels_with_a_variance(
    learns_variance,
):
    model = made(16, 3, hidden=64, learns_variance=learns_variance)
    assert model(*examples(2, 16, 3)).shape == (2, 6 if learns_variance else 3, 16, 16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 3}, "patch = 3: must divide the side of the images, 8"),
        ({"hidden": 18, "heads": 3}, "hidden = 18: must be a multiple of 4"),
        ({"hidden": 16, "heads": 3}, "and of heads = 3"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, message):
    with pytest.raises(SpecError, match=message):
        made(**options)


def test_a_checkpoint_has_the_parameters_only_and_restores_the_network():
    model, other = shaken().eval(), made().eval()
    assert model.state_dict().keys() == dict(model.named_parameters()).keys()
    inputs = examples()
    assert not torch.equal(model(*inputs), other(*inputs))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(*inputs), other(*inputs))


# How it begins


def test_the_output_is_exactly_zero_at_first():
    assert not made()(*examples()).any()


def test_each_block_is_the_identity_at_first():
    model = made()
    tokens, condition = torch.randn(2, 16, 16), torch.randn(2, 16)
    for block in model.blocks:
        assert torch.equal(block(tokens, condition), tokens)


def test_the_first_values_are_drawn_as_published():
    model = made(hidden=64)
    zero = {"last.pixels.weight"} | {
        f"{part}.modulation.weight" for part in ("blocks.0", "blocks.1", "last")
    }
    normal = {"classes.weight", "time.first.weight", "time.second.weight"}
    for name, values in model.named_parameters():
        if name in zero or name.endswith("bias"):
            assert not values.any(), name
        elif name in normal:
            error = 0.02 / math.sqrt(2 * values.numel())
            assert abs(values.std() - 0.02) < ERROR * error, name
        else:
            outputs, inputs = values.flatten(1).shape
            bound = math.sqrt(6 / (inputs + outputs))
            # The largest of n is below 1 - 12/n of the bound once in 160,000 times.
            assert bound * (1 - 12 / values.numel()) < values.abs().max() <= bound, name


# What it sees


def test_tokens_are_normalised_then_scaled_and_shifted():
    tokens, shift, scale = torch.randn(3, 5, 8) * 4 + 2, torch.randn(3, 8), torch.randn(3, 8)
    plain = (tokens - tokens.mean(-1, keepdim=True)) / tokens.std(-1, correction=0, keepdim=True)
    expected = plain * (1 + scale[:, None]) + shift[:, None]
    torch.testing.assert_close(modulated(tokens, shift, scale), expected)


def test_a_patch_returns_to_its_place():
    """Without attention, which is off at first, only the pixels of the same patch matter."""
    model = made()
    torch.nn.init.normal_(model.last.pixels.weight)
    images, times, classes = examples(1)
    changed = images.clone()
    changed[:, :, 2:4, 6:8] += 1
    difference = model(changed, times, classes) - model(images, times, classes)
    assert difference[:, :, 2:4, 6:8].abs().min() > 0
    difference[:, :, 2:4, 6:8] = 0
    assert not difference.any()


def test_attention_lets_every_patch_see_every_other():
    model = shaken().eval()
    images, times, classes = examples(1)
    changed = images.clone()
    changed[:, :, 2:4, 6:8] += 1
    difference = model(changed, times, classes) - model(images, times, classes)
    assert (difference.abs() > 1e-5).all()


def test_a_moved_image_is_another_one_only_because_of_the_positions():
    model = shaken().eval()
    images, times, classes = examples(1)

    def both():
        moved = model(images.roll(2, dims=2), times, classes)
        return moved, model(images, times, classes).roll(2, dims=2)

    moved, expected = both()
    assert not torch.allclose(moved, expected, atol=1e-2)
    model.positions.zero_()
    torch.testing.assert_close(*both(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("changed", ["times", "classes"])
def test_time_and_class_matter(changed):
    model = shaken().eval()
    images, times, classes = examples(1)
    before = model(images, times, classes)
    if changed == "times":
        times = times + 0.1
    else:
        classes = (classes + 1) % CLASSES
    assert not torch.allclose(model(images, times, classes), before, atol=1e-3)


def test_images_of_a_batch_do_not_see_each_other():
    model = shaken().eval()
    images, times, classes = examples()
    together = model(images, times, classes)
    alone = [model(*(v[i : i + 1] for v in (images, times, classes))) for i in range(4)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_neighbouring_steps_differ_in_16_bits():
    model = shaken().to(torch.bfloat16).eval()
    images, _, classes = examples(2)
    images, classes = images[:1].repeat(2, 1, 1, 1).bfloat16(), classes[:1].repeat(2)
    first, second = model(images, torch.tensor([998, 999]), classes)
    assert not torch.equal(first, second)


def test_attention_runs_in_one_fused_operation_per_block():
    model = made(blocks=3)
    with Operations() as operations:
        model(*examples())
    fused = "_scaled_dot_product_flash_attention_for_cpu.default"
    assert operations.counts[fused] == 3
    assert not [name for name in operations.counts if "softmax" in name]


# Classes that are left out


def rows_seen(model, classes):
    """Return the rows of the table of classes that the network looks up."""
    seen = []
    hook = model.classes.register_forward_hook(lambda _, taken, __: seen.append(taken[0]))
    model(torch.zeros(len(classes), 1, 2, 2), torch.zeros(len(classes)), classes)
    hook.remove()
    return seen[0]


def test_training_leaves_out_the_stated_share_of_classes():
    """A right share fails one in 150,000 times."""
    count, share = 20_000, 0.1
    model = made(size=2, hidden=4, heads=1, blocks=1, class_dropout=share)
    classes = torch.arange(count) % CLASSES
    seen = rows_seen(model, classes)
    is_dropped = seen == model.no_class
    assert torch.equal(seen[~is_dropped], classes[~is_dropped])
    assert abs(is_dropped.double().mean() - share) < ERROR * math.sqrt(share * 0.9 / count)


def test_evaluation_leaves_out_no_class_and_draws_nothing():
    model = made(size=2, class_dropout=0.9).eval()
    classes = torch.arange(100) % CLASSES
    before = torch.get_rng_state()
    assert torch.equal(rows_seen(model, classes), classes)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_class_is_the_last_row():
    model = made()
    assert model.no_class == CLASSES
    assert len(model.classes.weight) == CLASSES + 1
    always = made(size=2, class_dropout=1.0)
    assert rows_seen(always, torch.zeros(5, dtype=torch.long)).tolist() == [CLASSES] * 5


# Its gradient


def test_the_gradient_of_the_loss_is_that_of_finite_differences():
    model = shaken(size=4, hidden=8, heads=2, learns_variance=False).double().eval()
    model.positions.copy_(model.positions.double())
    images, times, classes = examples(3, 4, dtype=torch.float64)
    noise, length = torch.randn_like(images), 1e-6

    def loss():
        return Flow().losses(model, images, classes, times, noise)["squared_error"].mean()

    loss().backward()
    for name, parameter in model.named_parameters():
        flat = parameter.detach().view(-1)
        # The largest ones, since others may be near the rounding of the difference.
        for place in parameter.grad.flatten().abs().topk(2).indices.tolist():
            value = flat[place].item()
            with torch.no_grad():
                flat[place] = value + length
                above = loss().item()
                flat[place] = value - length
                below = loss().item()
                flat[place] = value
            expected = (above - below) / (2 * length)
            found = parameter.grad.view(-1)[place].item()
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-8), name
