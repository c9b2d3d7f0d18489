"""The modules of the user's own that a file imports from its folder, directly or by one another."""

from __future__ import annotations

import ast
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
    """Yield the files that a file names in its imports, as far as they are below ``root``."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [(root, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else root
            module = f"{node.module}." if node.module else ""
            # A name may be that of a module, or of something in one.
            names = [(base, module.rstrip("."))]
            names += [(base, module + alias.name) for alias in node.names]
        else:
            continue
        for base, name in names:
            place = base.joinpath(*name.split("."))
            for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                if name and path.is_relative_to(root) and path.is_file():
                    yield path
