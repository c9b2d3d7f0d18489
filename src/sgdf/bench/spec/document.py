"""From a name or a file to the document that it holds: bundled files, ``extends``, ``--set``."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..catalog.lookup import importable_from
from ..errors import SpecError, naming, suggestion
from ..store.records import Table
from ..store.run_folder import store_of
from .bundled import bundled_experiments, bundled_searches
from .grid import as_list, change


def load_document(source: str | Path) -> Table:
    """Return the document of an experiment's file, with its name.

    A file with ``extends = "cifar"`` inherits everything that it does not set itself. The other
    experiment is a bundled one, or a file beside this one. Tables are merged key by key. The
    optimizers are replaced as a whole, and so is a table that names another object.

    Raises:
        SpecError: if there is no such file, or it is not TOML.
    """
    return _load(str(source), Path.cwd(), ())


def _load(source: str, folder: Path, through: tuple[Path, ...]) -> Table:
    bundled = {**bundled_experiments(), **bundled_searches()}
    path = bundled.get(source, folder / source)
    if source not in bundled:
        importable_from(path.absolute().parent)
    importable_from(Path.cwd())
    if path.is_fifo() and (through or store_of(path)):
        # One that the user names may be a pipe, as in sgdf run <(command); here none would end.
        raise SpecError("is a pipe, not a file")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        files = [str(file) for file in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        known = [*bundled, *files, *(Path(file).name for file in files)]
        raise SpecError(
            f"no such file, nor a bundled experiment ({', '.join(bundled)})"
            + suggestion(source, known)
        ) from None
    except IsADirectoryError:
        raise SpecError("is a folder; give a TOML file, or a bundled experiment") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(f"is not valid TOML: {error}") from error
    base = document.pop("extends", None)
    if base is not None:
        if not isinstance(base, str):
            raise SpecError(f"extends = {base!r}: must be the name of an experiment, or a file")
        if path.resolve() in through:
            raise SpecError("extends itself, by a detour or at once")
        with naming(f"extends = {base!r}"):
            inherited = _load(base, path.parent, (*through, path.resolve()))
        inherited = {key: inherited[key] for key in inherited if key not in ("name", "about")}
        document = _extended(inherited, document)
    return {"name": path.stem, **document}


OF_THE_WHOLE = ("name", "about", "extends", "probe", "search", "part")
"""The keys that a part of an experiment cannot have."""


def parts_of(document: Table) -> dict[str, Table]:
    """Return a document for each ``[[part]]``, which inherits what the part does not set.

    A document without parts is its only one. The keys name the part in messages: ``"part 2"``, or
    nothing for a document without parts.

    Raises:
        SpecError: if a part is no table, or sets what only a whole experiment has.
    """
    if "part" not in document:
        return {"": document}
    parts, rest = as_list(document["part"]), {k: document[k] for k in document if k != "part"}
    if not parts:
        raise SpecError("part = []: stands for no run; it needs an item at least")
    named = {f"part {number}": part for number, part in enumerate(parts, start=1)}
    for name, part in named.items():
        with naming(name):
            _check_part(part)
    return {name: _extended(rest, part) for name, part in named.items()}


def _check_part(part: object) -> None:
    if not isinstance(part, dict):
        raise SpecError(f"part = {part!r}: must be a table, [[part]]")
    for key in OF_THE_WHOLE:
        if key in part:
            raise SpecError(f"part.{key} = {part[key]!r}: is not for a part, only for the file")


def _extended(base: Table, document: Table) -> Table:
    """Return a document that inherits from another what it does not set."""
    merged = {**base, **document}
    for key, table in document.items():
        inherited = base.get(key)
        if isinstance(table, dict) and isinstance(inherited, dict) and key != "optimizer":
            renamed = table.get("name", inherited.get("name")) != inherited.get("name")
            merged[key] = table if renamed else {**_without_rivals(inherited, table), **table}
    return merged


_RIVALS = {"steps": "epochs", "epochs": "steps"}
"""A run has one length: one of these keys takes the place of the other."""


def _without_rivals(table: Table, keys: Iterable[str]) -> Table:
    """Return a table without the keys that other keys take the place of."""
    rivals = {_RIVALS.get(key) for key in keys}
    return {key: value for key, value in table.items() if key not in rivals}


def apply_changes(document: Table, changes: Table) -> Table:
    """Return a document with changed values, given by dotted key; they prevail in all parts.

    Raises:
        SpecError: if a key is about a part, or about a table that is none.
    """
    document = copy.deepcopy(document)
    if "part" in document:
        of_parts = {k: v for k, v in changes.items() if k.partition(".")[0] not in OF_THE_WHOLE}
        of_whole = {key: changes[key] for key in changes if key not in of_parts}
        grids = {k: v for k, v in document.items() if k == "part" or k not in OF_THE_WHOLE}
        parts = []
        for name, part in parts_of(grids).items():
            with naming(name):
                parts.append(apply_changes(part, of_parts))
        del document["part"]
        return {**apply_changes(document, of_whole), "part": parts}
    for key, value in changes.items():
        table, _, setting = key.partition(".")
        if table == "part":
            raise SpecError(
                f"{key} = {value!r}: a part cannot be changed; --set changes a value in all parts"
            )
        if table == "train":
            _let_prevail(document, setting)
        change(document, key, value)
    return document


def _let_prevail(document: Table, setting: str) -> None:
    """Remove the values that a changed setting of ``[train]`` takes the place of.

    Optimizers may have a value of their own for it.
    """
    optimizers = [one for one in as_list(document.get("optimizer", [])) if isinstance(one, dict)]
    for holder in (document, *optimizers):
        tables = as_list(holder.get("train", {}))
        for table in (table for table in tables if isinstance(table, dict)):
            table.pop(_RIVALS.get(setting, ""), None)
            if holder is not document:
                table.pop(setting, None)


def select_optimizers(document: Table, names: Sequence[str]) -> Table:
    """Return the document with these optimizers only.

    One that the document does not have is added with nothing but its name.
    """
    tables = [table for table in as_list(document.get("optimizer", [])) if isinstance(table, dict)]
    selected: list[Table] = []
    for name in dict.fromkeys(names):
        matching = [
            {**table, "name": name} for table in tables if name in as_list(table.get("name"))
        ]
        selected += matching or [{"name": name}]
    return {**document, "optimizer": selected}
