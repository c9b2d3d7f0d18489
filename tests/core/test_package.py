"""The package as its users meet it: imports, wheel, examples."""

import importlib.metadata
import inspect
import re
import subprocess
import sys
import zipfile

import pytest

import sgdf
from locations import ROOT


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def test_import_brings_nothing_but_torch():
    program = """
import sys
import torch
before = set(sys.modules)
import sgdf
for name in sgdf.__all__:
    getattr(sgdf, name)
names = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(names - set(sys.stdlib_module_names)))
"""
    result = python("-c", program)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["sgdf"]


def test_names_are_fetched_when_asked_for():
    program = """
import sys
import sgdf
assert "torch" not in sys.modules
from sgdf import SGDF, monitor
assert SGDF is sgdf.SGDF is sys.modules["sgdf.optim.sgdf"].SGDF
assert monitor is sys.modules["sgdf.monitor"]
assert sgdf.theory is sys.modules["sgdf.theory"]
assert set(sgdf.__all__) <= set(dir(sgdf))
sgdf.nonsense
"""
    result = python("-c", program)
    assert result.stderr.endswith("AttributeError: module 'sgdf' has no attribute 'nonsense'\n")


def test_core_needs_torch_and_numpy_only():
    needs = [r for r in importlib.metadata.requires("sgdf") if "extra ==" not in r]
    assert sorted(re.match(r"[\w-]+", need).group() for need in needs) == ["numpy", "torch"]


def test_wheel_is_complete_and_importable(tmp_path):
    built = python(
        "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, cwd=tmp_path
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"sgdf-{sgdf.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    sources = {
        str(path.relative_to(ROOT / "src"))
        for pattern in ("*.py", "*.c", "*.h", "*.toml", "*.css", "*.js", "py.typed")
        for path in (ROOT / "src").rglob(pattern)
    }
    assert {
        "sgdf/optim/native/kernels.c",
        "sgdf/py.typed",
        "sgdf/experiments/small/digits.toml",
    } <= sources
    assert {"sgdf/present/page.js", "sgdf/bench/paper/published.toml"} <= sources
    assert sources == {n for n in names if ".dist-info/" not in n}
    assert any(name.endswith("/LICENSE") for name in names)

    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); import sgdf; "
    result = python("-c", program + "print(sgdf.__file__)", cwd=tmp_path)
    assert result.stdout.startswith(str(tmp_path)), result.stderr


def test_versions_agree():
    assert importlib.metadata.version("sgdf") == sgdf.__version__
    assert f"## {sgdf.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_constructor_is_the_published_one():
    assert str(inspect.signature(sgdf.SGDF)).replace("'", "") == (
        "(params: ParamsT, lr: float | Tensor = 0.5, betas: tuple[float, float] = (0.9, 0.999), "
        "eps: float = 1e-08, gamma: float = 0.5, weight_decay: float = 0.0, *, "
        "decoupled_weight_decay: bool = False, correction: str = paper, gamma_decay: float = 0.0, "
        "maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, "
        "capturable: bool = False, differentiable: bool = False, state_format: str = full, "
        "stochastic_rounding: bool = False) -> None"
    )


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("FilterAdam", "lr=0.001 betas=(0.9, 0.999) eps=1e-08 gamma=0.5 weight_decay=0.0"),
        ("SignSGDF", "lr=0.0001 betas=(0.9, 0.999) eps=1e-08 gamma=1.0 weight_decay=0.0"),
        (
            "FilterMuon",
            "lr=0.02 betas=(0.9, 0.999) eps=1e-08 gamma=0.5 weight_decay=0.0 ns_steps=5",
        ),
    ],
)
def test_other_constructors_are_the_published_ones(name, beginning):
    _, *parameters = inspect.signature(getattr(sgdf, name)).parameters.values()
    assert " ".join(f"{p.name}={p.default}" for p in parameters).startswith(beginning)


def test_learning_rate_table_is_that_of_the_recorded_runs(tmp_path):
    record = ROOT / "records/learning_rates/learning_rates.json"
    result = python(
        *(ROOT / "examples/learning_rates.py", "--draw", record), *("--out", tmp_path / "new")
    )
    assert result.returncode == 0, result.stderr
    page = (ROOT / "docs/guide/migration.md").read_text()
    rows = [line.split(" | ", 1)[1] for line in result.stdout.splitlines()[2:]]
    assert len(rows) == 8
    assert all(f"| {row}" in page for row in rows)
    assert (tmp_path / "new/learning_rates.png").read_bytes().startswith(b"\x89PNG")


def test_momentum_tables_are_those_of_the_recorded_runs(tmp_path):
    result = python(ROOT / "examples/momentum_rates.py", "--out", tmp_path)
    assert result.returncode == 0, result.stderr
    rows = [line for line in result.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == (2 + 12) + (2 + 15)
    page = (ROOT / "docs/guide/migration.md").read_text()
    assert not [row for row in rows if row not in page]
    assert (tmp_path / "momentum_rates.png").read_bytes().startswith(b"\x89PNG")


def test_watching_example_sees_the_filter():
    program = "import watch_digits; print(watch_digits.watch(0, epochs=1)['gain_mean'])"
    result = python("-c", program, cwd=ROOT / "examples")
    assert result.returncode == 0, result.stderr
    assert 0.0 < float(result.stdout) < 1.0


def test_listening_example_prints_what_the_monitor_says():
    program = "import watch_digits; watch_digits.listen(epochs=5)"
    result = python("-c", program, cwd=ROOT / "examples")
    assert result.returncode == 0, result.stderr
    line, heading, *_ = result.stdout.splitlines()
    assert line.startswith("step 100: gain 0.")
    assert heading == "SGDF, step 100, 6 parameters:"


def test_training_example_learns():
    result = python(ROOT / "examples/train_digits.py")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 20
    assert float(re.search(r"accuracy ([\d.]+)%", lines[-1]).group(1)) > 97
