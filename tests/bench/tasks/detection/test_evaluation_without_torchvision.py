"""Evaluations of a detector that needs no torchvision: it finds nothing."""

import pytest
import torch
from torch import nn

from made_photographs import SHAPES, write_photographs
from sgdf.bench.tasks.detection.gallery import Gallery
from sgdf.bench.tasks.detection.task import SHOWN, Detection
from sgdf.bench.tasks.long_evaluation import LongEvaluation

pytest.importorskip("PIL", reason="needs Pillow, which draws the photographs")


class Blind(nn.Module):
    """Finds nothing in a photograph."""

    def forward(self, images):
        """Return what a detector of torchvision's does."""
        nothing = torch.empty(0)
        return [
            {"boxes": nothing.view(0, 4), "scores": nothing, "labels": nothing.long()}
            for _ in images
        ]


class Shapes(Detection):
    """A detector of shapes that is given its model."""

    photograph_set = SHAPES
    pixels_in_digest = True


class Shown(LongEvaluation):
    """Keeps what it is shown."""

    def __init__(self):
        self.pictures = {}

    def show(self, name, pixels):
        """Keep a picture."""
        self.pictures[name] = pixels


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(write_photographs(tmp_path)))
    galleries = {split: Gallery(part, 64) for split, part in SHAPES.read().items()}
    return Shapes(Blind(), galleries, "none")


@pytest.mark.parametrize("costly", [False, True])
def test_it_begins_and_ends_outside_of_a_run(costly, task):
    assert type(task.evaluation) is LongEvaluation
    task.begin_evaluation(costly)
    assert task.evaluate("test") == {"ap50": 0, "voc07": 0, "voc10": 0}


def test_the_same_photographs_are_shown_without_boxes(task):
    task.evaluation = Shown()
    task.begin_evaluation(costly=False)
    assert list(task.evaluation.pictures) == [f"photograph-{i + 1}" for i in range(SHOWN)]
    assert all(pixels.dtype == torch.uint8 for pixels in task.evaluation.pictures.values())
