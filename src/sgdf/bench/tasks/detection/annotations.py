"""Annotations of photographs in VOC's XML: which things they have, in which boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import torch

from ...errors import StoreError, first_line
from ...store import files
from .boxes import Truth

LARGEST = 1 << 20
"""Bytes of the largest file."""
SIDES = ("xmin", "ymin", "xmax", "ymax")
SIZES = ("width", "height")
FLAG = "difficult"
READ: dict[tuple[str, ...], str] = {
    **{("annotation", "size", name): name for name in SIZES},
    **{("annotation", "object", name): name for name in ("name", FLAG)},
    **{("annotation", "object", "bndbox", name): name for name in SIDES},
}
"""Where the facts stand. Parts of a person, who has a box of his own, have boxes too: not here."""
OBJECT = ("annotation", "object")


class NotAnAnnotation(ValueError):  # noqa: N818  # named for what the file is not
    """A file is no annotation of a photograph; the message says why."""


@dataclass(frozen=True)
class Annotation:
    """What a photograph has.

    Attributes:
        width: of the photograph, in pixels.
        height: likewise.
        truth: its boxes. Their coordinates are those of the file, in which the first pixel is 1
            and both ends are in the box, taken as they are for places on a plane, as torchvision
            and the programs built on it do.
    """

    width: int
    height: int
    truth: Truth


def read_annotation(path: Path, names: Sequence[str]) -> Annotation:
    """Return what a file says about its photograph.

    Boxes without width or height are left out: nothing can be found in them.

    Args:
        path: the file.
        names: those of the classes, in the order of their numbers.

    Raises:
        NotAnAnnotation: if the file cannot be read, or says what no annotation does.
    """
    try:
        content = files.read(path, most=LARGEST)
    except StoreError as error:
        raise NotAnAnnotation(first_line(error)) from error
    return parse_annotation(content, names)


def parse_annotation(content: bytes, names: Sequence[str]) -> Annotation:
    """Return what the content of a file says about its photograph.

    Raises:
        NotAnAnnotation: if it says what no annotation does.
    """
    size, objects = _facts(content)
    width, height = (_number(size, name) for name in SIZES)
    if width < 1 or height < 1:
        raise NotAnAnnotation(f"the photograph is {width:g} by {height:g} pixels")
    boxes, classes, difficult = [], [], []
    for thing in objects:
        name = thing.get("name", "")
        if name not in names:
            raise NotAnAnnotation(f"{name!r} is none of the classes {', '.join(names)}")
        left, top, right, bottom = (_number(thing, side) for side in SIDES)
        if left < right and top < bottom:
            boxes.append((left, top, right, bottom))
            classes.append(names.index(name) + 1)
            difficult.append(thing.get(FLAG, "0") == "1")
    truth = Truth(
        torch.tensor(boxes, dtype=torch.float32).view(-1, 4),
        torch.tensor(classes, dtype=torch.long),
        torch.tensor(difficult, dtype=torch.bool),
    )
    return Annotation(int(width), int(height), truth)


def _number(facts: dict[str, str], name: str) -> float:
    try:
        number = float(facts[name])
    except KeyError:
        raise NotAnAnnotation(f"it lacks {name}") from None
    except ValueError:
        raise NotAnAnnotation(f"{name} is {facts[name]!r}, no number") from None
    if not math.isfinite(number):
        raise NotAnAnnotation(f"{name} is {number}")
    return number


@dataclass
class _Reader:
    """Gathers the facts of a file while it is parsed."""

    place: list[str] = field(default_factory=list)
    text: str = ""
    size: dict[str, str] = field(default_factory=dict)
    objects: list[dict[str, str]] = field(default_factory=list)

    def start(self, name: str, _attributes: dict[str, str]) -> None:
        self.place.append(name)
        self.text = ""
        if tuple(self.place) == OBJECT:
            self.objects.append({})

    def data(self, text: str) -> None:
        self.text += text

    def end(self, _name: str) -> None:
        fact = READ.get(tuple(self.place[:5]))  # a place may be deep, but none of these is
        if fact:
            facts = self.size if fact in SIZES else self.objects[-1]
            facts[fact] = self.text.strip()
        self.place.pop()
        self.text = ""


def _refuse_doctype(*_declared: object) -> None:
    raise NotAnAnnotation("it declares a document type, which can define entities without end")


def _facts(content: bytes) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the facts about the photograph, and those about each thing."""
    reader, parser = _Reader(), expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(content, True)
    except NotAnAnnotation:
        raise
    except (expat.ExpatError, ValueError, LookupError) as error:  # by the encoding
        raise NotAnAnnotation(f"it is no XML: {error}") from error
    return reader.size, reader.objects
