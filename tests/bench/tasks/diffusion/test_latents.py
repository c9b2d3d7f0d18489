"""Latents from a folder: what batches consist of, what is refused, and how they are decoded."""

import io
import os
import sys
import tracemalloc

import numpy as np
import pytest
import torch

from made_latents import (
    MadeAutoencoder,
    autoencoder_folder,
    install,
    save_real_autoencoder,
    write_latents,
)
from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.tasks.diffusion import latents as module
from sgdf.bench.tasks.diffusion.latents import Decoder, LatentBatches, Latents


def order(seed=0):
    return torch.Generator().manual_seed(seed)


def numbered(count, channels=4, side=2, dtype=np.float32):
    """Return latents that are all the number of their image."""
    return np.broadcast_to(np.arange(count), (side, side, channels, count)).T.astype(dtype)


def random_gaussians(count, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).random((count, 8, 2, 2)).astype(dtype)


@pytest.fixture
def folder(tmp_path):
    """Means and deviations of 20 images and of their mirror images, in three classes."""
    return write_latents(tmp_path / "made", random_gaussians(20), random_gaussians(20, seed=1))


def equal(ours, theirs):
    """Return whether two lists of batches are the same to the last bit."""
    return len(ours) == len(theirs) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(ours, theirs, strict=True)
    )


# What batches consist of


def test_a_folder_says_what_it_has(folder):
    latents = Latents(folder)
    assert (latents.shape, latents.count, latents.class_count) == ((4, 2, 2), 20, 3)
    assert (latents.factor, latents.has_flipped) == (0.5, True)
    assert latents.digest.endswith(" of 20 rows")


def test_a_relative_name_is_taken_in_the_folder_of_the_data(folder, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(folder.parent))
    assert Latents("made").folder == folder
    monkeypatch.setenv("SGDF_DATA", str(folder))
    with pytest.raises(DataError, match=f"there is no folder {folder / 'made'}"):
        Latents("made")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_an_epoch_has_each_image_once_with_its_class_and_the_factor(tmp_path, dtype):
    classes = np.arange(50)[::-1] % 7
    folder = write_latents(tmp_path, numbered(50, dtype=dtype), labels=classes, classes=7)
    batches = list(LatentBatches(Latents(folder), 8, order(), flip=True))
    assert [len(found) for found, _ in batches] == [8] * 6 + [2]
    found, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert (found.dtype, labels.dtype) == (torch.float32, torch.int64)
    rows = found[:, 0, 0, 0] * 2  # the factor is a half
    assert torch.equal(found, (rows / 2).view(-1, 1, 1, 1).expand(-1, 4, 2, 2))
    assert sorted(rows.tolist()) == list(range(50))
    assert rows.tolist() != list(range(50))
    assert torch.equal(labels, torch.from_numpy(classes.copy())[rows.long()])


def test_another_seed_is_another_order(folder):
    latents = Latents(folder)
    assert equal(
        list(LatentBatches(latents, 8, order(), flip=True)),
        list(LatentBatches(latents, 8, order(), flip=True)),
    )
    ours, theirs = (
        next(iter(LatentBatches(latents, 8, order(seed), flip=True))) for seed in (0, 1)
    )
    assert not torch.equal(ours[0], theirs[0])


def test_batches_are_skipped_exactly(folder):
    latents = Latents(folder)
    whole = list(LatentBatches(latents, 3, order(), flip=True))
    assert len(whole) == 7
    for count in range(8):
        rest = LatentBatches(latents, 3, order(), flip=True).skip(count)
        assert len(rest) == 7 - count
        assert equal(list(rest), whole[count:])
        assert equal(list(rest), whole[count:])  # nor does going through them change them
    epoch = LatentBatches(latents, 3, order(), flip=True)
    assert equal(list(epoch.skip(2).skip(3)), whole[5:])
    assert equal(list(epoch), whole)  # which has skipped nothing itself


