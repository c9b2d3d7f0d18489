"""What is said where ImageNet is missing, or not unpacked as it should be; nothing is begun."""

import pytest
from typer.testing import CliRunner

from made_data import tiny
from made_pictures import photograph, write_photographs
from sgdf.bench.tasks.cifar.data import CIFAR100
from sgdf.bench.tasks.imagenet import made
from sgdf.bench.tasks.imagenet.data import CHECKSUMS
from sgdf.cli import app


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder where commands are given, and where there are no data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path


def sgdf(*arguments, code):
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output + repr(result.exception)
    return " ".join(result.output.split())


@pytest.mark.parametrize("name", ["imagenet", "imagenet-runtime"])
def test_missing_data_are_told_with_where_to_get_them(name, place):
    output = sgdf("run", name, code=2)
    assert f"ImageNet: there is no folder {place}/data/imagenet. Nothing is downloaded" in output
    assert "from image-net.org" in output
    assert all(f"{md5} {name}" in output for name, md5 in CHECKSUMS.items())
    assert f"Unpack them so that {place}/data/imagenet has train/CLASS/*.JPEG and val/" in output
    assert output.count("Unpack them") == 1
    assert not (place / "results").exists()


def test_pictures_of_the_test_archive_in_one_place_are_refused_with_the_remedy(place):
    root = write_photographs(place / "data" / "imagenet", train=1, test=0)
    for number in range(4):
        photograph().save(root / "val" / f"ILSVRC2012_val_{number:08}.JPEG")
    for name in ("n01", "n02", "n03"):
        (root / "val" / name).rmdir()
    output = sgdf("run", "imagenet", code=2)
    assert f"{root}/val itself has 4 pictures, and no folders: each of them has to be in" in output
    assert "extract_ILSVRC.sh of github.com/pytorch/examples (imagenet) unpacks both" in output
    assert not (place / "results").exists()


def test_a_training_archive_that_is_unpacked_half_way_is_refused(place):
    (place / "data" / "imagenet" / "train").mkdir(parents=True)
    (place / "data" / "imagenet" / "train" / "n01440764.tar").write_bytes(b"x")
    output = sgdf("run", "imagenet", code=2)
    assert "train has no class folders but 1 archives, each to be unpacked in a folder" in output


def test_what_is_amiss_with_either_split_is_told_at_once(place):
    root = write_photographs(place / "data" / "imagenet", train=2, test=1)
    (root / "train" / "n02" / "n02_1.JPEG").write_bytes(b"<html>")
    (root / "val" / "n03" / "n03_0.JPEG").write_bytes(b"")
    output = sgdf("run", "imagenet", code=2)
    for split, name in (("train", "n02/n02_1.JPEG"), ("val", "n03/n03_0.JPEG")):
        assert (
            f"{root}/{split} has files that are not pictures, or cannot be read: {name}. R"
            in output
        )
    assert output.count("Unpack them") == 1
    assert not (place / "results").exists()


def test_incomplete_data_are_counted(place):
    write_photographs(place / "data" / "imagenet", train=2, test=1)
    output = sgdf("run", "imagenet", code=2)
    assert "has 6 pictures to train on and 3 to test on, of 3 classes; ImageNet has" in output
    assert "1,281,167 and 50,000, of 1,000. Set official = false" in output
    assert not (place / "results").exists()


def test_the_small_experiment_says_that_it_needs_cifar_100(place, monkeypatch):
    missing = tiny(CIFAR100, place / "elsewhere")
    monkeypatch.setattr(made, "CIFAR100", missing)  # which is to be downloaded from nowhere
    output = sgdf("run", "imagenet-small", code=2)
    assert f"CIFAR-100: {place}/data/cifar-100-binary lacks train.bin, test.bin, and" in output
    assert not (place / "results").exists()
    assert not (place / "data" / "cifar100-64").exists()
