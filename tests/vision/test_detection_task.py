"""The tasks of detection: losses, evaluations, pictures, and runs that resume to the bit."""

import resource
import sys

import pytest
import torch
from torch import nn

from bench_tasks import equal, essence, run_of
from kept_runs import do
from made_detection import SMALL, LargeShapes, Shapes, write_data
from made_photographs import SHAPES
from sgdf.bench.errors import DataError, SpecError, StoreError
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks.detection.boxes import Found
from sgdf.bench.tasks.detection.coco_weights import CLASSES, FILE
from sgdf.bench.tasks.detection.drawing import colour, draw
from sgdf.bench.tasks.detection.gallery import Gallery
from sgdf.bench.tasks.detection.networks import large_detector, small_detector
from sgdf.bench.tasks.detection.pretraining import pretrained, shapes_of
from sgdf.bench.tasks.detection.task import SHOWN, BloodCells, PascalVOC
from sgdf.bench.tasks.long_evaluation import LongEvaluation

OPTIONS = {"longest": 64, "pretraining_epochs": 1}
TRAIN = {"epochs": 2, "batch_size": 2, "log_every": 1, "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _data(folder, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(folder))


def order(seed=0):
    return torch.Generator().manual_seed(seed)


class Oracle(nn.Module):
    """Finds every box of the photographs that it knows, in their scaled pixels."""

    def __init__(self, gallery):
        super().__init__()
        self.known = [gallery.example(number, flip=False) for number in range(len(gallery))]

    def forward(self, images):
        """Return the boxes of one photograph, as a detector of torchvision's does."""
        pixels = (images[0] * 255).round().to(torch.uint8)
        (example,) = (one for one in self.known if torch.equal(one.pixels, pixels))
        return [
            {
                "boxes": example.boxes,
                "labels": example.classes,
                "scores": torch.full((len(example.boxes),), 0.9),
            }
        ]


class Watched(LongEvaluation):
    """Keeps what it is shown and told, and stops after some photographs if told to."""

    def __init__(self, state=None, stop_at=None):
        self.state, self.stop_at = state, stop_at
        self.shown, self.told = {}, []

    def kept(self, what):
        """Return the state of before."""
        return self.state

    def advance(self, what, done, total, state=None):
        """Keep what is told."""
        self.told.append((what, done, total))
        if done == self.stop_at:
            self.state = state()
            raise KeyboardInterrupt

    def show(self, name, pixels):
        """Keep what is shown."""
        self.shown[name] = pixels


def test_the_loss_is_the_sum_of_four():
    task = Shapes(**OPTIONS)
    logged = {}
    task.model.train()
    numbers = task.step(next(iter(task.batches(2, order()))), lambda loss: logged.update(of=loss))
    parts = {name: value.item() for name, value in numbers.items() if name != "loss"}
    assert set(parts) == {"classifier", "box_reg", "objectness", "rpn_box_reg"}
    assert numbers["loss"].item() == pytest.approx(sum(parts.values()))
    assert logged["of"] is numbers["loss"]
    assert all(value > 0 for value in parts.values())


def test_a_photograph_that_has_nothing_can_be_learned_from():
    task = Shapes(**OPTIONS)
    task.model.train()
    (first, *_) = task.batches(1, order())
    empty = first[0]._replace(boxes=torch.empty(0, 4), classes=torch.empty(0, dtype=torch.long))
    loss = task.loss([empty])
    loss.backward()
    assert loss.isfinite()


@pytest.mark.parametrize("longest", [64, 40])
def test_who_finds_all_boxes_of_scaled_photographs_has_one(longest):
    task = Shapes(longest=longest, pretraining_epochs=1)
    task.model = Oracle(task.galleries["test"])
    # Difficult ones are found too: they neither help nor harm.
    assert task.evaluate("test") == pytest.approx({"ap50": 1, "voc07": 1, "voc10": 1})


def test_an_interrupted_evaluation_continues_where_it_was():
    task = Shapes(**OPTIONS)
    task.model.eval()
    task.model.roi_heads.score_thresh = 0.0  # else it finds nothing before it is trained
    with torch.no_grad():
        whole = task.evaluate("validation")
        task.evaluation = stopped = Watched(stop_at=2)
        with pytest.raises(KeyboardInterrupt):
            task.evaluate("validation")
        task.evaluation = resumed = Watched(stopped.state)
        assert task.evaluate("validation") == whole
    assert [done for _, done, _ in resumed.told] == [3, 4]
    assert {(what, total) for what, _, total in resumed.told} == {("finding boxes, validation", 4)}
    assert whole["voc10"] > 0


def test_every_evaluation_shows_the_same_test_photographs_with_what_is_found():
    task = Shapes(**OPTIONS)
    task.evaluation = Watched()
    task.model = Oracle(task.galleries["test"])
    task.begin_evaluation(False)
    assert list(task.evaluation.shown) == [f"photograph-{i + 1}" for i in range(SHOWN)]
    first = task.evaluation.shown
    task.begin_evaluation(True)
    assert all(torch.equal(first[name], again) for name, again in task.evaluation.shown.items())
    for pixels in first.values():
        assert pixels.dtype == torch.uint8
        assert max(pixels.shape) <= 192
        assert pixels.shape[2] == 3


def test_validation_photographs_are_trained_on_too_where_that_is_wanted():
    task = Shapes(**OPTIONS)
    assert task.count_examples() == {"train": 8, "validation": 4, "test": 4}
    task.train_on_validation()
    assert task.count_examples() == {"train": 12, "test": 4}
    batches = task.batches(1, order())
    assert len(batches) == 12
    pixels = {example.pixels.float().sum().item() for batch in batches for example in batch}
    assert len(pixels) == 12


def test_facts_about_the_data_tell_others_apart(tmp_path, monkeypatch):
    facts = Shapes(**OPTIONS).describe_data()
    assert set(facts) == {
        "data of train", "data of validation", "data of test", "weights before tuning",
    }  # fmt: skip
    digest = Shapes(**OPTIONS).digest
    assert facts == Shapes(**OPTIONS).describe_data()
    assert digest == Shapes(**OPTIONS).digest
    monkeypatch.setenv("SGDF_DATA", str(write_data(tmp_path, seed=1)))
    other = Shapes(**OPTIONS)
    assert other.digest != digest
    assert not set(facts.values()) & set(other.describe_data().values())


# Training before tuning


def test_training_before_is_done_once(monkeypatch, capsys, folder, tmp_path):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    for name in ("made", "weights"):
        (tmp_path / name).symlink_to(folder / name)
    torch.manual_seed(1)
    first = Shapes(longest=64, pretraining_epochs=2)
    assert capsys.readouterr().err.count("Pre-training a detector") == 2
    (kept,) = (tmp_path / "detection").glob("*/*.pt")
    torch.manual_seed(2)
    second = Shapes(longest=64, pretraining_epochs=2)
    assert not capsys.readouterr().err
    ours, theirs = first.model.state_dict(), second.model.state_dict()
    differing = {name for name in ours if not torch.equal(ours[name], theirs[name])}
    assert {name.rpartition(".")[0] for name in differing} == {
        "roi_heads.box_predictor.cls_score", "roi_heads.box_predictor.bbox_pred",
    }  # fmt: skip
    tensors = torch.load(kept)
    name, tensor = next(iter(tensors.items()))
    misfits = [{**tensors, name: tensor[:1]}, {**tensors, "more": tensor}, {name: tensor}, [tensor]]
    for misfit in misfits:
        torch.save(misfit, kept)
        again = Shapes(longest=64, pretraining_epochs=2)
        assert "Pre-training a detector" in capsys.readouterr().err
        assert again.weights == first.weights  # to the bit
    assert Shapes(longest=48, pretraining_epochs=2).weights != first.weights


def test_where_the_trained_detector_cannot_be_kept_nothing_begins(
    monkeypatch, capsys, folder, tmp_path
):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    for name in ("made", "weights"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "detection").write_bytes(b"no folder")
    with pytest.raises(StoreError, match=r"^the detector .* cannot be kept: .*--data FOLDER"):
        Shapes.provide(**OPTIONS, official=True)
    assert not capsys.readouterr().err


def test_training_before_leaves_random_numbers_and_threads_alone(folder):
    gallery, weights = Gallery(SHAPES.read()["train"], 64), folder / "weights/cifar10_resnet20.npz"
    shapes = shapes_of(small_detector(4, weights, 64).state_dict())
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    pretrained(gallery, 4, weights, 3, shapes)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_a_trained_detector_finds_shapes():
    """Eight photographs, which it is then tried on."""
    torch.manual_seed(0)
    task = Shapes(longest=64, pretraining_epochs=1)
    task.model.requires_grad_(True).train()
    optimizer = torch.optim.Adam(task.model.parameters(), lr=2e-3)
    for epoch in range(11):
        for batch in task.batches(2, order(epoch)):
            optimizer.zero_grad()
            task.loss(batch).backward()
            optimizer.step()
    task.model.eval()
    with torch.no_grad():
        assert task.evaluate("train")["ap50"] > 0.5


# Runs


@pytest.mark.usefixtures("publishing_at_once")
def test_a_run_resumed_after_any_step_is_the_same_bit_by_bit(tmp_path):
    run = run_of(SMALL, {"name": "sgdf", "lr": 0.01}, TRAIN)
    undisturbed, state, line = do(run, Store(tmp_path / "undisturbed"))
    assert state is State.FINISHED, line
    steps = undisturbed.result()["step"]
    assert steps == 2 * 4
    interrupted = Store(tmp_path / "interrupted")
    for step in range(1, steps):
        folder, state, line = do(run, interrupted, stop_after=step)
        assert state is State.PAUSED, line
    folder, state, _ = do(run, interrupted)
    assert state is State.FINISHED
    assert equal(essence(folder), essence(undisturbed))


@pytest.mark.parametrize("log_every", [1, 4])
def test_a_run_whose_loss_explodes_is_recorded_as_diverged(tmp_path, log_every):
    """With steps after that one too, which nobody looks at before they are logged."""
    run = run_of(SMALL, {"name": "sgd", "lr": 1e12}, {**TRAIN, "log_every": log_every})
    _, state, line = do(run, Store(tmp_path))
    assert state is State.DIVERGED, line


# What is refused


@pytest.mark.parametrize(
    ("task", "options", "why"),
    [
        (PascalVOC, {"network": "retinanet"}, "network = 'retinanet'"),
        (PascalVOC, {"batch_norm": "freezed"}, "did you mean frozen"),
        (PascalVOC, {"shorter": 900, "longer": 800}, "shorter"),
        (BloodCells, {"longest": 8}, "longest = 8"),
        (BloodCells, {"pretraining_epochs": 0}, "pretraining_epochs = 0: must be at least 1"),
    ],
)
def test_options_that_cannot_be_are_refused(task, options, why):
    with pytest.raises(SpecError, match=why):
        task(**options)


@pytest.mark.parametrize("task", [BloodCells, PascalVOC])
def test_without_data_nothing_begins(tmp_path, monkeypatch, task):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    with pytest.raises(DataError) as error:
        task.provide(**DEFAULTS[task])
    for folder in ("weights", "ImageSets/Main/train.txt"):  # both in one message
        assert folder in str(error.value)
    assert not list(tmp_path.iterdir())


DEFAULTS = {
    BloodCells: {"longest": 240, "pretraining_epochs": 8, "official": True},
    PascalVOC: {
        "network": "fasterrcnn_resnet50_fpn", "batch_norm": "trained", "shorter": 800,
        "longer": 1333, "official": True,
    },
}  # fmt: skip


def test_without_pillow_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(SpecError, match=r"pip install 'sgdf\[vision\]'"):
        Shapes.provide(**OPTIONS, official=True)


# The large one


@pytest.fixture(scope="module")
def with_weights(folder):
    """Put random weights in the format of the published ones where these are expected."""
    torch.save(large_detector(CLASSES, "frozen").state_dict(), folder / "weights" / FILE)


LARGE = {"shorter": 64, "longer": 96, "official": False}


@pytest.mark.usefixtures("with_weights")
@pytest.mark.parametrize("batch_norm", ["trained", "frozen"])
def test_the_large_detector_takes_a_step_and_is_evaluated(batch_norm):
    task = LargeShapes(batch_norm=batch_norm, **LARGE)
    assert task.model.roi_heads.box_predictor.cls_score.out_features == 4
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    task.model.train()
    rate = {"lr": 1e-3}
    (optimizer,) = task.optimizers(lambda params: torch.optim.SGD(params, **rate)).values()
    task.loss(next(iter(task.batches(2, order())))).backward()
    optimizer.step()
    after = task.model.state_dict()
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert "roi_heads.box_predictor.cls_score.weight" in moved
    assert "backbone.body.conv1.weight" not in moved
    # Even where its layers are not trained, BatchNorm follows the means of what it sees.
    assert ("backbone.body.bn1.running_mean" in moved) == (batch_norm == "trained")
    task.model.eval()
    with torch.no_grad():
        assert set(task.evaluate("test")) == {"ap50", "voc07", "voc10"}


@pytest.mark.slow
@pytest.mark.usefixtures("with_weights")
def test_a_step_at_full_size_takes_less_than_eight_gigabytes():
    task = LargeShapes(official=False)  # scaled to 800 by 1,067
    task.model.train()
    (optimizer,) = task.optimizers(lambda params: torch.optim.SGD(params, lr=1e-3)).values()
    loss = task.loss(next(iter(task.batches(2, order()))))
    loss.backward()
    optimizer.step()
    assert loss.isfinite()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 8 * 2**20


def test_a_picture_has_boxes_around_what_is_surely_found_alone():
    pixels = torch.full((3, 60, 80), 128, dtype=torch.uint8)
    boxes = torch.tensor([[10.0, 10, 30, 30], [40, 10, 70, 50]])
    found = Found(boxes, torch.tensor([0.9, 0.4]), torch.tensor([2, 1]))
    picture = draw(pixels, found, ("cat", "dog"))
    assert picture.shape == (74, 80, 3)
    assert tuple(picture[10, 20].tolist()) == colour(1)
    assert tuple(picture[10, 55].tolist()) == (128, 128, 128)
    assert (picture[60:] != 255).any()  # the legend
    none = draw(
        pixels, Found(boxes[:0], torch.empty(0), torch.empty(0, dtype=torch.long)), ("cat",)
    )
    assert (none[:60] == 128).all()
    assert (none[60:] == 255).all()
    assert draw(torch.zeros(3, 375, 500, dtype=torch.uint8), found, ("cat", "dog")).shape == (
        158, 192, 3,
    )  # fmt: skip
