"""The two Faster R-CNNs: their sizes, what of them is trained, and what they begin with."""

import hashlib

import pytest
import torch
from torch import nn

from made_detection import write_data
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.detection import coco_weights
from sgdf.bench.tasks.detection.coco_weights import CLASSES, FILE, load_coco_weights
from sgdf.bench.tasks.detection.networks import (
    ANCHORS,
    freeze_beginning,
    large_detector,
    replace_predictor,
    small_detector,
)


def counts(network):
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in network.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, trained in sizes if trained)


@pytest.mark.parametrize(
    ("batch_norm", "expected"),
    [("frozen", (41_396_536, 41_174_136)), ("trained", (41_449_656, 41_224_312))],
)
def test_the_large_detector_has_as_many_parameters_as_published(batch_norm, expected):
    network = large_detector(CLASSES, batch_norm)
    assert batch_norm == "trained" or counts(network)[0] == 41_755_286
    replace_predictor(network, 21)
    assert counts(network) == expected


def test_stem_and_first_stage_of_the_large_one_are_not_trained():
    network = large_detector(21, "trained")
    fixed = {name for name, one in network.named_parameters() if not one.requires_grad}
    assert {name.split(".")[2] for name in fixed} == {"conv1", "bn1", "layer1"}


def test_frozen_normalisation_has_no_epsilon_as_the_weights_were_made():
    frozen = [m for m in large_detector(21, "frozen").modules() if "Frozen" in type(m).__name__]
    assert len(frozen) == 53
    assert {module.eps for module in frozen} == {0.0}


@pytest.fixture
def weights(tmp_path):
    return write_data(tmp_path) / "weights/cifar10_resnet20.npz"


def test_the_small_detector_has_an_anchor_size_for_each_level(weights):
    network = small_detector(4, weights, 240).eval()
    assert counts(network)[0] == 782_835
    features = network.backbone(torch.zeros(1, 3, 192, 240))
    sides = [tuple(level.shape[1:]) for level in features.values()]
    assert sides == [(32, 96, 120), (32, 48, 60), (32, 24, 30), (32, 12, 15)]
    assert [sizes for (sizes,) in network.rpn.anchor_generator.sizes] == list(ANCHORS)


def test_photographs_come_to_the_small_detector_as_they_are(weights):
    network = small_detector(4, weights, 240)
    pictures = [torch.rand(3, 180, 240), torch.rand(3, 240, 180), torch.rand(3, 170, 240)]
    for picture in pictures:
        images, _ = network.transform([picture])
        assert images.image_sizes == [tuple(picture.shape[1:])]
        mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in
                           ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))  # fmt: skip
        seen = images.tensors[0, :, : picture.shape[1], : picture.shape[2]]
        torch.testing.assert_close(seen, (picture - mean) / deviation)


def test_tuning_leaves_stem_and_first_stage_of_the_small_one_alone(weights):
    network = small_detector(4, weights, 240)
    freeze_beginning(network)
    fixed = {name for name, one in network.named_parameters() if not one.requires_grad}
    assert {name.split(".")[2] for name in fixed} == {"0", "1", "3", "4", "5"}
    assert all(name.startswith("backbone.body.") for name in fixed)


def test_new_last_layers_are_those_of_the_seed(weights):
    def layers(seed):
        network = small_detector(9, weights, 240)
        torch.manual_seed(seed)
        replace_predictor(network, 4)
        return network.roi_heads.box_predictor

    assert layers(0).cls_score.weight.shape == (4, 256)
    assert layers(0).bbox_pred.weight.shape == (16, 256)
    assert torch.equal(layers(0).cls_score.weight, layers(0).cls_score.weight)
    assert not torch.equal(layers(0).cls_score.weight, layers(1).cls_score.weight)


# The weights from COCO


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return where the file with the weights is expected."""
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    (tmp_path / "weights").mkdir()
    return tmp_path / "weights" / FILE


def refused(network=None, **options):
    with pytest.raises(DataError) as error:
        load_coco_weights(network or nn.Linear(1, 1), **options)
    assert f"https://download.pytorch.org/models/{FILE}" in str(error.value)
    assert "258fb6c6" in str(error.value)
    assert "--data FOLDER" in str(error.value)
    return str(error.value)


def test_missing_weights_are_named_with_where_to_get_them_and_where_to_put_them(place):
    message = refused()
    assert f"{place} is missing" in message
    assert f"copy it to {place.parent}" in message


def test_a_file_with_another_checksum_is_taken_only_knowingly(place, monkeypatch):
    network, other = nn.Linear(2, 1), nn.Linear(2, 1)
    torch.save(other.state_dict(), place)
    digest = hashlib.sha256(place.read_bytes()).hexdigest()
    assert f"its SHA-256 is {digest}" in refused(network)
    assert load_coco_weights(network, official=False) == digest
    assert torch.equal(network.weight, other.weight)
    monkeypatch.setattr(coco_weights, "CHECKSUM", digest[:8])
    assert load_coco_weights(network) == digest


def test_files_without_weights_are_refused_in_a_sentence(place):
    place.write_bytes(b"no weights")
    assert "has no weights" in refused(official=False)
    torch.save([1, 2], place)
    assert "has no weights, but list" in refused(official=False)
    torch.save({"weight": torch.zeros(3)}, place)
    assert "does not fit" in refused(official=False)
    torch.save({"weight": "text", "bias": torch.zeros(1)}, place)
    assert "does not fit" in refused(official=False)


def test_a_file_that_would_run_code_is_not_loaded(place):
    torch.save({"weight": Trap()}, place)
    Trap.sprung = False
    assert "has no weights" in refused(official=False)
    assert not Trap.sprung


class Trap:
    """Tells when it is loaded as a pickle."""

    sprung = False

    def __reduce__(self):
        return spring, ()


def spring():
    Trap.sprung = True


def test_weights_made_with_frozen_normalisation_fit_the_trained_one(place):
    """The published file lacks how many batches BatchNorm has seen."""
    made = large_detector(CLASSES, "frozen")
    torch.save(made.state_dict(), place)
    network = large_detector(CLASSES, "trained")
    load_coco_weights(network, official=False)
    theirs, ours = made.state_dict(), network.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert {name.rpartition(".")[2] for name in ours.keys() - theirs.keys()} == {
        "num_batches_tracked"
    }
