"""The house: which folder may import which. Read from the syntax, so that no import is hidden.

An import inside a function, or under ``TYPE_CHECKING``, is an import like any other.
"""

import ast
import itertools
from pathlib import Path

import pytest

from locations import ROOT

SOURCE = ROOT / "src"

FLOORS = [
    # From the ground up; rooms on one floor do not know each other.
    {"sgdf.filter", "sgdf.present", "sgdf.torchvision_fallback"},
    {"sgdf.directions"},
    {"sgdf.optim"},
    {"sgdf.theory"},
    {"sgdf.monitor", "sgdf.environment"},
    {"sgdf.bench.errors"},
    {"sgdf.bench.store"},
    {"sgdf.bench.catalog", "sgdf.bench.baselines"},
    {"sgdf.bench.fidelity"},
    {"sgdf.bench.tasks"},
    {"sgdf.bench.paper"},
    {"sgdf.bench.spec"},
    {"sgdf.bench.training"},
    {"sgdf.bench.jobs"},
    {"sgdf.bench.search"},
    {"sgdf.bench.report"},
    {"sgdf.bench"},
    {"sgdf.analysis"},
    {"sgdf.cli"},
    {"sgdf.__main__"},
]
FRONT_DOOR = "sgdf"
"""Names what is public in any room, and lends its version to all."""
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

WITHOUT_TORCH = ("sgdf.bench.errors", "sgdf.bench.store", "sgdf.bench.catalog", "sgdf.present")
"""Rooms where a command can answer before torch is imported, which takes a second."""


def modules():
    """Return every module with its file, by its dotted name."""
    found = {}
    for path in sorted((SOURCE / "sgdf").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def room_of(module):
    """Return the room that a module is in: the longest name that begins its own."""
    rooms = [room for room in LEVEL if module == room or module.startswith(room + ".")]
    return max(rooms, key=len)


def imports(module, path):
    """Yield line and module of every import from this package, wherever it stands."""
    is_package = path.name == "__init__.py"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, alias.name.rpartition(".")[2], alias.asname
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".") if is_package else module.split(".")[:-1]
                parts = parts[: len(parts) - node.level + 1]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield node.lineno, inner if inner in MODULES else base, alias.name, alias.asname


def edges():
    """Yield each import between two modules of the package: from, to, and where it stands."""
    for module, path in MODULES.items():
        for line, target, _, _ in imports(module, path):
            if target in MODULES and target != module and FRONT_DOOR not in (module, target):
                yield module, target, f"{path.relative_to(ROOT)}:{line}"


def upward(edges):
    """Return where a room imports from a floor above it, or from another room beside it."""
    found = []
    for module, target, where in edges:
        low, high = room_of(target), room_of(module)
        if low != high and LEVEL[low] >= LEVEL[high]:
            found.append(f"{where}: {module} must not import {target}")
    return found


def cycle(edges):
    """Return a circle of modules that import each other, with where each import stands."""
    graph = {}
    for module, target, where in edges:
        graph.setdefault(module, {}).setdefault(target, where)
    done, path = set(), []

    def visit(module):
        if module in path:
            circle = [*path[path.index(module) :], module]
            return [graph[a][b] + f": {a} imports {b}" for a, b in itertools.pairwise(circle)]
        if module in done:
            return None
        path.append(module)
        for target in graph.get(module, ()):
            if found := visit(target):
                return found
        done.add(path.pop())
        return None

    return next(filter(None, map(visit, list(graph))), [])


def test_imports_go_down():
    assert not upward(edges())


def test_no_module_imports_itself_by_a_detour():
    assert not cycle(edges())


def test_the_guard_sees_what_is_wrong():
    """Both checks name file and line of an import that should not be there."""
    wrong = ("sgdf.bench.store.files", "sgdf.bench.report.write", "files.py:3")
    assert upward([wrong]) == [
        "files.py:3: sgdf.bench.store.files must not import sgdf.bench.report.write"
    ]
    beside = ("sgdf.bench.catalog.lookup", "sgdf.bench.baselines.base", "lookup.py:1")
    assert upward([beside])
    assert not upward([("sgdf.bench.report.write", "sgdf.bench.store.files", "write.py:3")])
    round_about = [("a", "b", "a.py:1"), ("b", "c", "b.py:2"), ("c", "a", "c.py:3")]
    assert cycle(round_about) == [
        "a.py:1: a imports b",
        "b.py:2: b imports c",
        "c.py:3: c imports a",
    ]
    assert cycle(round_about[:2]) == []


def test_deferred_and_type_checking_imports_are_seen(tmp_path):
    path = tmp_path / "files.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from ..report.write import Report\n"
        "def late():\n"
        "    from ..report import write\n"
    )
    found = [(line, target) for line, target, _, _ in imports("sgdf.bench.store.files", path)]
    assert (3, "sgdf.bench.report.write") in found
    assert (5, "sgdf.bench.report.write") in found


def test_every_module_has_a_room():
    assert {room_of(module) for module in MODULES if module != FRONT_DOOR} == set(LEVEL)


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(WITHOUT_TORCH)])
def test_rooms_without_torch(module):
    """At the top of the module; a function may import it when it is needed."""
    tree = ast.parse(MODULES[module].read_text())
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    assert "torch" not in names


@pytest.mark.parametrize("module", MODULES)
def test_siblings_keep_their_names(module):
    """No ``from . import state as storage``: one thing has one name."""
    path = MODULES[module]
    renamed = [
        f"{path.relative_to(ROOT)}:{line}: {name} as {alias}"
        for line, target, name, alias in imports(module, path)
        if alias and alias != name and target in MODULES and target.rpartition(".")[2] == name
    ]
    assert not renamed


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("__init__.py")), ids=lambda p: p.parent.name)
def test_every_folder_says_what_lives_there(path):
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring
    assert docstring.partition("\n")[0].endswith(".")


def test_no_file_says_nothing_by_its_name():
    vague = {"utils", "helpers", "common", "misc", "tools"}
    assert not [path for path in SOURCE.rglob("*.py") if Path(path).stem in vague]
