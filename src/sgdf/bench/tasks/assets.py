"""Published files: found in a folder, checked, and downloaded if missing and that is allowed."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import DataError, StoreError
from ..store import files
from ..store.files import store_errors

DATA_VARIABLE = "SGDF_DATA"
SILENCE = 20.0
"""Seconds after which a silent server counts as unreachable."""


def data_folder() -> Path:
    """Return the folder of the data sets: ``SGDF_DATA``, or the user's cache folder."""
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = os.environ.get(DATA_VARIABLE) or Path(caches) / "sgdf"
    return Path(folder).expanduser().absolute()


@dataclass(frozen=True)
class PublishedFiles:
    """Files that are known by their checksums, and that users have to get themselves.

    Attributes:
        title: the name of the data set, for messages.
        folder: the folder of the files, in the folder of all data sets.
        files: the names of the files, and their checksums.
        origin: why they are not downloaded, and where to get them.
    """

    title: str
    folder: str
    files: dict[str, str]
    origin: str = ""

    @property
    def place(self) -> Path:
        """The folder in which the files are expected."""
        return data_folder() / self.folder

    @property
    def missing(self) -> list[str]:
        """The names of the missing files."""
        return [name for name in self.files if not (self.place / name).is_file()]

    def provide(self) -> None:
        """See to it that all files are there.

        Raises:
            DataError: if that cannot be, or another folder was probably meant.
        """
        missing = ", ".join(self.missing)
        if missing:
            self._refuse_wrong_folder(missing)
            self._get(missing)

    def content(self, name: str, official: bool = True) -> bytes:
        """Return the content of one of the files.

        Args:
            name: the file.
            official: require the published checksum.

        Raises:
            DataError: if the file is missing, or has another checksum.
        """
        self.provide()
        try:
            content = (self.place / name).read_bytes()
        except OSError as error:
            raise self.refused(f"{self.place / name} cannot be read: {error.strerror}") from error
        digest = hashlib.sha256(content).hexdigest()
        if official and digest != self.files[name]:
            raise self.refused(
                f"{self.place / name} is damaged, or not the published file: its SHA-256 is "
                f"{digest}. {self._replacement}, or set official = false in "
                "[task] to take it knowingly for what it is"
            )
        return content

    def refused(self, trouble: str) -> DataError:
        """Return an error that describes the problem and the remedy."""
        wanted = "\n".join(f"  {sha256}  {name}" for name, sha256 in self.files.items())
        return DataError(
            f"{self.title}: {trouble}.\n"
            f"{self._remedy}; or name another folder with --data FOLDER or {DATA_VARIABLE}. "
            f"It must contain a folder {self.folder} with these files, by SHA-256:\n{wanted}"
        )

    @property
    def _remedy(self) -> str:
        return f"{self.origin}. Copy them to {self.place}"

    @property
    def _replacement(self) -> str:
        return "Replace it"

    @property
    def _new_folder(self) -> str:
        """What to add about a folder that does not exist."""
        return ""

    def _get(self, missing: str) -> None:
        raise self.refused(f"{self.place} lacks {missing}")

    def _refuse_wrong_folder(self, missing: str) -> None:
        """Raise if the data lie near by, or in a folder that does not exist."""
        folder = data_folder()
        for near in (folder.parent, *sorted(_subfolders(folder))):
            if self._has_all_files(near / self.folder):
                raise DataError(
                    f"{self.title}: {self.place} lacks {missing}, but {near / self.folder} has "
                    f"all files; did you mean --data {near}?"
                )
        if self._has_all_files(folder):
            raise DataError(
                f"{self.title}: the files are in {folder} itself; rename it to {self.folder}, and "
                f"say --data {folder.parent}"
            )
        if os.environ.get(DATA_VARIABLE) and not folder.exists():  # ours is made when it is needed
            raise self.refused(
                f"{self.place} lacks {missing}: there is no folder {folder}{self._new_folder}"
            )

    def _has_all_files(self, folder: Path) -> bool:
        return all((folder / name).is_file() for name in self.files)


@dataclass(frozen=True, kw_only=True)
class Archive(PublishedFiles):
    """A ``.tar.gz`` on a server, from which missing files are downloaded.

    Attributes:
        url: the address of the archive, in which the files lie in ``folder``.
        sha256: the checksum of the archive.
        size: the size of the archive in bytes.
    """

    url: str
    sha256: str
    size: int

    @property
    def _remedy(self) -> str:
        return f"Get {self.url} (SHA-256 {self.sha256}) and unpack it in {data_folder()}"

    @property
    def _replacement(self) -> str:
        return "Remove it to have it downloaded again"

    @property
    def _new_folder(self) -> str:
        return "; make it first if they are to be downloaded to it"

    def _get(self, missing: str) -> None:
        what = f"{self.title}, {self.size / 1e6:.0f} MB, from {self.url} to {data_folder()}"
        print(f"Downloading {what}", file=sys.stderr, flush=True)
        try:
            self._fetch()
        except (OSError, http.client.HTTPException, StoreError) as error:
            with contextlib.suppress(OSError):
                self.place.rmdir()  # fails unless the folder is empty
            trouble = f"{self.place} lacks {missing}, and the download failed: {error}"
            raise self.refused(trouble) from error

    def _fetch(self) -> None:
        with store_errors(self.place):
            self.place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.place) as file:
            self._download(file)
            file.seek(0)
            with tarfile.open(fileobj=file) as archive:
                for name in self.missing:
                    member = archive.extractfile(f"{self.folder}/{name}")
                    assert member, "an archive with this checksum has these files"
                    files.write(self.place / name, member.read())

    def _download(self, file: BinaryIO) -> None:
        digest = hashlib.sha256()
        try:
            answer = urllib.request.urlopen(self.url, timeout=SILENCE)
        except urllib.error.HTTPError as error:
            error.close()  # it holds the connection
            raise
        with answer:
            while chunk := answer.read(1 << 20):
                digest.update(chunk)
                file.write(chunk)
        if digest.hexdigest() != self.sha256:
            raise OSError(f"its SHA-256 is {digest.hexdigest()}, not {self.sha256}")


def _subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder; none if it cannot be read."""
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:
        return []
