"""What a task imports from its folder is part of its source."""

import importlib
import sys

from bench_tasks import run_of
from sgdf.bench.catalog.lookup import importable_from
from sgdf.bench.jobs.imported_source import imported_files
from sgdf.bench.jobs.provenance import differences, sources


def written(folder, **files):
    """Write modules, named with __ for the slash, and return the first."""
    paths = [folder / f"{name.replace('__', '/')}.py" for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


def names(file):
    return [str(path.relative_to(file.parent)) for path in imported_files(file)]


def test_modules_beside_it_and_what_they_import(tmp_path):
    file = written(
        tmp_path,
        task="import torch, nets.deep\nfrom model import Net\nfrom data import *",
        model="from nets import wide\nimport task",
        data="",
        unused="import secret",
        nets__deep="from . import layers\nfrom ..above import x",
        nets__wide="",
        nets__layers="def broken(:",
    )
    expected = ["data.py", "model.py", "nets/deep.py", "nets/layers.py", "nets/wide.py"]
    assert names(file) == expected


def test_a_package_imports_by_its_own_name(tmp_path):
    folder = tmp_path / "mine"
    file = written(folder, task="from mine.model import Net", model="", other="")
    (folder / "__init__.py").write_text("")
    assert names(file) == ["__init__.py", "model.py"]


def test_the_packages_that_a_module_lies_in_are_imported_with_it(tmp_path):
    file = written(
        tmp_path,
        task="import nets.deep.wide",
        nets__deep__wide="",
        nets__layers="",
    )
    (tmp_path / "nets/__init__.py").write_text("from . import layers")
    (tmp_path / "nets/deep/__init__.py").write_text("")
    assert names(file) == [
        "nets/__init__.py", "nets/deep/__init__.py", "nets/deep/wide.py", "nets/layers.py"
    ]  # fmt: skip


def test_a_relative_import_from_above_the_root_names_nothing(tmp_path):
    dots = "." * (len(tmp_path.parts) + 9)
    file = written(
        tmp_path, task=f"import model\nfrom {dots} import x\nfrom {dots}y import z", model=""
    )
    assert names(file) == ["model.py"]


def test_a_change_in_it_is_a_change_of_the_source(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = "from bench_tasks import Points\nfrom imported_model import width\n"
    file = written(
        tmp_path, imported_task=f"{text}class Mine(Points): pass", imported_model="width=1"
    )
    importable_from(tmp_path)
    importlib.invalidate_caches()
    run = run_of("imported_task:Mine")
    before = sources(run)
    (file.parent / "imported_model.py").write_text("width = 2")
    assert differences([before], sources(run)) == ["imported source"]
    earlier = {key: value for key, value in before.items() if key != "imported source"}
    assert differences([earlier], sources(run)) == []


def test_bundled_tasks_have_the_entries_of_before():
    assert list(sources(run_of("digits-mlp"))) == ["task source", "optimizer source"]
