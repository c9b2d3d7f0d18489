"""DiT and SiT as tasks: data, losses, drawing, latents, resuming while images are drawn."""

import inspect
import re
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from bench_tasks import equal, essence, run_of
from grids import Diary, command, experiment, plan_of
from kept_runs import do
from made_latents import MadeAutoencoder, write_latents
from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks import find_task
from sgdf.bench.tasks.diffusion.examples import PixelBatches
from sgdf.bench.tasks.diffusion.task import DiT, SiT
from sgdf.bench.tasks.images.pixels import to_numbers
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

SUPPORT = Path(__file__).parents[3] / "support"
SMALL = {"sampling_steps": 2, "samples": 40, "sample_batch": 16}
LATENTS = {"data": "latents", "folder": "a", "decoder": "b", "reference": "c"}
both = pytest.mark.parametrize("name", ["dit", "sit"])


def defaults_of(task):
    """Return the options of a task as they are by default."""
    parameters = inspect.signature(task.__init__).parameters
    return {name: known.default for name, known in parameters.items() if name != "self"}


def diffusion_run(name, task=(), **train):
    train = {"epochs": 1, "batch_size": 275, "log_every": 1, **train}  # four steps
    return run_of({"name": name, **SMALL, **dict(task)}, {"name": "adam", "lr": 1e-3}, train)


@both
def test_training_lowers_the_loss(name):
    trainer = Trainer(diffusion_run(name, epochs=2, batch_size=64), Ranks())
    before = trainer.evaluate()
    trainer.fit(lambda trainer: None)
    after = trainer.rows[-1]
    for split in ("validation", "test"):
        assert after[split]["loss"] < 0.8 * before[split]["loss"]


def test_the_parts_of_dits_loss_are_logged_and_sit_has_one():
    rows = {name: Trainer(diffusion_run(name), Ranks()) for name in ("dit", "sit")}
    for trainer in rows.values():
        trainer.fit(lambda trainer: None)
    assert set(rows["sit"].rows[0]["train"]) == {"loss"}
    logged = rows["dit"].rows[0]["train"]
    assert set(logged) == {"loss", "squared_error", "bound"}
    assert logged["loss"] == pytest.approx(logged["squared_error"] + logged["bound"])


@both
def test_held_out_images_are_judged_with_the_same_noise_each_time(name):
    task = find_task(name)(**SMALL)
    task.model.eval()
    with torch.no_grad():
        first = task.evaluate("test")
        torch.manual_seed(5)
        assert task.evaluate("test") == first
        assert task.evaluate("validation") != first


@both
def test_no_guidance_is_guidance_of_one_and_all_classes_are_drawn(name):
    task = find_task(name)(**SMALL)
    for parameter in task.model.parameters():  # at first every output is 0
        torch.nn.init.normal_(parameter, std=0.1)
    task.model.eval()
    asked = []
    task.model.register_forward_hook(lambda module, given, output: asked.append(given[2].tolist()))

    def drawn(scale):
        asked.clear()
        task.guidance = scale
        return task.draw(12, 5, torch.Generator().manual_seed(0))

    with torch.no_grad():
        plain, guided = drawn(1.0), drawn(3.0)
        assert asked[0] == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, *[10] * 12]
        assert torch.equal(drawn(1.0), plain)
        assert asked[0] == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6]
    assert plain.shape == (12, 1, 8, 8)
    assert not torch.equal(plain, guided)


def outcome(name, options):
    """Return two losses, and what a network of random weights draws."""
    torch.manual_seed(0)
    task = find_task(name)(**{**SMALL, **options})
    batches = list(task.batches(300, torch.Generator().manual_seed(0)))
    for parameter in task.model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    with torch.no_grad():
        losses = [task.loss(batch).item() for batch in batches]
        task.model.eval()
        return losses, task.draw(3, 0, torch.Generator().manual_seed(0)).tolist()


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("dit", "side", 16),
        ("dit", "flip", True),
        ("dit", "network", "tiny-4"),
        ("dit", "class_dropout", 0.9),
        ("dit", "sampling_steps", 3),
        ("dit", "guidance", 2.0),
        ("sit", "sampler", "sde"),
    ],
)
def test_options_change_what_is_learned_or_drawn(name, option, value):
    assert outcome(name, {}) == outcome(name, {})
    assert outcome(name, {}) != outcome(name, {option: value})


@pytest.mark.parametrize("sampler", ["heun", "dopri5", "sde"])
def test_every_sampler_draws(sampler):
    steps = {} if sampler == "dopri5" else {"sampling_steps": 2}
    task = SiT(sampler=sampler, **steps)
    task.model.eval()
    images = task.draw(3, 0, torch.Generator().manual_seed(0))
    assert images.isfinite().all()


