"""Photographs in the layout of VOC: coloured rectangles on noise, and XML that says where."""

import numpy as np

from sgdf.bench.tasks.detection.photographs import PhotographSet

COLOURS = {"square": (230, 60, 50), "bar": (40, 90, 220), "dot": (60, 200, 80)}
SIZES = {"square": (20, 20), "bar": (30, 12), "dot": (10, 10)}
SHAPES = PhotographSet(
    title="Shapes",
    splits={
        "train": (("made/SHAPES", "train"),),
        "validation": (("made/SHAPES", "val"),),
        "test": (("made/SHAPES", "test"),),
    },
    counts={"train": 8, "validation": 4, "test": 4},
    classes=tuple(COLOURS),
    origin="The test writes them.",
)
LISTS = {"train": 8, "val": 4, "test": 4}


def thing(name, box, difficult=None):
    """Return the XML of one thing."""
    sides = "".join(
        f"<{side}>{value}</{side}>"
        for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    flag = "" if difficult is None else f"<difficult>{difficult}</difficult>"
    return f"<object><name>{name}</name>{flag}<bndbox>{sides}</bndbox></object>"


def annotation(*things, width=64, height=48):
    """Return the XML of a photograph with these things."""
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation><filename>x.jpg</filename>{size}{''.join(things)}</annotation>".encode()


def write_photographs(folder, seed=0):
    """Write sixteen photographs, every third upright, with two to four things each."""
    from PIL import Image

    numbers = np.random.default_rng(seed)
    place = folder / "made" / "SHAPES"
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (place / name).mkdir(parents=True)
    first = 0
    for split, count in LISTS.items():
        names = [f"{first + number:04}" for number in range(count)]
        first += count
        (place / f"ImageSets/Main/{split}.txt").write_text("".join(f"{n}\n" for n in names))
        for name in names:
            width, height = (48, 64) if int(name) % 3 == 0 else (64, 48)
            pixels = numbers.integers(90, 130, (height, width, 3)).astype(np.uint8)
            things = []
            for _ in range(int(numbers.integers(2, 5))):
                kind = str(numbers.choice(list(COLOURS)))
                wide, tall = SIZES[kind]
                left = int(numbers.integers(0, width - wide))
                top = int(numbers.integers(0, height - tall))
                pixels[top : top + tall, left : left + wide] = COLOURS[kind]
                things.append(
                    thing(kind, (left + 1, top + 1, left + wide, top + tall), len(things) == 3)
                )
            things = [t.replace("True", "1").replace("False", "0") for t in things]
            Image.fromarray(pixels).save(place / f"JPEGImages/{name}.jpg", quality=95)
            content = annotation(*things, width=width, height=height)
            (place / f"Annotations/{name}.xml").write_bytes(content)
    return folder
