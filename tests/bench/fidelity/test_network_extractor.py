"""Features from the inside of a small network."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from sgdf.bench.errors import SpecError
from sgdf.bench.fidelity.network_extractor import NetworkExtractor


def small_network():
    """Return a classifier with all that could be disturbed: modes, statistics, dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 10, 3, padding=1),
        nn.BatchNorm2d(10),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(10, 4),
    )


@pytest.fixture
def network():
    found = small_network()
    found(torch.randn(50, 3, 8, 8))  # moves the running statistics
    return found


@pytest.fixture
def images():
    return torch.randint(0, 256, (5, 3, 8, 6), dtype=torch.uint8)


def state_of(network):
    modes = [module.training for module in network.modules()]
    return modes, {key: value.clone() for key, value in network.state_dict().items()}


def test_features_are_outputs_of_the_named_parts(network, images):
    found = NetworkExtractor("small", network, pooled="5", spatial="2", channels=4)(images)
    network.eval()
    with torch.no_grad():
        maps = network[:3](images.float())
        pooled, scores = network[:6](images.float()), network(images.float())
    assert torch.equal(found.pooled, pooled)
    assert torch.equal(found.probabilities, scores.softmax(1))
    assert found.spatial.shape == (5, 8 * 6 * 4)
    assert torch.equal(found.spatial.view(5, 8, 6, 4), maps[:, :4].permute(0, 2, 3, 1))


def test_a_part_is_read_before_the_next_one_changes_it(network, images):
    before = NetworkExtractor("small", network, pooled="1")(images).pooled
    after = NetworkExtractor("small", network, pooled="2")(images).pooled
    network.eval()
    with torch.no_grad():
        maps = network[:2](images.float())
    assert torch.allclose(before, maps.mean((2, 3)), rtol=0, atol=1e-4)
    assert torch.allclose(after, maps.relu().mean((2, 3)), rtol=0, atol=1e-4)
    assert not torch.allclose(before, after, atol=1.0)


def test_without_a_spatial_part_there_are_no_spatial_features(network, images):
    assert NetworkExtractor("small", network, pooled="5")(images).spatial is None


def test_images_of_other_sizes_are_resized(network, images):
    sized = NetworkExtractor("small", network, pooled="5", side=4)
    smaller = functional.interpolate(images.float(), (4, 4), mode="bilinear", antialias=True)
    expected = NetworkExtractor("small", network, "5", prepare=lambda numbers: smaller)(images)
    assert torch.equal(sized(images).pooled, expected.pooled)
    small = images[:, :, :4, :4]
    plain = NetworkExtractor("small", network, pooled="5")
    assert torch.equal(sized(small).pooled, plain(small).pooled)
    board = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    board[..., ::2, ::2] = board[..., 1::2, 1::2] = 255
    grey = torch.full((1, 3, 4, 4), 127.5)
    exactly_grey = NetworkExtractor("small", network, "5", prepare=lambda numbers: grey)(images)
    assert torch.allclose(sized(board).pooled[:, 0], exactly_grey.pooled[:, 0], rtol=0.2)


def test_the_network_is_given_what_is_prepared(network, images):
    halved = NetworkExtractor("small", network, pooled="5", prepare=lambda numbers: numbers / 2)
    plain = NetworkExtractor("small", network, pooled="5")
    assert torch.equal(halved(images // 2 * 2).pooled, plain(images // 2).pooled)


def test_the_network_and_its_modes_stay_as_they_are(network, images):
    network[0].eval()
    modes, values = state_of(network)
    generator = torch.get_rng_state()
    extractor = NetworkExtractor("small", network, pooled="5", spatial="2")
    extractor(images)
    after_modes, after = state_of(network)
    assert after_modes == modes
    assert all(torch.equal(values[key], after[key]) for key in values)
    assert all(parameter.requires_grad for parameter in network.parameters())
    for own in (network, extractor._network):
        assert not any(module._forward_hooks for module in own.modules())
    assert torch.equal(torch.get_rng_state(), generator)


def test_training_the_network_further_does_not_change_the_features(network, images):
    extractor = NetworkExtractor("small", network, pooled="5")
    before = extractor(images).pooled
    with torch.no_grad():
        network[0].weight.add_(1.0)
    assert torch.equal(extractor(images).pooled, before)


def test_features_have_no_gradient(network, images):
    found = NetworkExtractor("small", network, pooled="5", spatial="2")(images)
    assert not any(part.requires_grad for part in vars(found).values())


def test_mixed_precision_around_it_changes_nothing(network, images):
    extractor = NetworkExtractor("small", network, pooled="5", spatial="2")
    expected = extractor(images)
    with torch.autocast("cpu", torch.bfloat16):
        found = extractor(images)
    for part, other in zip(vars(found).values(), vars(expected).values(), strict=True):
        assert torch.equal(part, other)


def test_the_digest_is_of_all_that_features_depend_on(network):
    digest = NetworkExtractor("small", network, pooled="5").digest
    assert NetworkExtractor("small", network, pooled="5").digest == digest
    others = [
        NetworkExtractor("other", network, pooled="5"),
        NetworkExtractor("small", network, pooled="4"),
        NetworkExtractor("small", network, pooled="5", spatial="2"),
        NetworkExtractor("small", network, pooled="5", side=4),
        NetworkExtractor("small", small_network(), pooled="5"),
        NetworkExtractor("small", network, pooled="5", prepare=lambda numbers: numbers / 2),
        NetworkExtractor("small", network, pooled="5", prepare=lambda numbers: numbers / 3),
    ]
    network[2] = nn.GELU()
    others.append(NetworkExtractor("small", network, pooled="5"))
    assert len({digest, *(other.digest for other in others)}) == 9


def test_it_is_never_the_inception(network):
    assert not NetworkExtractor("inception", network, pooled="5").is_inception


@pytest.mark.parametrize("parts", [{"pooled": "50"}, {"pooled": "5", "spatial": "head"}])
def test_unknown_parts_are_refused(network, parts):
    use, part = list(parts.items())[-1]
    with pytest.raises(SpecError, match=f"{use} = '{part}': small has no such part"):
        NetworkExtractor("small", network, **parts)


@pytest.mark.parametrize("wrong", [torch.zeros(2, 3, 4, 4), torch.zeros(3, 4, 4).byte()])
def test_images_that_are_not_bytes_are_refused(network, wrong):
    with pytest.raises(ValueError, match="must be bytes"):
        NetworkExtractor("small", network, pooled="5")(wrong)