def test_half_of_the_images_are_mirrored():
    """Of 4,000 images, off by less than five standard deviations: wrong once in a million runs."""
    images = torch.arange(2, dtype=torch.uint8).expand(4000, 1, 1, 2)
    batches = PixelBatches((images, torch.zeros(4000)), 64, torch.Generator().manual_seed(1), True)
    mirrored = torch.cat([batch[:, 0, 0, 0] > batch[:, 0, 0, 1] for batch, _ in batches])
    assert abs(int(mirrored.sum()) - 2000) < 5 * 1000**0.5
    skipped = [batch for batch, _ in batches.skip(20)]
    assert all(
        torch.equal(one, other) for one, (other, _) in zip(skipped, list(batches)[20:], strict=True)
    )


def test_batches_have_all_images_once_and_none_mirrored_without_flip():
    task = DiT(**SMALL)
    found = torch.cat([images for images, _ in task.batches(64, torch.Generator().manual_seed(0))])
    expected = to_numbers(task.examples.images["train"])
    assert torch.equal(found.flatten(1).sum(1).sort().values, expected.flatten(1).sum(1).sort()[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "b4"}, "network = 'b4': must be one of tiny, mini, s, b, l, xl"),
        ({"network": "tiny-3"}, "patch = 3: must divide"),
        ({"class_dropout": 1.0}, "class_dropout = 1.0"),
        ({"sampler": "heun"}, 'sampler = "heun": allowed are ddpm'),
        ({"sampling_steps": 1001}, "^sampling_steps = 1001: allowed are 1 to 1000"),
        ({"data": "latents"}, 'folder: data = "latents" needs it'),
        ({"reference": "x.npz"}, "extractor must be inception or inception-pytorch-fid"),
        ({"data": "digts"}, "data = 'digts': must be one of digits, cifar10, latents.*digits"),
        ({"data": "latent"}, "did you mean.*latents"),
        ({"side": 0}, "side = 0: must be at least 1"),
        ({"side": 7}, "patch = 2: must divide the side of the images, 7"),
        ({"guidance": float("nan")}, "guidance = nan: must be at least 0, and finite"),
        ({"class_dropout": 0.0, "guidance": 2.0}, "guidance = 2.0: needs .* class_dropout = 0"),
        ({"folder": "made"}, "folder = 'made': has no effect with data = \"digits\""),
        ({**LATENTS, "train_images": 5}, "train_images = 5: has no effect"),
        ({**LATENTS, "side": 32}, 'side = 32: has no effect with data = "latents"'),
        ({**LATENTS, "official": False}, "official = False: has no effect"),
        (
            {"data": "cifar10", "side": 32},
            'extractor = "digits-cnn": knows digits alone; .*resnet20',
        ),
        ({"data": "cifar10", "extractor": "resnet20"}, "side = 8: .* have 32; write side = 32"),
        ({"data": "cifar10", "extractor": "resnet20", "side": 15}, "side = 15: .*at least half"),
        ({"data": "cifar10", "validation_images": 1}, "validation_images = 1: must be 0, or"),
    ],
)
def test_options_that_do_not_fit_are_refused_without_data(options, message):
    with pytest.raises(SpecError, match=message):
        DiT.check(**{**defaults_of(DiT), **SMALL, **options})


def test_steps_are_refused_with_a_sampler_that_decides_itself():
    message = 'sampling_steps = 25: has no effect with sampler = "dopri5"'
    with pytest.raises(SpecError, match=message):
        SiT(sampler="dopri5", sampling_steps=25)
    assert SiT(sampler="dopri5", sampling_steps=50).sampler == "dopri5"


@pytest.mark.parametrize(("side", "extractor"), [(16, "resnet20"), (32, "inception")])
def test_photographs_of_half_their_side_are_still_compared(side, extractor):
    options = {**defaults_of(DiT), "data": "cifar10", "side": side, "extractor": extractor}
    DiT.check(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"flip": True}, "no latents of mirrored images"), ({"network": "tiny-3"}, "patch = 3")],
)
def test_what_a_folder_of_latents_does_not_fit_is_refused_before_any_run(
    options, message, tmp_path, monkeypatch
):
    (tmp_path / "flipped").mkdir()
    made = latents_task(tmp_path, monkeypatch, flip=False)
    (tmp_path / "made" / "flipped.npy").unlink()
    monkeypatch.setattr("sgdf.bench.tasks.generative.find_extractor", lambda name: None)
    DiT.provide(**{**made})
    with pytest.raises(SpecError, match=message):
        DiT.provide(**{**made, **options})