def test_no_random_number_is_drawn_but_from_the_order(folder):
    before = torch.get_rng_state()
    list(LatentBatches(Latents(folder), 3, order(), flip=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_are_read_in_the_order_of_the_file(folder, monkeypatch):
    latents, read = Latents(folder), []

    class Watched:
        shape = (20, 8, 2, 2)

        def __init__(self, array):
            self.array = array

        def __getitem__(self, rows):
            read.append(rows.tolist())
            return self.array[rows]

    expected = list(LatentBatches(latents, 9, order(), flip=True))
    monkeypatch.setattr(latents, "_latents", Watched(latents._latents))
    monkeypatch.setattr(latents, "_flipped", Watched(latents._flipped))
    assert equal(list(LatentBatches(latents, 9, order(), flip=True)), expected)
    assert sum(map(len, read)) == 20
    assert max(map(len, read)) > 2
    assert all(rows == sorted(rows) for rows in read)


def test_half_of_the_images_are_mirrored(tmp_path):
    """In four epochs of 1,000 images. By chance it fails with one seed in 100,000."""
    latents = Latents(write_latents(tmp_path, numbered(1000), -numbered(1000)))
    epochs = []
    for seed in range(4):
        found = torch.cat(
            [part[:, 0, 0, 0] for part, _ in LatentBatches(latents, 64, order(seed), flip=True)]
        )
        assert sorted(found.abs().tolist()) == [row / 2 for row in range(1000)]
        mirrored = torch.zeros(1000)
        mirrored[(found.abs() * 2).long()] = (found < 0).float()
        epochs.append(mirrored[1:])  # the first one's latents are 0, which has no sign
    share, count = torch.stack(epochs).mean(), 4 * 999
    assert abs(share - 0.5) < 4.42 * 0.5 / count**0.5
    assert not torch.equal(epochs[0], epochs[1])


@pytest.mark.parametrize(("flipped", "flip"), [(None, True), (-numbered(40) - 1, False)])
def test_none_is_mirrored_if_there_is_none_or_none_is_wanted(tmp_path, flipped, flip):
    latents = Latents(write_latents(tmp_path, numbered(40), flipped))
    assert all((part >= 0).all() for part, _ in LatentBatches(latents, 9, order(), flip=flip))


def test_latents_are_drawn_from_the_gaussians_of_the_encoder(tmp_path):
    """Mean and variance of 64,000 numbers. By chance it fails with one seed in 50,000."""
    stored = np.full((2000, 8, 4, 4), 3.0, np.float16)
    stored[:, 4:] = 2.0
    stored[:, 1], stored[:, 5] = -5.0, 0.0  # a channel that is known exactly
    latents = Latents(write_latents(tmp_path, stored))
    found = torch.cat([part for part, _ in LatentBatches(latents, 256, order(), flip=True)])
    assert torch.equal(found[:, 1], torch.full((2000, 4, 4), -2.5))
    noise = ((found[:, [0, 2]] / 0.5 - 3.0) / 2.0).double()
    assert abs(noise.mean()) < 4.42 / noise.numel() ** 0.5
    assert abs(noise.var() - 1.0) < 4.42 * (2 / noise.numel()) ** 0.5
    assert len(noise[:, 0, 0, 0].unique()) == 2000  # no batch has the noise of another


def test_large_files_are_not_loaded(tmp_path):
    count = 65_536
    made = write_latents(tmp_path, random_gaussians(2), labels=np.zeros(count, np.int64))
    np.lib.format.open_memmap(made / "latents.npy", "w+", np.float16, (count, 8, 32, 32))
    assert (made / "latents.npy").stat().st_size > 2**30
    tracemalloc.start()
    try:
        latents = Latents(made)
        found, _ = next(iter(LatentBatches(latents, 64, order(), flip=True)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.shape == (64, 4, 32, 32)
    assert peak < 50 * 2**20
    assert latents.digest.endswith(" of 256 of 65,536 rows")


# The digest


def test_the_digest_depends_on_what_batches_consist_of_alone(folder, tmp_path):
    before = Latents(folder).digest
    plain, flipped = random_gaussians(20), random_gaussians(20, seed=1)
    moved = write_latents(tmp_path / "moved", plain, flipped, encoder="the same by another name")
    assert Latents(moved).digest == before
    changed = plain.copy()
    changed[7, 2, 1, 1] += 0.5
    others = [
        write_latents(tmp_path / "1", changed, flipped),
        write_latents(tmp_path / "2", plain, changed),
        write_latents(tmp_path / "3", plain),
        write_latents(tmp_path / "4", plain, flipped, labels=np.zeros(20, np.int64)),
        write_latents(tmp_path / "5", plain, flipped, factor=0.6),
        write_latents(tmp_path / "6", plain[:, :4], flipped[:, :4]),
        write_latents(tmp_path / "7", plain.astype(np.float16), flipped.astype(np.float16)),
    ]
    assert len({before, *(Latents(other).digest for other in others)}) == 8


def test_of_many_rows_some_are_hashed_and_it_is_stated(folder, monkeypatch):
    monkeypatch.setattr(module, "HASHED_BYTES", 5 * 2 * 8 * 4 * 4)
    assert Latents(folder).digest.endswith(" of 5 of 20 rows")


# What is refused


def saved(name, change):
    """Return a damage: an array of the folder is read, changed, and written."""

    def damage(folder):
        np.save(folder / name, change(np.load(folder / name)))

    return damage


def put(rows, value):
    """Return a change of an array: some of its rows have one other number."""

    def change(array):
        array[(rows, *(-1 for _ in array.shape[1:]))] = value
        return array

    return change


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def facts(**changed):
    return lambda folder: write_latents(
        folder, random_gaussians(20), random_gaussians(20), **changed
    )


def packed(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def replaced_by_folder(name):
    def damage(folder):
        (folder / name).unlink(missing_ok=True)
        (folder / name).mkdir()

    return damage


def replaced_by_pipe(name):
    def damage(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return damage


def incomplete(folder):
    (folder / "latents.json").rename(folder / "progress.json")


def cut_short(folder):
    content = (folder / "latents.npy").read_bytes()
    (folder / "latents.npy").write_bytes(content[: len(content) // 2])


DAMAGES = {
    "no latents": (lambda f: (f / "latents.npy").unlink(), r"lacks latents\.npy\."),
    "no classes": (lambda f: (f / "classes.npy").unlink(), r"lacks classes\.npy\."),
    "no facts": (lambda f: (f / "latents.json").unlink(), r"lacks latents\.json\."),
    "incomplete": (incomplete, "is not complete: give the command that began it again"),
    "a pipe": (replaced_by_pipe("latents.npy"), r"lacks latents\.npy\."),
    "a pipe of mirrored": (replaced_by_pipe("flipped.npy"), r"flipped\.npy is not a file"),
    "a folder of mirrored": (replaced_by_folder("flipped.npy"), r"flipped\.npy is not a file"),
    "no JSON": (written("latents.json", b"{"), r"latents\.json cannot be read: JSONDecodeError"),
    "no text": (written("latents.json", b"\xff\xfe\xfd"), r"latents\.json cannot be read: Unicode"),
    "deep": (written("latents.json", b"[" * 99_999), r"latents\.json cannot be read: Recursion"),
    "huge": (written("latents.json", b" " * 2**21), r"latents\.json cannot be read: DamagedError"),
    "a list": (written("latents.json", b"[]"), r"latents\.json has no keys, but list"),
    "factor 0": (facts(factor=0), r"factor = 0: must be a number above 0"),
    "factor -1": (facts(factor=-1.0), r"factor = -1\.0: must"),
    "factor true": (facts(factor=True), r"factor = True: must"),
    "factor text": (facts(factor="0.18215"), r"factor = '0\.18215': must"),
    "factor NaN": (facts(factor=float("nan")), r"factor = nan: must"),
    "factor infinite": (facts(factor=float("inf")), r"factor = inf: must"),
    "no factor": (facts(factor=None), r"factor = None: must"),
    "no classes at all": (facts(classes=0), r"classes = 0: must be a whole number above 0"),
    "no side": (facts(side=None), r"side = None: must be a whole number above 0"),
    "half a class": (facts(classes=2.5), r"classes = 2\.5: must"),
    "classes true": (facts(classes=True), r"classes = True: must"),
    "no array": (written("latents.npy", b"not an array"), r"latents\.npy cannot be read: "),
    "empty": (written("latents.npy", b""), r"latents\.npy cannot be read: EOFError"),
    "cut short": (cut_short, r"latents\.npy cannot be read: ValueError"),
    "several": (written("latents.npy", packed(a=np.zeros(3))), r"latents\.npy has several arrays"),
    "three dimensions": (saved("latents.npy", lambda a: a[0]), r"the shape \(8, 2, 2\): must be"),
    "five channels": (saved("latents.npy", lambda a: a[:, :5]), r"the shape \(20, 5, 2, 2\)"),
    "no square": (saved("latents.npy", lambda a: a[:, :, :1]), r"the shape \(20, 8, 1, 2\)"),
    "no pixels": (saved("latents.npy", lambda a: a[:, :, :0, :0]), "(cannot be read|the shape)"),
    "doubles": (saved("latents.npy", lambda a: a.astype("f8")), "float64 numbers: must be float16"),
    "integers": (saved("latents.npy", lambda a: a.astype("i1")), "int8 numbers: must be float16"),
    "other bytes": (saved("latents.npy", lambda a: a.astype(">f4")), ">f4 numbers: must be"),
    "fewer mirrored": (
        saved("flipped.npy", lambda a: a[:19]),
        r"flipped\.npy is float32 \(19, 8, 2, 2\), but latents\.npy float32 \(20, 8, 2, 2\)",
    ),
    "mirrored of other type": (
        saved("flipped.npy", lambda a: a.astype("f2")), r"flipped\.npy is float16"
    ),
    "classes of type float": (
        saved("classes.npy", lambda a: a.astype("f4")), r"classes\.npy is float32 \(20,\): must be"
    ),
    "fewer classes": (saved("classes.npy", lambda a: a[:19]), r"classes\.npy is int64 \(19,\)"),
    "classes in rows": (saved("classes.npy", lambda a: a[:, None]), r"is int64 \(20, 1\)"),
    "a class below 0": (saved("classes.npy", put(4, -1)), "classes from -1 to 2: must be from 0"),
    "a class too high": (saved("classes.npy", put(4, 3)), "from 0 to 3: must be from 0 to 2"),
    "not a number": (saved("latents.npy", put(4, np.nan)), r"latents\.npy has numbers that"),
    "infinite": (saved("flipped.npy", put(4, np.inf)), r"flipped\.npy has numbers that are not"),
    "deviation below 0": (saved("latents.npy", put(19, -1)), "standard deviations below 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.usefixtures("_watchdog")
def test_damaged_folders_are_refused_in_words_that_help(name, folder):
    Latents(folder)
    damage, words = DAMAGES[name]
    damage(folder)
    with pytest.raises(DataError, match=words) as error:
        Latents(folder)
    trouble, _, remedy = str(error.value).partition(".\n")
    assert trouble.startswith("Latents: ")
    assert f"python examples/make_latents.py IMAGES {folder} --vae FOLDER" in remedy
    assert "latents.npy, classes.npy, latents.json and perhaps flipped.npy" in remedy


class Armed:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return os.mkdir, (str(self.trace),)


@pytest.mark.parametrize("name", ["latents.npy", "flipped.npy", "classes.npy"])
def test_nothing_in_a_file_is_executed(name, folder, tmp_path):
    array = np.empty(20, object)
    array[:] = [Armed(tmp_path / "trace") for _ in range(20)]
    np.save(folder / name, array, allow_pickle=True)
    with pytest.raises(DataError, match=f"{name} cannot be read: ValueError"):
        Latents(folder)
    assert not (tmp_path / "trace").exists()


# Decoding


@pytest.fixture
def made(monkeypatch):
    """Let diffusers be a module with a made-up autoencoder; a test may change its class."""

    class Made(MadeAutoencoder):
        pass

    modules = {}
    install(Made, modules)
    for name, found in modules.items():
        monkeypatch.setitem(sys.modules, name, found)
    return Made


@pytest.mark.usefixtures("made")
def test_latents_are_divided_by_the_factor_and_images_cut_off(tmp_path):
    decoder = Decoder(autoencoder_folder(tmp_path))
    latents = torch.tensor([0.02, -0.01, 4.0, 9.0]).view(1, 4, 1, 1).requires_grad_()
    images = decoder(latents, 0.5)
    expected = torch.tensor([0.4, -0.2, 1.0]).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    torch.testing.assert_close(images, expected)
    assert not images.requires_grad
    assert not decoder.network.training
    assert not any(weight.requires_grad for weight in decoder.network.parameters())


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(("side", "sizes"), [(32, [4, 4, 3]), (64, [1] * 11), (128, [1] * 11)])
def test_images_are_decoded_in_parts_of_bounded_size(side, sizes, tmp_path):
    decoder = Decoder(autoencoder_folder(tmp_path))
    latents = torch.randn(11, 4, side, side, generator=order()) / 40
    images = decoder(latents, 1.0)
    assert decoder.network.decoded == sizes
    assert torch.equal(images, decoder.network.decode(latents).sample.clamp(-1, 1))


@pytest.mark.usefixtures("made")
def test_the_decoder_moves_and_takes_latents_with_it(tmp_path):
    decoder = Decoder(autoencoder_folder(tmp_path))
    decoder.to(torch.device("meta"))
    assert decoder(torch.zeros(2, 4, 2, 2), 0.5).device.type == "meta"


@pytest.mark.usefixtures("made")
def test_only_safe_files_on_this_machine_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    read_with = Decoder(autoencoder_folder(tmp_path / "vae").name).network.read_with
    assert read_with["folder"] == tmp_path / "vae"
    assert read_with["local_files_only"] is True
    assert read_with["use_safetensors"] is True


@pytest.mark.usefixtures("made")
def test_reading_a_decoder_draws_no_random_number(tmp_path):
    before = torch.get_rng_state()
    Decoder(autoencoder_folder(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("absent", ["diffusers", "safetensors"])
@pytest.mark.usefixtures("made")
def test_without_diffusers_it_is_said_how_to_get_it(absent, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(SpecError, match=r"pip install 'sgdf\[latents\]'"):
        Decoder(autoencoder_folder(tmp_path))


def test_no_autoencoder_is_refused(tmp_path, made, monkeypatch):
    def refused(words):
        with pytest.raises(DataError, match=words) as error:
            Decoder(tmp_path / "vae")
        assert str(error.value).startswith(f"{tmp_path / 'vae'} is no autoencoder for latents: ")
        assert "diffusion_pytorch_model.safetensors" in str(error.value)

    refused("no folder")
    (tmp_path / "vae").mkdir()
    refused(r"it has no config\.json")
    autoencoder_folder(tmp_path / "vae")
    Decoder(tmp_path / "vae")
    settings = dict(made.settings)
    for changed, words in [
        ({"latent_channels": 16}, "latents have 16 channels: must be 4"),
        ({"shift_factor": 0.1}, "shift_factor: latents can be multiplied by a factor only"),
        ({"latents_mean": [0.0]}, "latents_mean: latents can be"),
    ]:
        monkeypatch.setattr(made, "settings", {**settings, **changed})
        refused(words)
    monkeypatch.setattr(made, "settings", settings)
    monkeypatch.setattr(made, "missing", ("decoder.b", "decoder.a"))
    refused(r"the weights lack 2 tensors, as decoder\.a\.")
    monkeypatch.delattr(made, "missing")

    def broken(folder, **options):
        raise OSError("first line\nsecond line.")

    monkeypatch.setattr(made, "from_pretrained", broken)
    refused(r"OSError: first line second line\.\n")


# With diffusers itself


def test_an_autoencoder_that_diffusers_has_saved_decodes(tmp_path):
    folder = tmp_path / "vae"
    network = save_real_autoencoder(folder)
    before = torch.get_rng_state()
    decoder = Decoder(folder)
    assert torch.equal(torch.get_rng_state(), before)
    latents = torch.randn(5, 4, 8, 8, generator=order())
    expected = network.decode(latents / 0.5).sample.clamp(-1, 1)
    torch.testing.assert_close(decoder(latents, 0.5), expected)


def test_weights_that_are_pickled_cut_short_or_of_another_network_are_refused(tmp_path):
    folder = tmp_path / "vae"
    network = save_real_autoencoder(folder)
    (weights,) = folder.glob("*.safetensors")
    content = weights.read_bytes()
    weights.write_bytes(content[:-100])
    with pytest.raises(DataError, match="is no autoencoder for latents"):
        Decoder(folder)
    from safetensors.torch import save_file

    lacking = dict(list(network.state_dict().items())[1:])
    save_file(lacking, weights, metadata={"format": "pt"})
    with pytest.raises(DataError, match="the weights lack 1 tensors"):
        Decoder(folder)
    weights.unlink()
    torch.save(network.state_dict(), folder / "diffusion_pytorch_model.bin")
    with pytest.raises(DataError, match="is no autoencoder for latents"):
        Decoder(folder)
