"""The modules of the user's own that a file imports from its folder, directly or by one another."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path


def imported_files(file: Path) -> list[Path]:
    """Return the files below a file's folder that it imports, in a fixed order.

    They are found in the text alone: which modules are loaded depends on what a process has done
    before. A file in a package may import from all of the outermost package.
    """
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    found: set[Path] = set()
    left = [file]
    while left:
        new = {path for path in _imports(left.pop(), root) if path != file} - found
        found |= new
        left += new
    return sorted(found)


def _imports(file: Path, root: Path) -> Iterator[Path]:
    """Yield the files that the imports of a file load, as far as they are below ``root``.

    The packages that a module lies in are loaded with it.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(root, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level <= len(file.parents):
            base = file.parents[node.level - 1] if node.level else root
            module = f"{node.module}." if node.module else ""
            # A name may be that of a module, or of something in one.
            names = [(base, module.rstrip("."))]
            names += [(base, module + alias.name) for alias in node.names]
        else:
            continue
        for base, name in names:
            place = base.joinpath(*name.split("."))
            if not name or root not in place.parents:
                continue
            packages = itertools.takewhile(lambda folder: folder != root, place.parents)
            files = [folder / "__init__.py" for folder in (place, *packages)]
            yield from filter(Path.is_file, [place.with_name(f"{place.name}.py"), *files])
