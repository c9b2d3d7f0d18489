"""Tasks that draw images: the same noise at every evaluation, scores, pictures, what is kept."""

import math

import pytest
import torch
from torch import nn

from sgdf.bench.errors import SpecError
from sgdf.bench.fidelity.collected import Collected
from sgdf.bench.store.pictures import Picture, Pictures
from sgdf.bench.tasks.generative import SHOWN, Generative, grid
from sgdf.bench.tasks.images.pixels import read_pixels
from sgdf.bench.tasks.images.real_images import RealImages
from sgdf.bench.tasks.long_evaluation import LongEvaluation, silent

PICTURE = [(first, 16) for first in range(0, SHOWN, 16)]


class Painter(Generative):
    """Draws digits that are noise around a grey value."""

    def __init__(self, samples=50, sample_batch=16, side=8):
        images = read_pixels("digits").images
        held_out = {split: images[split] for split in ("validation", "test")}
        super().__init__(RealImages(held_out, 8), side, "digits-cnn", samples, sample_batch)
        self.model = nn.Linear(1, 1)
        self.asked = []

    def batches(self, batch_size, order):
        """Return none: nothing is trained."""
        return []

    def evaluate(self, split):
        """Return nothing cheap."""
        return {}

    def draw(self, count, first, noise, progress=silent):
        """Note what was asked for, and draw it in two steps."""
        self.asked.append((first, count))
        for step in (1, 2):
            progress(step, 2)
        return torch.randn(count, 1, self.side, self.side, generator=noise) * 0.3


class Memory(LongEvaluation):
    """Keeps everything that it is told."""

    def __init__(self, kept=None):
        self.before, self.shown, self.told, self.states = kept or {}, {}, [], {}

    def kept(self, what):
        """Return what was given."""
        return self.before.get(what)

    def advance(self, what, done, total, state):
        """Note it all."""
        self.told.append((what, done, total))
        self.states.setdefault(what, []).append(state and state())

    @property
    def parts(self):
        """The names of the parts, in order."""
        return list(self.states)

    def show(self, name, pixels):
        """Note it."""
        self.shown[name] = pixels


def evaluated(task, memory=None, seed=0):
    """Return the scores on both splits of an evaluation, as the loop makes one."""
    task.evaluation = memory or Memory()
    torch.manual_seed(seed)
    task.begin_evaluation(True)
    return {split: task.evaluate_costly(split) for split in task.splits}


def test_all_samples_are_drawn_once_for_both_splits():
    task, memory = Painter(), Memory()
    scores = evaluated(task, memory)
    assert task.asked == [*PICTURE, (0, 16), (16, 16), (32, 16), (48, 2)]
    told = {part: [done for what, done, _ in memory.told if what == part] for part in memory.parts}
    assert told == {
        "picture": [8, 24, 40, 56],
        "drawing": [8, 16, 24, 32, 40, 48, 49, 50],
        "features of real images, validation": [250, 300],
        "features of real images, test": [250, 397],
    }
    assert scores["validation"] != scores["test"]
    assert set(scores["test"]) == {"frechet_distance", "classifier_score", "precision", "recall"}
    assert not {"fid", "sfid", "inception_score"} & set(scores["test"])


def test_every_evaluation_has_the_noise_of_the_seed():
    task = Painter()
    first, again, other = evaluated(task), evaluated(task), evaluated(task, seed=1)
    assert first == again
    assert first != other


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_an_interrupted_evaluation_continues_to_the_bit(batches):
    whole = Memory()
    expected = evaluated(Painter(), whole)
    task = Painter()
    kept = {"drawing": whole.states["drawing"][2 * batches - 1]}
    assert evaluated(task, Memory(kept)) == expected
    assert task.asked[len(PICTURE) :] == [(0, 16), (16, 16), (32, 16), (48, 2)][batches:]


def test_nothing_is_kept_where_there_is_nothing_to_continue_from():
    memory = Memory()
    evaluated(Painter(), memory)
    assert memory.states["picture"] == [None] * 4
    begun, *later = memory.states["drawing"]
    assert begun is None  # within the first batch
    assert all(Collected.of_state(state).count for state in later)


def test_precision_and_recall_are_of_as_many_real_images_as_drawn_ones():
    assert Generative.kept_features == 10_000
    task, memory = Painter(), Memory()
    task.kept_features = 20
    evaluated(task, memory)
    for part in ("drawing", "features of real images, test"):
        assert len(memory.states[part][-1]["kept"]["features"]) == 20


def test_the_picture_has_noise_of_its_own():
    """That of no batch, even of one that begins where a picture ends."""
    drawn = []

    class Noted(Painter):
        def draw(self, count, first, noise, progress=silent):
            images = super().draw(count, first, noise, progress)
            drawn.append(images)
            return images

    evaluated(Noted(samples=5 * SHOWN, sample_batch=SHOWN))
    assert len(drawn) == 6
    assert not any(torch.equal(drawn[0], batch) for batch in drawn[1:])


class Other:
    """An extractor whose weights are drawn at random before they are read."""

    digest = "0123456789abcdef and more"

    def __init__(self):
        torch.randn(3)

    def to(self, device):
        """Note the device."""
        self.device = device


