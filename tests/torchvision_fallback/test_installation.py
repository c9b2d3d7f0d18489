"""What install does in each state of torchvision, with packages that only look like it."""

import importlib.util
import os
import subprocess
import sys

import pytest

from locations import ROOT
from sgdf.bench.errors import SpecError
from sgdf.bench.tasks import vision_extra
from sgdf.torchvision_fallback import install, installation

WITHOUT_OPERATORS = 'import torch; torch.library.register_fake("torchvision::nms")(lambda *_: None)'
TWICE = (
    "import sys, warnings\n"
    "from sgdf.torchvision_fallback import install\n"
    "with warnings.catch_warnings(record=True) as caught:\n"
    "    warnings.simplefilter('always')\n"
    "    print(install(), install())\n"
    "print(*(str(warning.message) for warning in caught), sep='\\n')\n"
)


def run(folder, source, init="", has_operators=False):
    """Run a program in a process that finds this torchvision, and return how it ended."""
    package = folder / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"from . import extension\n{init}\n")
    (package / "extension.py").write_text(f"def _has_ops():\n    return {has_operators}\n")
    return subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])},
        capture_output=True,
        text=True,
    )


def test_where_the_operators_load_nothing_is_changed(tmp_path):
    ended = run(
        tmp_path,
        TWICE + "import torch; print(hasattr(torch.ops.torchvision, 'nms'))",
        has_operators=True,
    )
    assert ended.stdout.split() == ["False", "False", "False"], ended.stderr


def test_where_they_do_not_load_it_warns_once(tmp_path):
    ended = run(tmp_path, TWICE, WITHOUT_OPERATORS)
    states, *warnings = ended.stdout.splitlines()
    assert states == "True True", ended.stderr
    assert len(warnings) == 1
    assert warnings[0].startswith("torchvision's compiled operators do not load beside torch 2.")
    assert "written in PyTorch, which can be several times slower" in warnings[0]


def test_an_import_that_failed_before_does_not_matter(tmp_path):
    failed = "try:\n    import torchvision\nexcept RuntimeError as error:\n    print(error)\n"
    ended = run(tmp_path, failed + TWICE, WITHOUT_OPERATORS)
    lines = ended.stdout.splitlines()
    assert lines[0] == "operator torchvision::nms does not exist", ended.stderr
    assert lines[1] == "True True"


def test_operators_that_somebody_has_only_declared_are_given(tmp_path):
    declared = (
        "import torch; library = torch.library.Library('torchvision', 'DEF')\n"
        "library.define('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')\n"
    )
    used = "print(torch.ops.torchvision.nms(torch.zeros(2, 4), torch.zeros(2), 0.5).tolist())"
    ended = run(tmp_path, declared + TWICE + used, WITHOUT_OPERATORS)
    assert ended.stdout.splitlines()[-1] == "[0, 1]", ended.stderr


def test_another_trouble_of_torchvision_stays_its_own(tmp_path):
    ended = run(tmp_path, TWICE, "raise RuntimeError('compiled with another CUDA')")
    assert ended.stderr.splitlines()[-1] == "RuntimeError: compiled with another CUDA"


def test_without_torchvision_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(installation, "_in_use", False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sgdf\[vision\]'"):
        install()
    with pytest.raises(
        SpecError, match=r"^this needs torchvision: pip install 'sgdf\[vision\]' \("
    ):
        vision_extra.torchvision()


def test_the_package_imports_it_only_when_asked():
    source = (
        "import sys, sgdf, sgdf.bench; sgdf.SGDF\n"
        "print([name for name in sys.modules if 'torchvision' in name])"
    )
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert ended.stdout.split() == ["[]"], ended.stderr
