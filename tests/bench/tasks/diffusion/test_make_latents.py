"""``examples/make_latents.py``: which images, how they are cut, and that nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from locations import ROOT, SUPPORT
from made_latents import MadeAutoencoder, autoencoder_folder, install, save_real_autoencoder
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.diffusion.latents import Latents, read_autoencoder

EXAMPLE = ROOT / "examples/make_latents.py"


@pytest.fixture
def example(monkeypatch):
    """The program as a module."""
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    import make_latents

    return make_latents


@pytest.fixture
def made(monkeypatch):
    """Let diffusers be a module with a made-up autoencoder, and keep those that are read."""

    class Made(MadeAutoencoder):
        networks = []  # noqa: RUF012

        def __init__(self):
            super().__init__()
            self.networks.append(self)

    modules = {}
    install(Made, modules)
    for name, found in modules.items():
        monkeypatch.setitem(sys.modules, name, found)
    return Made


def coloured(seed, height=16, width=16):
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture
def images(tmp_path):
    """Ten images of the class b, and four of the class a; 16 pixels high and wide."""
    for number in range(14):
        path = tmp_path / "images" / "bbbbbbbbbbaaaa"[number] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coloured(number).save(path)
    autoencoder_folder(tmp_path / "vae")
    return tmp_path / "images"


@pytest.fixture
def make(example, made, images, monkeypatch):
    """Return what runs the program on the images, in batches of 4."""

    def run(out, *options):
        arguments = [images, out, "--vae", images.parent / "vae", "--side", 16, "--batch", 4]
        monkeypatch.setattr(
            sys, "argv", [str(a) for a in ("make_latents.py", *arguments, *options)]
        )
        example.main()

    return run


def refused(make, words, out, *options):
    """See that the program ends with a message that has these words."""
    with pytest.raises(SystemExit, match=words) as error:
        make(out, *options)
    assert str(error.value).startswith("make_latents.py: ")


def expected_rows(paths):
    """Return what is stored of images that need not be cut."""
    pixels = [np.asarray(Image.open(path)) for path in paths]
    numbers = torch.tensor(np.stack(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1
    gaussian = MadeAutoencoder().encode(numbers).latent_dist
    return torch.cat([gaussian.mean, gaussian.std], 1).half().numpy()


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# What is written


def test_images_are_encoded_in_the_order_of_their_classes_and_names(make, images, tmp_path):
    make(tmp_path / "out", "--flip")
    out = tmp_path / "out"
    assert {p.name for p in out.iterdir()} == {
        "latents.npy", "flipped.npy", "classes.npy", "latents.json"
    }  # fmt: skip
    paths = [*sorted((images / "a").iterdir()), *sorted((images / "b").iterdir())]
    assert np.load(out / "classes.npy").tolist() == [0] * 4 + [1] * 10
    plain, flipped = np.load(out / "latents.npy"), np.load(out / "flipped.npy")
    assert plain.dtype == flipped.dtype == np.float16
    assert np.array_equal(plain, expected_rows(paths))
    np.testing.assert_allclose(flipped, plain[..., ::-1], rtol=2e-3, atol=1e-3)
    assert not np.array_equal(flipped, plain)
    facts = json.loads((out / "latents.json").read_text())
    assert (facts["factor"], facts["side"], facts["classes"]) == (0.25, 16, 2)
    assert facts["encoder"].startswith("vae ")


def test_the_bench_reads_what_was_written(make, tmp_path):
    make(tmp_path / "out")
    latents = Latents(tmp_path / "out")
    assert (latents.shape, latents.count, latents.class_count) == ((4, 4, 4), 14, 2)
    assert (latents.factor, latents.has_flipped) == (0.25, False)


def test_a_limit_takes_images_of_all_classes(make, images, tmp_path):
    make(tmp_path / "out", "--limit", 7)
    assert np.load(tmp_path / "out/classes.npy").tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert json.loads((tmp_path / "out/latents.json").read_text())["classes"] == 2
    paths = [*sorted((images / "a").iterdir()), *sorted((images / "b").iterdir())]
    assert np.array_equal(np.load(tmp_path / "out/latents.npy"), expected_rows(paths[::2]))
    make(tmp_path / "all", "--limit", 99)
    assert len(np.load(tmp_path / "all/classes.npy")) == 14


def test_hidden_folders_are_no_classes_and_other_files_no_images(make, images, tmp_path):
    (images / ".cache").mkdir()
    (images / "b/notes.txt").write_text("no image")
    (images / "README").write_text("no class")
    coloured(99).save(images / "a/last.JPEG")
    make(tmp_path / "out")
    assert np.load(tmp_path / "out/classes.npy").tolist() == [0] * 5 + [1] * 10


def test_it_says_how_far_it_is(make, example, tmp_path, monkeypatch, capsys):
    make(tmp_path / "quiet")
    assert len(capsys.readouterr().out.splitlines()) == 2  # the last batch, and the end
    monkeypatch.setattr(example, "TOLD_EVERY", 0.0)
    make(tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in lines[:-1]] == ["4", "8", "12", "14"]
    assert all(" of 14 images, " in line and line.endswith(" left") for line in lines[:-1])
    assert lines[-1] == f"{tmp_path / 'out'} is complete: 14 images of 2 classes"


# How images are cut


@pytest.mark.parametrize("size", [(16, 16), (16, 40), (57, 16), (33, 90), (31, 31), (401, 260)])
def test_the_middle_of_any_image_is_a_square_of_the_side(example, size):
    assert example.middle_square(coloured(0, *size), 16).size == (16, 16)


def test_an_image_of_the_right_height_is_only_cut(example):
    wide = coloured(0, 16, 41)
    square = np.asarray(example.middle_square(wide, 16))
    assert np.array_equal(square, np.asarray(wide)[:, 12:28])


@pytest.mark.parametrize("halvings", [1, 2, 3])
def test_halving_averages_pixels(example, halvings):
    """Each halving rounds twice to whole numbers, in rows and in columns."""
    times = 2**halvings
    image = coloured(0, 16 * times, 16 * times)
    blocks = np.asarray(image, float).reshape(16, times, 16, times, 3).mean((1, 3))
    square = np.asarray(example.middle_square(image, 16), float)
    assert np.abs(square - blocks).max() <= halvings


def test_what_is_left_of_the_way_is_bicubic(example):
    image = coloured(0, 24, 24)
    expected = image.resize((16, 16), Image.Resampling.BICUBIC)
    assert np.array_equal(example.middle_square(image, 16), np.asarray(expected))
    assert not np.array_equal(expected, image.resize((16, 16), Image.Resampling.BILINEAR))


def test_images_of_other_modes_become_colours_from_minus_one_to_one(example, tmp_path):
    for mode, low, high in [("L", 0, 255), ("CMYK", (255,) * 4, (0,) * 4), ("1", 0, 1)]:
        for value, expected in ((low, -1.0), (high, 1.0)):
            suffix = "jpg" if mode == "CMYK" else "png"
            Image.new(mode, (20, 18), value).save(tmp_path / f"x.{suffix}")
            found = example.pixels(tmp_path / f"x.{suffix}", 16)
            assert found.shape == (3, 16, 16)
            assert torch.allclose(found, torch.tensor(expected), atol=0.02)


# Kills and resumption


def test_a_killed_program_continues_where_it_was(make, made, images, tmp_path, capsys):
    make(tmp_path / "whole", "--flip")
    killed = tmp_path / "killed"
    program = """