def latents_task(folder, monkeypatch, flip=True):
    """Return the options of a task on made-up latents, whose decoder and Inception are small."""
    monkeypatch.setenv("SGDF_DATA", str(folder))
    numbers = np.random.default_rng(0)
    latents = numbers.normal(size=(30, 8, 8, 8)).astype(np.float16) ** 2
    write_latents(folder / "made", latents, flipped=latents[..., ::-1].copy())
    features = numbers.normal(size=(50, 3))
    np.savez(folder / "real.npz", mu=features.mean(0), sigma=np.cov(features.T))
    monkeypatch.setattr(
        "sgdf.bench.tasks.diffusion.latents.read_autoencoder", lambda path: MadeAutoencoder()
    )
    return {
        **SMALL,
        **{"data": "latents", "folder": "made", "decoder": "decoder", "reference": "real.npz"},
        **{"network": "tiny-2", "flip": flip, "extractor": "inception"},
    }


def test_latents_are_trained_on_and_decoded_to_be_scored(tmp_path, monkeypatch):
    task = DiT(**latents_task(tmp_path, monkeypatch))
    assert task.splits == ("test",)
    assert task.examples.shape == (4, 8, 8)
    assert task.evaluate("test") == {}
    assert task.count_examples() == {"train": 30}
    (batch, *_) = task.batches(8, torch.Generator().manual_seed(0))
    assert task.loss(batch).isfinite()
    task.model.eval()
    images = task.draw(2, 0, torch.Generator().manual_seed(0))
    assert images.shape[:2] == (2, 3)
    assert images.abs().max() <= 1


def test_missing_weights_of_inception_are_named_before_any_run(tmp_path, monkeypatch):
    options = latents_task(tmp_path, monkeypatch)
    with pytest.raises(DataError, match=r"pt_inception-2015-12-05-6726825d\.pth.*Get it from"):
        DiT.provide(**options)


def test_all_that_is_missing_is_named_at_once(tmp_path, monkeypatch):
    options = latents_task(tmp_path, monkeypatch)
    monkeypatch.setattr(
        "sgdf.bench.tasks.diffusion.latents.read_autoencoder",
        lambda path: (_ for _ in ()).throw(DataError(f"no decoder {path.name}")),
    )
    options |= {"folder": "nowhere", "reference": "none.npz"}
    with pytest.raises(DataError) as error:
        DiT.provide(**options)
    named = ("pt_inception-2015-12-05", "folder .*nowhere", "no decoder decoder", r"none\.npz")
    for name in named:
        assert re.search(name, str(error.value)), name


@pytest.mark.usefixtures("publishing_at_once")
@both
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(name, tmp_path):
    run = diffusion_run(name, ema_decay=0.9)
    undisturbed, state, _ = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED
    interrupted = Store(tmp_path / "interrupted")
    for step in (1, 3):
        folder, state, line = do(run, interrupted, stop_after=step)
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert equal(essence(folder), essence(undisturbed))


def test_a_run_killed_while_it_draws_goes_on_with_what_it_had_drawn(tmp_path, monkeypatch):
    path = experiment(
        tmp_path,
        task={"name": "killed_drawing:KilledDiT", **SMALL},
        optimizer={"name": "sgdf", "lr": 0.01},
        train={"epochs": 1, "batch_size": 275, "threads": 1, "ema_decay": 0.9},
        seeds=(0,),
    )
    undisturbed = plan_of(path, tmp_path / "undisturbed")
    undisturbed.work(Diary(), threading.Event())
    (run,) = undisturbed.runs
    expected = essence(Store(tmp_path / "undisturbed").folder(run.key))

    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
    monkeypatch.setenv("SGDF_TEST_KILL_AT", "6")  # of four of the picture and three of samples
    store = tmp_path / "store"
    killed = subprocess.run(
        command(path, store, "--checkpoint-every", "0.000001"), capture_output=True, timeout=120
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    monkeypatch.delenv("SGDF_TEST_KILL_AT")
    from killed_drawing import KilledDiT

    KilledDiT.drawn.clear()
    plan_of(path, store).work(Diary(), threading.Event())
    folder = Store(store).folder(run.key)
    assert equal(essence(folder), expected)
    picture = [(first, 16) for first in range(0, 64, 16)]
    assert KilledDiT.drawn == [*picture, (16, 16), (32, 8)]  # the first batch was kept
