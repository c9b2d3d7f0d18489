"""Building, caching and loading native code."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from sgdf.optim.native import build

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(
    not COMPILER or sys.platform != "linux", reason="needs Linux and a C compiler"
)
# These tests never use the user's own cache.


@pytest.fixture
def compilations(tmp_path, monkeypatch):
    """Use a compiler that logs each of its runs; return a function that counts them."""
    log, script = tmp_path / "log", tmp_path / "watched-cc"
    script.write_text(f'#!/bin/sh\necho run >> {log}\nexec {COMPILER} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def count():
        """Two runs, to compile and to link, are one compilation."""
        return len(log.read_text().split()) / 2 if log.exists() else 0

    return count


def source(directory, answer=42, name="code"):
    file = directory / f"{name}.c"
    file.write_text(f"int answer(void) {{ return {answer}; }}\n")
    return file


def cached_file(directory):
    (file,) = (directory / "cache" / "sgdf").iterdir()
    return file


def test_built_once_and_cached(tmp_path, compilations):
    for _ in range(3):
        assert build.load(source(tmp_path)).answer() == 42
        assert compilations() == 1
    assert cached_file(tmp_path).stat().st_mode & 0o077 == 0
    assert cached_file(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_each_source_compiler_and_flag_has_its_own_object(tmp_path, compilations, monkeypatch):
    assert build.load(source(tmp_path, 1)).answer() == 1
    assert build.load(source(tmp_path, 2)).answer() == 2
    assert compilations() == 2
    os.utime(tmp_path / "watched-cc", ns=(0, 0))  # another version under the same name
    assert build.load(source(tmp_path, 2)).answer() == 2
    assert compilations() == 3
    monkeypatch.setenv("CC", os.environ["CC"] + " -g")
    assert build.load(source(tmp_path, 2)).answer() == 2
    assert compilations() == 4
    monkeypatch.setattr(build.platform, "machine", lambda: "another")
    assert build.load(source(tmp_path, 2)).answer() == 2
    assert compilations() == 5
    assert build.load(source(tmp_path, 1)).answer() == 1
    assert compilations() == 6
    assert len(list((tmp_path / "cache" / "sgdf").iterdir())) == 6


def truncated(content, _):
    return content[:-1000]


def with_a_bit_flipped(content, _):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def emptied(content, _):
    return b""


def replaced_by_another(content, other):
    return other


@pytest.mark.parametrize("spoilt", [truncated, with_a_bit_flipped, emptied, replaced_by_another])
def test_broken_and_foreign_objects_are_rebuilt(tmp_path, compilations, spoilt):
    assert build.load(source(tmp_path, 1, "other")).answer() == 1
    other = cached_file(tmp_path)
    code = source(tmp_path)
    build.load(code)
    (file,) = set(other.parent.iterdir()) - {other}
    content = file.read_bytes()
    file.unlink()  # this process has the old one mapped
    file.write_bytes(spoilt(content, other.read_bytes()))
    file.chmod(0o600)
    assert build.load(code).answer() == 42
    assert compilations() == 3
    assert build.load(code).answer() == 42
    assert compilations() == 3


def test_object_that_others_may_write_to_is_rebuilt(tmp_path, compilations):
    build.load(source(tmp_path))
    cached_file(tmp_path).chmod(0o666)
    assert build.load(source(tmp_path)).answer() == 42
    assert compilations() == 2


def test_sealed_object_that_does_not_load_is_rebuilt(tmp_path, compilations):
    """For example one that was built with other system libraries."""
    code = source(tmp_path)
    key = build._key(code, [os.environ["CC"]])
    file = build._own_cache() / f"code-{key[:32]}.so"
    file.write_bytes(build._sealed(b"not an object", key))
    file.chmod(0o600)
    assert build._is_sealed(file, key)
    assert build.load(code).answer() == 42
    assert compilations() == 1
    assert file.read_bytes().startswith(b"\x7fELF")


def test_cache_that_others_may_write_to_is_not_used(tmp_path, compilations):
    (tmp_path / "cache" / "sgdf").mkdir(parents=True)
    (tmp_path / "cache" / "sgdf").chmod(0o777)
    assert build.load(source(tmp_path)).answer() == 42
    assert build.load(source(tmp_path)).answer() == 42
    assert compilations() == 2
    assert not list((tmp_path / "cache" / "sgdf").iterdir())


def test_cache_that_cannot_be_made_costs_a_build_each_time(tmp_path, compilations, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert build.load(source(tmp_path)).answer() == 42
    assert build.load(source(tmp_path)).answer() == 42
    assert compilations() == 2


def test_missing_compilers_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler -O1")
    with pytest.raises(OSError, match="no-such-compiler -O1: not found"):
        build.load(source(tmp_path))
    monkeypatch.setenv("CC", 'cc "')
    with pytest.raises(OSError, match="CC is no command: No closing quotation"):
        build.load(source(tmp_path))
    monkeypatch.delenv("CC")
    with pytest.raises(OSError, match="no C compiler was found"):
        build.load(source(tmp_path))


def test_compiler_errors_are_reported(tmp_path, compilations):
    code = tmp_path / "broken.c"
    code.write_text("int answer(void) { return nothing; }\n")
    with pytest.raises(OSError, match=r"error: .*nothing"):
        build.load(code)


@pytest.mark.parametrize("cc", [None, "cc", "no-such-compiler"])
def test_next_compiler_is_tried(tmp_path, monkeypatch, cc):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    (tmp_path / "gcc").symlink_to(COMPILER)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CC", raising=False)
    if cc:
        monkeypatch.setenv("CC", cc)
    assert build.load(source(tmp_path)).answer() == 42


def test_every_link_to_one_program_is_tried(tmp_path, monkeypatch):
    """As with ccache, which runs the compiler by whose name it is called."""
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\ncase $0 in */gcc) exec {COMPILER} "$@";; esac\nexit 1\n')
    program.chmod(0o755)
    for name in ("cc", "gcc", "clang"):
        (tmp_path / name).symlink_to(program)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert build.load(source(tmp_path)).answer() == 42


def test_a_library_that_does_not_load_is_not_cached(tmp_path, compilations):
    code = tmp_path / "incomplete.c"
    code.write_text("int missing(void);\nint answer(void) { return missing(); }\n")
    with pytest.raises(OSError, match="undefined symbol: missing"):
        build.load(code)
    assert not list((tmp_path / "cache" / "sgdf").iterdir())


def test_other_systems_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(build.sys, "platform", "darwin")
    with pytest.raises(OSError, match="Linux only, this is darwin"):
        build.load(source(tmp_path))


WORKER = """
import importlib.util, pathlib, sys, time
spec = importlib.util.spec_from_file_location("build", sys.argv[1])
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)
time.sleep(max(0.0, float(sys.argv[3]) - time.time()))  # all at the same moment
assert build.load(pathlib.Path(sys.argv[2])).answer() == 42
"""


def test_many_processes_at_once(tmp_path, compilations):
    code, start = source(tmp_path), time.time() + 1.0
    command = [sys.executable, "-c", WORKER, build.__file__, str(code), str(start)]
    workers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(8)]
    for worker in workers:
        _, errors = worker.communicate(timeout=60)
        assert worker.returncode == 0, errors.decode()
    before = compilations()
    assert build.load(code).answer() == 42
    assert compilations() == before
    assert len(list((tmp_path / "cache" / "sgdf").iterdir())) == 1  # no temporary files are left


FIRST_STEP = """
import os, sys, torch, sgdf
log = sys.argv[1]
param = torch.nn.Parameter(torch.ones(2))
param.grad = torch.ones(2)
optimizer = sgdf.SGDF([param])
assert not os.path.exists(log)
optimizer.step()
assert os.path.exists(log)
assert torch.tensor(1e-40) * 1 > 0  # the process still knows subnormal numbers
"""


def test_nothing_is_compiled_before_the_first_step(tmp_path, compilations):
    command = [sys.executable, "-c", FIRST_STEP, str(tmp_path / "log")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert compilations() == 1
    assert cached_file(tmp_path).name.startswith("kernels-")
