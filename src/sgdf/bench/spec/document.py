"""From a name or a file to the document that it holds: bundled files, ``extends``, ``--set``."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Sequence
from pathlib import Path

from ..catalog.lookup import importable_from
from ..errors import SpecError, naming, suggestion
from ..store.records import Table
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
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        files = [str(file) for file in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        known = [*bundled, *files, *(Path(file).name for file in files)]
        raise SpecError(
            f"no such file, nor a bundled experiment ({', '.join(bundled)})"
            + suggestion(source, known)
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SpecError(f"is not valid TOML: {error}") from error
    base = document.pop("extends", None)
    if base is not None:
        if not isinstance(base, str):
            raise SpecError(f"extends = {base!r}: must be the name of an experiment, or a file")
        if path in through:
            raise SpecError(f"extends = {base!r}: goes round in a circle")
        with naming(f"extends = {base!r}"):
            inherited = _load(base, path.parent, (*through, path))
        inherited = {key: inherited[key] for key in inherited if key not in ("name", "about")}
        document = _extended(inherited, document)
    return {"name": path.stem, **document}


def _extended(base: Table, document: Table) -> Table:
    """Return a document that inherits from another what it does not set."""
    merged = {**base, **document}
    for key, table in document.items():
        inherited = base.get(key)
        if isinstance(table, dict) and isinstance(inherited, dict) and key != "optimizer":
            renamed = table.get("name", inherited.get("name")) != inherited.get("name")
            merged[key] = table if renamed else {**inherited, **table}
    return merged


_INSTEAD_OF = {"train.steps": ("epochs",), "train.epochs": ("steps",)}


def apply_changes(document: Table, changes: Table) -> Table:
    """Return a document with changed values, given by dotted key."""
    document = copy.deepcopy(document)
    for key, value in changes.items():
        for other in _INSTEAD_OF.get(key, ()):
            document.get("train", {}).pop(other, None)
        change(document, key, value)
        _let_prevail(document, key)
    return document


def _let_prevail(document: Table, key: str) -> None:
    """Apply a change of ``[train]`` also to optimizers with an own value for the key."""
    table, _, setting = key.partition(".")
    optimizers = document.get("optimizer", []) if table == "train" else []
    for optimizer in as_list(optimizers):
        if isinstance(optimizer, dict) and isinstance(optimizer.get("train"), dict):
            optimizer["train"].pop(setting, None)


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
