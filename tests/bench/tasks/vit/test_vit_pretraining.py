"""The small transformer that learns CIFAR-100 before the first run."""

import pytest
import torch

from sgdf.bench.errors import DataError
from sgdf.bench.tasks.vit import pretraining
from sgdf.bench.tasks.vit.pretraining import pretrained
from sgdf.bench.tasks.vit.transformer import SIZES, Classifier, VisionTransformer

pytestmark = pytest.mark.usefixtures("small_data")
NAME = "vit-tiny-4"


def made(epochs=1, official=True):
    return pretrained(NAME, epochs, official, dropout=0.0)


def test_it_is_trained_once_and_then_read(monkeypatch, capsys):
    first = made()
    assert "Pre-training vit-tiny-4 on 200 images of CIFAR-100, 1 epoch;" in capsys.readouterr().err
    monkeypatch.setattr(pretraining, "_trained", None)
    assert made().digest() == first.digest()
    assert capsys.readouterr().err == ""


def test_it_is_the_same_wherever_it_is_trained_and_disturbs_nothing(small_data):
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    first = made().digest()
    assert torch.equal(torch.get_rng_state(), before)
    (file,) = small_data.glob("vit/*/weights.npz")
    file.unlink()
    torch.manual_seed(6)
    torch.set_num_threads(2)
    with torch.no_grad():
        assert made().digest() == first
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


def test_other_epochs_and_other_images_make_another_file(small_data):
    digests = {made().digest(), made(epochs=2).digest()}
    file = pretraining.CIFAR100.archive.place / "train.bin"
    content = bytearray(file.read_bytes())
    content[2:3074] = bytes(3072)  # an image
    file.write_bytes(content)
    with pytest.raises(DataError, match="not the published file"):
        made()
    digests.add(made(official=False).digest())
    assert len(digests) == len(list(small_data.glob("vit/*/weights.npz"))) == 3


def test_it_has_learned_something():
    (images, classes), _ = pretraining.CIFAR100.read()
    losses = {}
    for epochs in (1, 12):
        model = Classifier(VisionTransformer(SIZES[NAME], 32), 100)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            pretraining._train(model, images, classes, epochs)
        with torch.no_grad():
            losses[epochs] = torch.nn.functional.cross_entropy(model(images), classes).item()
    assert losses[12] < 0.9 * losses[1]
