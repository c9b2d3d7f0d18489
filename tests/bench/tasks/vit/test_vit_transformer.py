"""The vision transformer: counts, gradients, dropout, and what a frozen one leaves alone."""

import pytest
import torch
from torch import nn

from made_vit import TINY
from sgdf.bench.tasks.vit.transformer import SIZES, Classifier, VisionTransformer

COUNTS = {  # of the backbone and with 1,000 classes, by side
    ("vit-b-32", 384): (87_528_192, 88_297_192),
    ("vit-b-32", 224): (87_455_232, 88_224_232),
    ("vit-l-32", 384): (305_607_680, 306_632_680),
}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def images(side=6, number=4):
    return torch.randint(256, (number, 3, side, side), dtype=torch.uint8)


@pytest.mark.parametrize(("name", "side"), COUNTS)
def test_parameters_are_as_many_as_published(name, side):
    with torch.device("meta"):
        model = Classifier(VisionTransformer(SIZES[name], side), 1000)
    assert (count(model.backbone), count(model)) == COUNTS[name, side]


def test_the_new_head_says_nothing_at_first():
    model = Classifier(VisionTransformer(TINY, 6), 5)
    assert torch.equal(model(images()), torch.zeros(4, 5))


def test_bytes_become_numbers_from_minus_one_to_one():
    model = Classifier(VisionTransformer(TINY, 6), 5)
    seen = []
    model.backbone.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 6, 6))
    expected = torch.tensor([-1.0, 1.0]).view(2, 1, 1, 1).expand(2, 3, 6, 6)
    torch.testing.assert_close(seen[0], expected)


def test_features_may_stand_in_for_images():
    model = Classifier(VisionTransformer(TINY, 6), 5).eval()
    nn.init.normal_(model.head.weight)
    given = images()
    assert torch.equal(model(model.features(given)), model(given))


def test_gradients_are_those_of_finite_differences():
    model = VisionTransformer(TINY, 4).double()
    inputs = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    names, values = zip(*model.named_parameters(), strict=True)

    def features(*changed):
        return torch.func.functional_call(model, dict(zip(names, changed, strict=True)), (inputs,))

    assert torch.autograd.gradcheck(features, values, fast_mode=True)


def test_training_drops_numbers_of_the_patches_and_of_the_two_layers_alone():
    model = VisionTransformer(TINY, 6, dropout=0.1)
    places = {name: m for name, m in model.named_modules() if isinstance(m, nn.Dropout)}
    assert {module.p for module in places.values()} == {0.1}
    seen = []
    for name, module in places.items():
        module.register_forward_hook(lambda module, inputs, out, name=name: seen.append(name))
    inputs = torch.randn(3, 3, 6, 6)
    first = model(inputs)
    of_blocks = [f"blocks.{block}.mlp.{layer}" for block in (0, 1) for layer in (2, 4)]
    assert seen == ["dropout", *of_blocks]
    assert not torch.equal(model(inputs), first)
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


def test_a_frozen_backbone_stays_in_evaluation_mode():
    model = Classifier(VisionTransformer(TINY, 6, dropout=0.5), 5, is_frozen=True)
    for mode in (True, False, True):
        model.train(mode)
        assert model.head.training is mode
        assert not any(module.training for module in model.backbone.modules())
    assert torch.equal(model.features(images := torch.zeros(1, 3, 6, 6)), model.features(images))


def test_only_the_head_of_a_frozen_one_has_gradients():
    for is_frozen in (True, False):
        model = Classifier(VisionTransformer(TINY, 6), 5, is_frozen)
        model(images()).logsumexp(1).sum().backward()
        head = set(model.head.parameters())
        for parameter in model.parameters():
            assert (parameter.grad is not None) is (parameter in head or not is_frozen)


def test_images_of_another_side_are_taken_after_a_resize():
    model = VisionTransformer(TINY, 6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.resize(10)
    assert model(torch.randn(2, 3, 10, 10)).shape == (2, 8)
    assert model.positions.requires_grad
    for name, value in model.state_dict().items():
        assert name == "positions" or torch.equal(value, before[name])


def test_the_digest_depends_on_every_weight():
    model = VisionTransformer(TINY, 6)
    digests = {model.digest()}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.view(-1)[-1] += 1
            digests.add(model.digest())
    assert len(digests) == 1 + len(list(model.parameters()))
