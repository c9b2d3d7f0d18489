"""What has been measured of one run, kept on disk as it comes, so that a kill loses little."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..bench.store import files
from ..bench.store.identity import digest
from ..bench.store.lock import hold
from ..bench.store.record_files import to_json


class Record:
    """The measured values of a run, by name, in one file; plain lists, texts and numbers.

    A record belongs to a run and to the settings of the analysis: with other settings the same
    run has another record. A damaged file counts as missing: its values are measured again.

    Args:
        folder: where the records of an analysis are kept.
        run: the key of the run.
        settings: everything that the values depend on; plain JSON.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Record(folder, "0123", {"probes": 2}).keep("trace", [1.5, 2.5])
    >>> Record(folder, "0123", {"probes": 2})["trace"]
    [1.5, 2.5]
    >>> "trace" in Record(folder, "0123", {"probes": 3})
    False
    """

    def __init__(self, folder: Path, run: str, settings: Mapping[str, Any]) -> None:
        self.settings = json.loads(json.dumps(settings))
        name = f"{run}-{digest(json.dumps(self.settings, sort_keys=True).encode())[:8]}"
        self.path, self.scratch = folder / f"{name}.json", folder / name
        with files.store_errors(folder):
            files.make_folder(folder)
        self._load()

    def _load(self) -> None:
        content: Any = None
        with contextlib.suppress(ValueError, RecursionError):  # it is missing or damaged
            content = json.loads(files.read(self.path))
        # Measured values may be NaN or None, which the records of a store may not be.
        whole = (
            isinstance(content, dict)
            and isinstance(content.get("values"), dict)
            and isinstance(content.get("finished"), bool)
        )
        self.values: dict[str, Any] = content["values"] if whole else {}
        self.finished: bool = whole and content["finished"]

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default if it has not been measured."""
        return self.values.get(name, default)

    def keep(self, name: str, value: Any, sync: bool = True) -> None:
        """Add a value, or replace it, and write the file.

        Args:
            name: its name.
            value: lists, tables, texts and numbers.
            sync: without it the value may be lost with the power, but not with the process.
        """
        self.values[name] = value
        self._write(sync)

    def finish(self) -> None:
        """Note that everything has been measured, and remove the scratch files."""
        self.finished = True
        self._write()
        shutil.rmtree(self.scratch, ignore_errors=True)

    @contextlib.contextmanager
    def claim(self) -> Iterator[bool]:
        """Hold the record within the block; yield whether no other process holds it."""
        with hold(self.path.with_suffix(".lock")) as ours:
            if ours:
                self._load()  # another process may have added to it since
            yield ours

    def is_finished_now(self) -> bool:
        """Return whether it is finished, by this process or by another one since it was read."""
        if not self.finished:
            self._load()
        return self.finished

    def make_scratch(self) -> Path:
        """Return a folder for what is needed only until the record is finished."""
        with files.store_errors(self.scratch):
            files.make_folder(self.scratch)
        return self.scratch

    def _write(self, sync: bool = True) -> None:
        content = {"settings": self.settings, "values": self.values, "finished": self.finished}
        files.write(self.path, to_json(content), sync=sync)
