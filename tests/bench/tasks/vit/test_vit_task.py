"""The task vit: its data, both of its modes, and that runs resume exactly."""

import gc
import shutil
import weakref

import numpy as np
import pytest
import torch
from PIL import Image

from bench_tasks import equal, essence, run_of, trained
from kept_runs import do
from made_vit import made_arrays
from sgdf import SGDF
from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks.vit import features as features_module
from sgdf.bench.tasks.vit import pretraining
from sgdf.bench.tasks.vit.data import read_data
from sgdf.bench.tasks.vit.files import PicturesInFiles
from sgdf.bench.tasks.vit.task import CROP, ViT
from sgdf.bench.tasks.vit.transformer import SIZES, Size
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("small_data")
SMALL = {"network": "vit-tiny-4", "side": 12, "weights": "random", "validation_images": 10}
HEAD = {**SMALL, "tune": "head"}
CACHED = {**HEAD, "augment": False}
TRAIN = {"epochs": 2, "batch_size": 12, "accumulate": 2, "clip_norm": 1.0, "log_every": 1}
COSINE = {"name": "CosineAnnealingLR", "every": "step"}


def made(seed=0, **options):
    torch.manual_seed(seed)
    return ViT(**{**SMALL, **options})


def with_scores(task):
    """Give the head weights, so that its scores differ, and set the mode of evaluations."""
    with torch.no_grad():
        task.model.head.weight.normal_(generator=torch.Generator().manual_seed(1))
    task.model.eval()
    return task


def order(seed=0):
    return torch.Generator().manual_seed(seed)


def run(**options):
    return run_of({"name": "vit", **SMALL, **options}, {"name": "sgdf", "lr": 0.5}, TRAIN, COSINE)


# Data


