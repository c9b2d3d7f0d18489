"""What is read from VOC's XML, and what is refused."""

import pytest

from made_photographs import annotation, thing
from sgdf.bench.tasks.detection.annotations import (
    LARGEST,
    NotAnAnnotation,
    parse_annotation,
    read_annotation,
)

NAMES = ("cat", "person")


def parsed(*things, **size):
    return parse_annotation(annotation(*things, **size), NAMES)


def test_boxes_classes_and_flags_are_those_of_the_file():
    found = parsed(thing("person", (8, 12.5, 352, 498)), thing("cat", (1, 2, 3, 4), difficult=1))
    assert (found.width, found.height) == (64, 48)
    assert found.truth.boxes.tolist() == [[8, 12.5, 352, 498], [1, 2, 3, 4]]
    assert found.truth.classes.tolist() == [2, 1]
    assert found.truth.difficult.tolist() == [False, True]


def test_an_object_without_the_flag_or_with_zero_is_not_difficult():
    found = parsed(thing("cat", (1, 1, 5, 5)), thing("cat", (1, 1, 5, 5), difficult=0))
    assert found.truth.difficult.tolist() == [False, False]


def test_boxes_without_width_or_height_are_left_out():
    found = parsed(
        thing("cat", (5, 5, 5, 9)), thing("cat", (5, 9, 8, 9)), thing("person", (5, 5, 6, 6)),
        thing("cat", (9, 5, 5, 9)),
    )  # fmt: skip
    assert found.truth.boxes.tolist() == [[5, 5, 6, 6]]
    assert found.truth.classes.tolist() == [2]


def test_a_photograph_may_have_nothing():
    found = parsed()
    assert [tuple(tensor.shape) for tensor in found.truth] == [(0, 4), (0,), (0,)]


def test_parts_of_a_person_are_no_things_of_their_own():
    head = "<part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin></bndbox></part>"
    person = thing("person", (8, 12, 35, 49)).replace("</object>", head + "</object>")
    found = parsed(person)
    assert found.truth.boxes.tolist() == [[8, 12, 35, 49]]
    assert found.truth.classes.tolist() == [2]


def test_text_in_pieces_and_spaces_are_read_whole():
    spaced = thing("cat", (1, 1, " 2&#48; ", "\n30\n"))
    assert parsed(spaced).truth.boxes.tolist() == [[1, 1, 20, 30]]


BOMB = b"""<?xml version="1.0"?><!DOCTYPE annotation [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">
]><annotation><size><width>&b;</width></size></annotation>"""


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no XML"),
        (b"\x00\xff\xd8", "no XML"),
        (annotation()[:-4], "no XML"),
        (BOMB, "document type"),
        (b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotation/>', "document type"),
        (b'<?xml version="1.0" encoding="foo"?><annotation/>', "no XML: unknown encoding"),
        (b'<?xml version="1.0" encoding="cp932"?><annotation/>', "no XML: multi-byte"),
        (b'<?xml version="1.0" encoding="utf-32"?><annotation/>', "no XML"),
        (b"<annotation/>", "lacks width"),
        (annotation(width="wide"), "width is 'wide', no number"),
        (annotation(width="nan"), "width is nan"),
        (annotation(height=0), "64 by 0"),
        (annotation(thing("dog", (1, 2, 3, 4))), "'dog' is none of the classes cat, person"),
        (annotation("<object></object>"), "'' is none"),
        (annotation("<object><name>cat</name></object>"), "lacks xmin"),
        (annotation(thing("cat", (1, 2, "inf", 4))), "xmax is inf"),
        (annotation(thing("cat", (1, "two", 3, 4))), "ymin is 'two'"),
    ],
)
def test_what_is_no_annotation_is_refused_in_a_sentence(content, why):
    with pytest.raises(NotAnAnnotation, match=why):
        parse_annotation(content, NAMES)


def test_a_file_that_is_too_large_is_refused(tmp_path):
    path = tmp_path / "large.xml"
    path.write_bytes(annotation())
    assert read_annotation(path, NAMES).width == 64
    path.write_bytes(annotation() + b" " * LARGEST)
    with pytest.raises(NotAnAnnotation, match=r"large\.xml"):
        read_annotation(path, NAMES)


def test_deep_nesting_takes_no_more_than_its_bytes():
    deep = b"<annotation>" + b"<object>" * 20_000
    with pytest.raises(NotAnAnnotation, match="no XML"):
        parse_annotation(deep, NAMES)