def test_the_digest_of_published_weights_is_recorded_and_draws_no_random_number(monkeypatch):
    monkeypatch.setattr("sgdf.bench.tasks.generative.find_extractor", lambda name: Other())
    assert "digest of extractor" not in Painter().describe_data()  # it would be trained for that
    task = Painter()
    task._extractor_name = "resnet20"
    before = torch.get_rng_state()
    facts = task.describe_data()
    assert facts["extractor of scores"] == "resnet20"
    assert facts["digest of extractor"] == "0123456789abcdef"
    assert torch.equal(torch.get_rng_state(), before)
    task.to(torch.device("meta"))
    assert task.extractor.device == torch.device("meta")


def test_data_are_described_without_the_weights_too(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    task = Painter()
    task._extractor_name = "inception"
    facts = task.describe_data()
    assert facts["extractor of scores"] == "inception"
    assert "digest of extractor" not in facts


class Simplest(Generative):
    """A task of one's own, without options that the bundled ones have."""

    def __init__(self, grey: float = 0.0):
        images = read_pixels("digits").images
        super().__init__(RealImages({"test": images["test"]}, 8), 8, "digits-cnn", 50, 16)
        self.model, self.grey = nn.Linear(1, 1), grey

    batches = Painter.batches

    def draw(self, count, first, noise, progress=silent):
        """Return noise around the grey."""
        return self.grey + torch.randn(count, 1, 8, 8, generator=noise)


def test_a_task_of_ones_own_needs_no_options_of_the_bundled_ones():
    Simplest.check(grey=0.5)
    Simplest.provide(grey=0.5)
    task = Simplest(grey=0.5)
    assert task.evaluate("test") == {}
    assert math.isfinite(evaluated(task)["test"]["frechet_distance"])


def test_what_a_task_of_ones_own_cannot_score_with_is_refused_when_it_is_made():
    with pytest.raises(SpecError, match="samples must be at least 2"):
        Painter(samples=1)


def test_a_picture_of_the_same_noise_is_shown_at_every_evaluation():
    task, cheap, costly = Painter(), Memory(), Memory()
    evaluated(task, costly)
    task.evaluation = cheap
    torch.manual_seed(0)
    task.begin_evaluation(False)
    assert torch.equal(cheap.shown["samples"], costly.shown["samples"])
    assert cheap.shown["samples"].shape == (8 * 9 - 1, 8 * 9 - 1)


def test_of_large_images_the_picture_has_fewer_and_can_be_kept(tmp_path):
    """Even of noise, which no PNG makes smaller."""
    task, memory = Painter(side=256), Memory()
    task.evaluation = memory
    task.begin_evaluation(False)
    pixels = memory.shown["samples"]
    assert pixels.shape == (4 * 257 - 1, 4 * 257 - 1)
    coloured = pixels[:, :, None].expand(-1, -1, 3)
    whole = Picture(*coloured.shape, coloured.contiguous().numpy().tobytes())
    Pictures(tmp_path).write("samples", 1, whole)


def test_features_of_real_images_continue_to_the_bit():
    whole = Memory()
    expected = evaluated(Painter(), whole)
    name = "features of real images, test"
    again = Memory({name: whole.states[name][0]})
    assert evaluated(Painter(), again) == expected
    assert len(again.states[name]) == 1


@pytest.mark.parametrize("samples", [2, 3])
def test_few_samples_have_a_distance_but_no_precision(samples):
    for found in evaluated(Painter(samples=samples)).values():
        assert set(found) == {"frechet_distance", "classifier_score"}


def test_images_that_are_not_numbers_have_no_score():
    task = Painter()
    known = evaluated(task)
    draw = task.draw
    task.draw = lambda *args: draw(*args).index_fill(0, torch.tensor([0]), float("nan"))
    scores = evaluated(task)
    for split in task.splits:
        assert math.isfinite(known[split]["frechet_distance"])
        assert math.isnan(scores[split]["frechet_distance"])
        assert math.isnan(scores[split]["classifier_score"])


def test_scores_are_of_the_weights_at_the_beginning_of_an_evaluation():
    task = Painter()
    evaluated(task)
    drawn = len(task.asked)
    task.evaluate_costly("test")
    assert len(task.asked) == drawn
    task.begin_evaluation(True)
    task.evaluate_costly("test")
    assert len(task.asked) == 2 * drawn


def test_a_grid_has_lines_and_room_for_incomplete_rows():
    images = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1).expand(5, 3, 2, 2)
    picture = grid(images, columns=2)
    assert picture.shape == (8, 5, 3)
    assert picture[:, :, 0].tolist() == [
        [0, 0, 255, 1, 1],
        [0, 0, 255, 1, 1],
        [255] * 5,
        [2, 2, 255, 3, 3],
        [2, 2, 255, 3, 3],
        [255] * 5,
        [4, 4, 255, 255, 255],
        [4, 4, 255, 255, 255],
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extractor": "incepton"}, "extractor = 'incepton'.*did you mean.*inception"),
        ({"samples": 1}, "samples must be at least 2"),
        ({"sample_batch": 0}, "sample_batch at least 1"),
    ],
)
def test_what_cannot_be_scored_is_refused(changes, message):
    options = {"extractor": "digits-cnn", "samples": 10, "sample_batch": 5, **changes}
    with pytest.raises(SpecError, match=message):
        Painter.check(**options)