@pytest.mark.parametrize(("data", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_splits_have_nothing_in_common_and_classes_in_equal_parts(data, classes):
    task = made(data=data, validation_images=classes)
    assert task.count_examples()["validation"] == classes
    rows = {
        split: {image.numpy().tobytes() for image in images.images}
        for split, images in task.images.items()
    }
    assert not rows["train"] & rows["validation"]
    assert not rows["train"] & rows["test"]
    assert task.images["validation"].classes.bincount().tolist() == [1] * classes
    assert task.model.head.weight.shape == (classes, 64)


def test_fewer_images_are_as_many_of_each_class():
    task = made(train_images=20, test_images=10)
    assert task.count_examples() == {"train": 20, "validation": 10, "test": 10}
    assert task.images["train"].classes.bincount().tolist() == [2] * 10
    assert task.images["test"].classes.bincount().tolist() == [1] * 10


def test_the_paper_protocol_trains_on_the_validation_images_too():
    task = made()
    train, validation = task.images["train"], task.images["validation"]
    task.train_on_validation()
    assert list(task.images) == ["train", "test"]
    both = task.images["train"]
    assert torch.equal(both.images, torch.cat([train.images, validation.images]))
    assert torch.equal(both.classes, torch.cat([train.classes, validation.classes]))
    assert len(both) == 40


def test_pictures_of_the_validation_data_follow_those_for_training(small_data):
    write_food(small_data)
    task = made(**FOOD)
    paths = [
        images.pictures.path(row)
        for images in (task.images["train"], task.images["validation"])
        for row in images.rows.tolist()
    ]
    task.train_on_validation()
    both = task.images["train"]
    assert [both.pictures.path(row) for row in both.rows.tolist()] == paths
    assert len(set(paths)) == len(both) == 12


def test_images_are_held_once(monkeypatch):
    """What is read is let go when its parts are settled."""
    held = []

    def read(*given):
        found = read_data(*given)
        held.append(weakref.ref(found.train))
        return found

    monkeypatch.setattr("sgdf.bench.tasks.vit.task.read_data", read)
    task = made(train_images=10)
    gc.collect()
    assert task.count_examples()["train"] == 10
    assert [reference() for reference in held] == [None]


def test_digits_are_grey_squares_in_three_colours():
    task = made(data="digits", validation_images=300)
    assert task.count_examples() == {"train": 1100, "validation": 300, "test": 397}
    images, classes = next(iter(task.batches(16, order())))
    assert (images.shape, images.dtype, classes.shape) == ((16, 3, 12, 12), torch.uint8, (16,))
    assert torch.equal(images[:, 0], images[:, 2])


def pillow_square(image, side, box=None):
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    piece = picture.crop(box) if box else picture
    square = piece.resize((side, side), Image.Resampling.BILINEAR)
    return as_tensor(square)


def as_tensor(picture):
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


@pytest.mark.parametrize("side", [48, 32, 12])
def test_images_are_resized_as_pillow_does_it(side):
    task = made(side=side)
    test = task.images["test"]
    (images, _), *_ = test.squares(side, batch_size=20)
    expected = torch.stack([pillow_square(image, side) for image in test.images[:20]])
    assert (images.int() - expected.int()).abs().max() <= 1


def test_training_images_are_random_pieces_of_other_places_in_every_epoch():
    task = made(side=48)
    train = task.images["train"]
    batches = train.shuffled(48, 10, order(3), CROP)
    found = torch.cat([images for images, _ in batches])
    rows = torch.cat([rows for _, rows in batches.chunks])
    numbers = batches.numbers.of(0, len(train))
    boxes = [CROP.box(32, 32, of_one) for of_one in numbers]
    expected = [
        pillow_square(train.images[row], 48, box)
        for row, box in zip(rows.tolist(), boxes, strict=True)
    ]
    assert (found.int() - torch.stack(expected).int()).abs().max() <= 1
    shares = [(b.right - b.left) * (b.bottom - b.top) / 32**2 for b in boxes]
    assert min(shares) < 0.3 < 0.8 < max(shares)
    assert not torch.equal(found, torch.cat([i for i, _ in train.shuffled(48, 10, order(4), CROP)]))


def test_pieces_are_at_least_a_twentieth_and_not_turned():
    assert (CROP.area, CROP.flip) == ((0.05, 1.0), 0.0)


@pytest.mark.parametrize("options", [SMALL, {**SMALL, "augment": False}, CACHED])
def test_a_batch_does_not_depend_on_those_before_it(options):
    task = made(**options)
    whole = list(task.batches(7, order()))
    rest = task.batches(7, order()).skip(2)
    assert len(rest) == len(whole) - 2
    assert equal(list(rest), whole[2:])
    for rank in range(3):  # three processes that take turns
        assert equal(list(rest.dealt(rank, 3)), whole[2 + rank :: 3])


def test_without_augmentation_training_images_are_whole():
    task = made(augment=False)
    found = {image.numpy().tobytes() for images, _ in task.batches(8, order()) for image in images}
    whole = {
        i.numpy().tobytes() for images, _ in task.images["train"].squares(12, 8) for i in images
    }
    assert found == whole


def write_food(folder, classes=3, each=4):
    """Write a few pictures of different shapes in the layout of Food-101."""
    place, rng = folder / "food-101", np.random.default_rng(0)
    (place / "meta").mkdir(parents=True)
    names = [f"food{number}" for number in range(classes)]
    (place / "meta/classes.txt").write_text("\n".join(names))
    for split in ("train", "test"):
        lines = [f"{name}/{split}{number}" for name in names for number in range(each)]
        (place / f"meta/{split}.txt").write_text("\n".join(lines))
        for line in lines:
            path = place / f"images/{line}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            colours = rng.integers(256, size=(*rng.integers(20, 60, 2), 3), dtype=np.uint8)
            Image.fromarray(colours).save(path)
    return place


FOOD = {"data": "food101", "official": False, "validation_images": 3}


def test_pictures_in_files_are_read_through_the_pipeline(small_data):
    write_food(small_data)
    task = made(**FOOD)
    assert task.count_examples() == {"train": 9, "validation": 3, "test": 12}
    assert task.images["validation"].classes.tolist() == [0, 1, 2]
    seen = [(images.shape, classes.tolist()) for images, classes in task.batches(5, order())]
    assert [shape for shape, _ in seen] == [(5, 3, 12, 12), (4, 3, 12, 12)]
    assert sorted(seen[0][1] + seen[1][1]) == [0] * 3 + [1] * 3 + [2] * 3
    (images, _), *_ = task.images["test"].squares(12, batch_size=12)
    pictures = task.images["test"].pictures
    for image, row in zip(images, task.images["test"].rows.tolist(), strict=True):
        whole = Image.open(pictures.path(row)).resize((12, 12), Image.Resampling.BILINEAR)
        assert torch.equal(image, as_tensor(whole))


def test_imagenet_is_read_from_its_class_folders(small_data):
    rng = np.random.default_rng(0)
    for split, each in (("train", 3), ("val", 2)):
        for name in ("n01", "n02"):
            folder = small_data / "imagenet" / split / name
            folder.mkdir(parents=True)
            for number in range(each):
                colours = rng.integers(256, size=(30, 20 + number, 3), dtype=np.uint8)
                Image.fromarray(colours).save(folder / f"{number}.png")
    with pytest.raises(DataError, match="Set official = false"):
        made(data="imagenet", validation_images=2)
    task = made(data="imagenet", official=False, validation_images=2)
    assert task.count_examples() == {"train": 4, "validation": 2, "test": 4}
    assert task.images["validation"].classes.tolist() == [0, 1]
    assert task.model.head.weight.shape == (2, 64)
    assert task.evaluate("test")["loss"] == pytest.approx(np.log(2))


def test_a_picture_that_is_none_is_named(small_data):
    bad = write_food(small_data) / "images/food1/test2.jpg"
    bad.write_bytes(b"none")
    with pytest.raises(DataError, match=f"{bad} cannot be read as a picture"):
        made(**FOOD).evaluate("test")


# Options


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "vit-b-16"}, "network = 'vit-b-16': must be one of .*did you mean vit-b-32"),
        ({"data": "pet"}, "data = 'pet': must be one of .*did you mean pets"),
        ({"tune": "heads"}, "tune = 'heads': must be one of all, head; did you mean head"),
        ({"side": 50}, "side = 50: must be a multiple of the patches' side, 4"),
        ({"side": 0}, "side = 0: must be a multiple"),
        ({"dropout": 1.0}, "dropout = 1.0: must be at least 0 and below 1"),
        ({"validation_images": 0}, "validation_images = 0: must be at least 1"),
        ({"pretraining_epochs": 0}, "pretraining_epochs = 0: must be at least 1"),
        ({"train_images": -1}, "train_images = -1: must not be negative"),
        ({"train_images": 31}, "train_images = 31 and validation_images = 10: there are 40"),
        ({"validation_images": 40}, "there are 40 images for both"),
        (
            {"pretraining_epochs": 10},
            "pretraining_epochs = 10: has an effect only with vit-tiny-4 without weights; leave",
        ),
        (
            {"network": "vit-b-32", "side": 64, "weights": "", "pretraining_epochs": 10},
            "pretraining_epochs = 10: has an effect only with vit-tiny-4 without weights; leave",
        ),
        (
            {"tune": "head", "dropout": 0.0},
            'dropout = 0.0: has an effect only with tune = "all"; leave it out',
        ),
        ({"test_images": 21}, "test_images = 21: there are 20"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_run_begins(change, message, tmp_path):
    with pytest.raises(SpecError, match=message):
        made(**change)
    with pytest.raises(SpecError, match=f"task 'vit': .*{message}"):
        Plan((run(**change),), tmp_path / "store").prepare()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("network", ["vit-b-32", "vit-l-32"])
def test_missing_weights_are_told_of_before_a_run_begins(network, small_data, tmp_path):
    name = {"vit-b-32": "ViT-B_32.npz", "vit-l-32": "ViT-L_32.npz"}[network]
    with pytest.raises(DataError) as caught:
        Plan((run(network=network, side=64, weights=""),), tmp_path / "store").prepare()
    place = small_data / "weights/imagenet21k"
    assert f"there is no file {place / name}" in str(caught.value)
    assert f"Get https://storage.googleapis.com/vit_models/imagenet21k/{name}" in str(caught.value)
    assert f"copy it to {place}; or name another folder with --data FOLDER" in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_missing_weights_and_images_are_told_of_together(small_data, tmp_path):
    with pytest.raises(DataError) as caught:
        Plan((run(network="vit-b-32", side=64, weights="", data="pets"),), tmp_path).prepare()
    assert "ViT-B_32.npz" in str(caught.value)
    assert "Oxford-IIIT Pet" in str(caught.value)


@pytest.mark.parametrize("data", ["pets", "cifar100"])
def test_images_that_are_learned_before_are_missed_with_the_rest(data):
    shutil.rmtree(pretraining.CIFAR100.archive.place)
    options = {**ViT_DEFAULTS, **SMALL, "weights": "", "pretraining_epochs": 1, "data": data}
    with pytest.raises(DataError) as caught:
        ViT.provide(**options)
    assert ("Oxford-IIIT Pet" in str(caught.value)) == (data == "pets")
    assert str(caught.value).count(pretraining.CIFAR100.archive.title) == 1


def test_another_file_with_weights_may_be_named(small_data, monkeypatch):
    monkeypatch.setitem(SIZES, "vit-tiny-4", Size(patch=4, hidden=8, blocks=1, heads=2, inner=4))
    arrays = made_arrays(SIZES["vit-tiny-4"], grid=2)
    np.savez(small_data / "mine.npz", **arrays)
    task = made(weights="mine.npz", side=8)
    np.testing.assert_array_equal(task.model.backbone.whole.detach().numpy(), arrays["cls"])
    with pytest.raises(DataError, match=r"weights = 'none.npz': there is no file"):
        made(weights="none.npz")


def test_the_small_network_is_trained_before_the_first_run(small_data, capsys):
    options = {**SMALL, "weights": "", "pretraining_epochs": 1}
    ViT.provide(**ViT_DEFAULTS | options)
    assert "Pre-training vit-tiny-4" in capsys.readouterr().err
    one, other = (made(seed=seed, **options) for seed in (0, 1))
    assert capsys.readouterr().err == ""
    assert one.digest == other.digest != ""
    assert one.describe_data()["weights before tuning"] == one.digest
    assert one.model.backbone.positions.shape == (1, 10, 64)


ViT_DEFAULTS = {
    "data": "cifar10",
    "tune": "all",
    "augment": True,
    "dropout": 0.1,
    "train_images": 0,
    "test_images": 0,
    "official": True,
}


# Modes


@pytest.mark.parametrize("tune", ["all", "head"])
def test_a_step_moves_what_is_tuned_and_nothing_else(tune):
    trainer = Trainer(run(tune=tune), Ranks())
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.fit(lambda trainer: None)
    moved = {
        name
        for name, value in trainer.model.state_dict().items()
        if not torch.equal(value, before[name])
    }
    expected = set(before) if tune == "all" else {"head.weight", "head.bias"}
    assert moved == expected
    given = [p for group in trainer.optimizers["model"].param_groups for p in group["params"]]
    assert len(given) == len(expected)


@pytest.mark.parametrize("data", ["cifar10", "food101"])
def test_kept_features_give_the_same_as_those_computed_anew(data, small_data):
    if data == "food101":
        write_food(small_data)
    more = FOOD if data == "food101" else {}
    kept, anew = (with_scores(made(**{**CACHED, **more})) for _ in range(2))
    anew.is_cached = False
    for split in ("train", "validation", "test"):
        one, other = kept.evaluate(split), anew.evaluate(split)
        assert one["accuracy"] == other["accuracy"]
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
    optimizers = [SGDF(task.model.head.parameters(), lr=0.5) for task in (kept, anew)]
    for epoch in range(3):
        pairs = zip(kept.batches(6, order(epoch)), anew.batches(6, order(epoch)), strict=True)
        for batches in pairs:
            assert batches[0][0].shape[1:] == (64,)
            assert batches[1][0].shape[1:] == (3, 12, 12)
            for task, batch, optimizer in zip((kept, anew), batches, optimizers, strict=True):
                optimizer.zero_grad()
                task.loss(batch).backward()
                optimizer.step()
    for one, other in zip(kept.model.parameters(), anew.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_features_are_computed_once_for_all_runs(small_data, monkeypatch):
    first = with_scores(made(**CACHED)).evaluate("test")
    assert len(list(small_data.glob("vit/*/features.pt"))) == 1
    monkeypatch.setattr(features_module, "_as_bytes", None)  # which would be called
    again = with_scores(made(**CACHED))
    again.model.backbone.forward = None
    assert again.evaluate("test") == first


def test_other_weights_sides_and_images_have_other_features(small_data):
    tasks = [
        made(**CACHED),
        made(seed=1, **CACHED),
        made(**{**CACHED, "side": 16}),
        made(**CACHED, test_images=10),
    ]
    found = [task.features("test")[0] for task in tasks]
    assert [len(features) for features in found] == [20, 20, 20, 10]
    assert not any(torch.equal(found[0], other) for other in found[1:])
    assert len(list(small_data.glob("vit/*/features.pt"))) == 4


def test_features_of_another_shape_or_type_are_computed_anew(small_data):
    expected = made(**CACHED).features("test")
    (file,) = small_data.glob("vit/*/features.pt")
    for wrong in (expected[0][:-1], expected[0].double(), [expected[0]]):
        torch.save(wrong, file)
        assert equal(made(**CACHED).features("test"), expected)


def test_features_of_another_version_are_not_taken(small_data, monkeypatch):
    made(**CACHED).features("test")
    monkeypatch.setattr(features_module, "VERSION", 2)
    made(**CACHED).features("test")
    assert len(list(small_data.glob("vit/*/features.pt"))) == 2


def test_a_damaged_picture_ends_the_features_at_once(small_data, monkeypatch):
    bad = write_food(small_data) / "images/food1/test2.jpg"
    bad.write_bytes(b"none")
    task, begun, squares = made(**(CACHED | FOOD)), [], PicturesInFiles.squares
    monkeypatch.setattr(
        PicturesInFiles, "squares", lambda *given: begun.append(1) or squares(*given)
    )
    with pytest.raises(DataError, match=f"{bad} cannot be read as a picture"):
        task.evaluate("test")
    assert len(begun) == 1


@pytest.mark.parametrize("hindrance", ["no place", "too many"])
def test_features_that_cannot_be_kept_are_computed_by_each_run(hindrance, small_data, monkeypatch):
    expected = made(**CACHED).features("test")
    shutil.rmtree(small_data / "vit")
    if hindrance == "no place":
        (small_data / "vit").write_bytes(b"no folder")
    else:
        monkeypatch.setattr(features_module, "MOST_KEPT", 20 * 64 * 4 - 1)
    assert equal(made(**CACHED).features("test"), expected)
    assert not (small_data / "vit").is_dir()


def test_only_what_nothing_random_touches_is_kept(small_data):
    for options in (SMALL, HEAD, {**SMALL, "augment": False}):
        task = made(**options)
        (inputs, _), *_ = task.batches(8, order())
        assert inputs.dim() == 4
        task.evaluate("test")
    assert not list(small_data.glob("vit/*/features.pt"))


def test_shares_of_an_evaluation_add_up_to_the_whole():
    for options in (SMALL, CACHED):
        task = with_scores(made(**options))
        whole = task.evaluate("test")
        shares = [task.evaluate_share("test", rank, 3) for rank in range(3)]
        counts = [count for _, count in shares]
        assert sum(counts) == 20
        for name, value in whole.items():
            mean = sum(found[name] * count for found, count in shares) / 20
            assert mean == pytest.approx(value, rel=1e-6)


def test_an_evaluation_that_was_interrupted_continues_where_it_was(monkeypatch):
    monkeypatch.setattr("sgdf.bench.tasks.vit.task.EVALUATION_BATCH", 6)
    task = with_scores(made())
    whole, states = task.evaluate("test"), []

    class Kept:
        def kept(self, what):
            return dict(states[1]) if len(states) == 4 else None

        def advance(self, what, done, total, state):
            assert total == 20
            states.append(state())

    task.evaluation = Kept()
    assert task.evaluate("test") == whole
    assert [state["examples"] for state in states] == [6, 12, 18, 20]
    assert task.evaluate("test") == whole
    assert [state["examples"] for state in states[4:]] == [18, 20]


def test_a_loss_on_drawn_classes_has_as_many_examples_as_the_batch():
    task = made()
    loss, count = task.sampled_loss(next(iter(task.batches(6, order()))))
    assert count == 6
    assert loss.item() == pytest.approx(np.log(10))


@pytest.mark.parametrize("options", [{}, {"tune": "head", "augment": False}])
def test_training_lowers_the_loss(options):
    task = {"name": "vit", **SMALL, **options}
    train = {"epochs": 12, "batch_size": 10, "clip_norm": 1.0}
    trainer = trained(run_of(task, {"name": "adam", "lr": 0.003}, train, COSINE))
    rows = [row for row in trainer.rows if row["kind"] == "epoch"]
    assert rows[-1]["test"]["loss"] < 0.9 * np.log(10)


@pytest.mark.parametrize("precision", ["bfloat16", "pure-bfloat16"])
def test_features_are_kept_in_mixed_precision_too(precision):
    train = {**TRAIN, "precision": precision}
    task = {"name": "vit", **CACHED}
    trainer = trained(run_of(task, {"name": "sgdf", "lr": 0.5}, train, COSINE))
    dtype = torch.float32 if precision == "bfloat16" else torch.bfloat16
    assert trainer.task.features("train")[0].dtype is dtype


@pytest.mark.usefixtures("publishing_at_once")
@pytest.mark.parametrize(
    "options", [{}, {"tune": "head"}, {"tune": "head", "augment": False}, {"augment": False}]
)
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(options, tmp_path):
    mine = run(**options)
    undisturbed, state, line = do(mine, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED, line
    steps = undisturbed.result()["step"]
    assert steps == 2 * 2
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps):
        folder, state, line = do(mine, interrupted, stop_after=step)
        assert state is State.PAUSED, line
    folder, state, _ = do(mine, interrupted)
    assert state is State.FINISHED
    for one, other in zip(essence(folder), essence(undisturbed), strict=True):
        assert equal(one, other)