import os, signal, sys
import made_latents
class Killed(made_latents.MadeAutoencoder):
    def encode(self, images):
        if len(self.encoded) == 5:  # the mirrored images of the third batch
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(images)
made_latents.install(Killed)
import make_latents
make_latents.main()
"""
    arguments = [images, killed, "--vae", images.parent / "vae", "--side", 16, "--batch", 4]
    folders = os.pathsep.join(map(str, (EXAMPLE.parent, SUPPORT)))
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments), "--flip"],
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert json.loads((killed / "progress.json").read_text())["done"] == 8
    with pytest.raises(DataError, match="is not complete: give the command that began it again"):
        Latents(killed)
    capsys.readouterr()
    make(killed, "--flip")
    assert f"{killed} has 8 images; the others follow" in capsys.readouterr().out
    assert made.networks[-1].encoded == [4, 4, 2, 2]
    assert contents(killed) == contents(tmp_path / "whole")
    assert Latents(killed).digest == Latents(tmp_path / "whole").digest


@pytest.mark.parametrize("moment", ["files", "end"])
def test_a_kill_before_the_first_row_or_after_the_last_loses_nothing(
    moment, make, example, made, tmp_path, monkeypatch
):
    make(tmp_path / "whole")

    class KilledError(BaseException):
        pass

    def kill(*arguments):
        raise KilledError

    with monkeypatch.context() as patch:
        where = (example.np, "save") if moment == "files" else (example.Output, "finish")
        patch.setattr(*where, kill)
        with pytest.raises(KilledError):
            make(tmp_path / "out")
    make(tmp_path / "out")
    assert made.networks[-1].encoded == ([4, 4, 4, 2] if moment == "files" else [])
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_complete_folder_is_left_as_it_is(make, made, tmp_path, capsys):
    make(tmp_path / "out")
    before = contents(tmp_path / "out")
    capsys.readouterr()
    make(tmp_path / "out", "--batch", 5)
    assert capsys.readouterr().out == f"{tmp_path / 'out'} is complete: 14 images\n"
    assert made.networks[-1].encoded == []
    assert contents(tmp_path / "out") == before


def stop_after(count, example, monkeypatch):
    """Let the program be stopped as by Ctrl-C after so many batches."""
    encode, calls = example.encode, []

    def stopping(*arguments):
        calls.append(1)
        if len(calls) > count:
            raise KeyboardInterrupt
        return encode(*arguments)

    monkeypatch.setattr(example, "encode", stopping)


@pytest.mark.parametrize("is_complete", [True, False])
def test_only_the_same_plan_is_continued(
    is_complete, make, example, made, images, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        if is_complete:
            make(out)
        else:
            stop_after(2, example, patch)
            with pytest.raises(SystemExit, match="stopped; the same command continues"):
                make(out)
    before = contents(out)
    refused(make, "begun with side = 16, and not 32", out, "--side", 32)
    refused(make, "begun with flip = False, and not True", out, "--flip")
    refused(make, "begun with images = '.* of 14 names', and not '.* of 3", out, "--limit", 3)
    monkeypatch.setattr(made, "settings", {**made.settings, "scaling_factor": 0.5})
    refused(make, r"begun with factor = 0\.25, and not 0\.5; give the same options", out)
    monkeypatch.undo()
    assert contents(out) == before


def test_an_image_that_is_damaged_is_named_and_can_be_replaced(make, made, images, tmp_path):
    make(tmp_path / "whole")
    bad = images / "b/05.png"
    content = bad.read_bytes()
    bad.write_bytes(content[:200])
    refused(make, r"b/05\.png cannot be read as an image: .*; replace it, and", tmp_path / "out")
    bad.write_bytes(content)
    make(tmp_path / "out")
    assert made.networks[-1].encoded == [4, 2]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


# What is refused


def test_what_cannot_be_is_refused_before_anything_is_written(
    make, example, made, images, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    refused(make, "--side 18: the encoder needs a multiple of 4", out, "--side", 18)
    refused(make, "no autoencoder for latents: no folder", out, "--vae", tmp_path / "none")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "diffusers", None)
        refused(make, r"pip install 'sgdf\[latents\]'", out)
    for folder, words in [("none", "there is no folder"), ("vae", "no images in class folders")]:
        monkeypatch.setattr(sys, "argv", ["", str(tmp_path / folder), str(out), "--vae", "vae"])
        with pytest.raises(SystemExit, match=words):
            example.main()
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--batch", 0), "0: must be above 0"),
        (("--limit", "-1"), "-1: must be above 0"),
        (("--device", "nowhere"), "nowhere: not available: "),
    ],
)
def test_impossible_options_are_refused(options, words, make, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        make(tmp_path / "out", *options)
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_disk_that_is_too_small_is_told_of_before_it_is_full(make, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    needed = 2 * 14 * 8 * 4 * 4 * 2
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed - 1))
    refused(make, r"0\.0 GB are needed, and 0\.0 are free", tmp_path / "out", "--flip")
    assert list((tmp_path / "out").iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=needed))
    make(tmp_path / "out", "--flip")


def test_files_of_others_are_not_touched(make, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/latents.npy").write_bytes(b"mine")
    refused(make, r"has latents\.npy already, and no progress\.json that says", tmp_path / "out")
    assert contents(tmp_path / "out") == {"latents.npy": b"mine"}


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "null", '{"plan": {}}', '{"plan": [], "done": 4}']
    + [json.dumps({"plan": None, "done": done}) for done in (15, -1, "4", None)],
)
def test_damaged_progress_is_refused(content, make, example, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(2, example, patch)
        with pytest.raises(SystemExit, match="stopped"):
            make(out)
    plan = json.loads((out / "progress.json").read_text())["plan"]
    content = content.replace('"plan": null', f'"plan": {json.dumps(plan)}')
    (out / "progress.json").write_text(content)
    refused(make, r"progress\.json is damaged; remove .*, and begin anew", out)


@pytest.mark.parametrize("damage", ["gone", "cut short", "another shape"])
def test_a_file_that_was_changed_in_between_is_not_continued(
    damage, make, example, tmp_path, monkeypatch
):
    path = tmp_path / "out/latents.npy"
    with monkeypatch.context() as patch:
        stop_after(2, example, patch)
        with pytest.raises(SystemExit, match="stopped"):
            make(path.parent)
    if damage == "gone":
        path.unlink()
    elif damage == "cut short":
        path.write_bytes(path.read_bytes()[:-1000])
    else:
        np.save(path, np.zeros((14, 8, 5, 5), np.float16))
    refused(make, r"latents\.npy (cannot be continued|is float16 \(14, 8, 5, 5\))", path.parent)


def test_numbers_that_do_not_fit_are_refused(make, made, tmp_path, monkeypatch):
    encode = MadeAutoencoder.encode

    def huge(self, images):
        gaussian = encode(self, images)
        gaussian.latent_dist.std = gaussian.latent_dist.std * 1e6
        return gaussian

    monkeypatch.setattr(made, "encode", huge)
    refused(make, "not finite, or too large for float16", tmp_path / "out")


# With diffusers itself


def test_an_autoencoder_of_diffusers_encodes(example, images, tmp_path, monkeypatch):
    save_real_autoencoder(tmp_path / "real")
    arguments = [images, tmp_path / "out", "--vae", tmp_path / "real", "--side", 16]
    monkeypatch.setattr(sys, "argv", ["make_latents.py", *map(str, arguments)])
    example.main()
    latents = Latents(tmp_path / "out")
    assert (latents.shape, latents.count, latents.factor) == ((4, 8, 8), 14, 0.18215)
    first = sorted((images / "a").iterdir())[0]
    with torch.no_grad():
        network = read_autoencoder(tmp_path / "real")
        gaussian = network.encode(example.pixels(first, 16)[None]).latent_dist
    found = torch.from_numpy(np.load(tmp_path / "out/latents.npy")[0]).float()
    torch.testing.assert_close(found[:4], gaussian.mean[0], rtol=2e-3, atol=1e-3)
    torch.testing.assert_close(found[4:], gaussian.std[0], rtol=2e-3, atol=1e-3)
