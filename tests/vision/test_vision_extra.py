"""The library of the extra, as tasks import it."""

from sgdf.bench.tasks import vision_extra


def test_the_library_of_the_extra_is_found():
    assert hasattr(vision_extra.torchvision().models.detection, "fasterrcnn_resnet50_fpn")
