"""Pictures in class folders: one folder for each class, as in ``train/n01440764/*.JPEG``."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError
from .folder_index import is_picture, read_index

HASHED_FILES, HASHED_BYTES = 64, 64 * 2**10
"""Pictures of a split that are hashed, evenly spaced, and bytes of each of them."""


class ClassFolders:
    """The pictures of a folder that has a folder for each class.

    Classes are numbered by their sorted names, and pictures sorted by class and name.

    Args:
        folder: the folder with the class folders.
        remedy: what to do if it is not as it should be, to end a message with.

    Attributes:
        classes: the names of the classes.
        targets: the class of each picture.

    Raises:
        DataError: if there is no such folder, or it has no class folders, or pictures beside them,
            or a class has no pictures, or files are no pictures.
    """

    def __init__(self, folder: Path, remedy: str = "") -> None:
        self.folder, self._remedy = folder, remedy
        try:
            self.classes = self._find_classes()
            index = read_index(folder, self.classes)
        except OSError as error:
            raise self.refused(f"{folder} cannot be read: {error.strerror}") from error
        except DataError as error:
            raise self.refused(str(error)) from error
        counts = [len(part.names) for part in index]
        empty = [name for name, count in zip(self.classes, counts, strict=True) if not count]
        if empty:
            others = f" and {len(empty) - 1:,} others" if len(empty) > 1 else ""
            raise self.refused(f"{folder / empty[0]}{others} has no pictures")
        self.targets = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        self._names = np.concatenate([part.names for part in index])

    def __len__(self) -> int:
        return len(self.targets)

    def path(self, number: int) -> str:
        """Return the file of a picture."""
        name = os.fsdecode(self._names[number])
        return os.path.join(self.folder, self.classes[int(self.targets[number])], name)

    def digest(self, numbers: Tensor) -> str:
        """Return a digest of some of the pictures: of all names and classes, and of some contents.

        To read all of them would take as long as an epoch.
        """
        content = hashlib.sha256("\n".join(self.classes).encode(errors="surrogateescape"))
        content.update(b"\0".join(self._names[numbers.numpy()].tolist()))
        content.update(self.targets[numbers].numpy().data)
        hashed = min(len(numbers), HASHED_FILES)
        for number in numbers[torch.arange(hashed) * len(numbers) // max(1, hashed)].tolist():
            try:
                with open(self.path(number), "rb") as file:
                    content.update(file.read(HASHED_BYTES))
            except OSError as error:
                raise DataError(f"{self.path(number)} cannot be read: {error.strerror}") from error
        return f"{content.hexdigest()[:16]} of {hashed:,} of {len(numbers):,} pictures"

    def refused(self, trouble: str) -> DataError:
        """Return an error that describes the problem and the remedy."""
        return DataError(f"{trouble}.\n{self._remedy}" if self._remedy else trouble)

    def _find_classes(self) -> list[str]:
        if not self.folder.is_dir():
            raise DataError(f"there is no folder {self.folder}")
        classes, pictures, archives = [], 0, 0
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    classes.append(entry.name)
                else:
                    pictures += is_picture(entry.name)
                    archives += entry.name.endswith(".tar")
        if pictures:
            beside = f"beside its {len(classes):,} class folders" if classes else "and no folders"
            raise DataError(
                f"{self.folder} itself has {pictures:,} pictures, {beside}: each of them has to be "
                "in the folder of its class, since nothing else says what its class is"
            )
        if not classes:
            unpack = f" but {archives:,} archives, each to be unpacked in a folder of its name"
            raise DataError(f"{self.folder} has no class folders{unpack if archives else ''}")
        return sorted(classes)
