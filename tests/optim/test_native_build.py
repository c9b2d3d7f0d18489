"""Building, caching and loading native code."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sgdf.optim.native import build

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(
    not COMPILER or sys.platform != "linux", reason="needs Linux and a C compiler"
)
# These tests never use the user's own cache, nor the machine's folder for temporary files.


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Return a folder that serves as the machine's /tmp."""
    folder = tmp_path / "tmp"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(build.tempfile, "tempdir", None)  # where the last answer is kept
    return folder


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


def test_built_once_and_cached(tmp_path, compilations, temporary):
    for _ in range(3):
        assert build.load(source(tmp_path)).answer() == 42
        assert compilations() == 1
    assert cached_file(tmp_path).stat().st_mode & 0o077 == 0
    assert cached_file(tmp_path).parent.stat().st_mode & 0o777 == 0o700
    assert not list(temporary.iterdir())


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
    file = next(build._private_folders(make=True)) / f"code-{key[:32]}.so"
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
    assert not list((tmp_path / "cache" / "sgdf").iterdir())


def names_in(folder):
    return [path.name.split("-")[0] for path in folder.iterdir()]


def test_without_a_cache_the_temporary_folder_serves(
    tmp_path, compilations, monkeypatch, temporary
):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert build.load(source(tmp_path)).answer() == 42
    assert build.load(source(tmp_path)).answer() == 42
    assert compilations() == 1
    (folder,) = temporary.iterdir()
    assert folder.name == f"sgdf-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert names_in(folder) == ["code"]


@pytest.fixture
def no_code_from(monkeypatch):
    """Return a function that makes a folder behave as if it were mounted noexec."""
    open_library = build.ctypes.CDLL

    def forbid(folder):
        def refusing(path):
            if path.startswith(f"{folder}/"):
                raise OSError(f"{path}: failed to map segment from shared object")
            return open_library(path)

        monkeypatch.setattr(build.ctypes, "CDLL", refusing)

    return forbid


def test_cache_from_which_no_code_can_be_loaded(tmp_path, compilations, no_code_from, temporary):
    no_code_from(tmp_path / "cache")
    for _ in range(2):
        assert build.load(source(tmp_path)).answer() == 42
        assert compilations() == 1
    assert names_in(temporary / f"sgdf-{os.geteuid()}") == ["code"]
    assert not list((tmp_path / "cache" / "sgdf").iterdir())


def test_no_code_can_be_loaded_from_anywhere(tmp_path, compilations, no_code_from, monkeypatch):
    no_code_from(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(OSError, match="failed to map segment"):
        build.load(source(tmp_path))
    for folder in (tmp_path / "cache" / "sgdf", tmp_path / "tmp" / f"sgdf-{os.geteuid()}"):
        assert not list(folder.iterdir())


def writable_for_others(folder, _):
    folder.mkdir()
    folder.chmod(0o777)


def link_to_a_private_folder(folder, elsewhere):
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)


def in_a_folder_of_others(folder, _):
    """Where anyone can put a folder of their own in its place."""
    folder.parent.chmod(0o777)


@pytest.mark.parametrize(
    "spoil", [writable_for_others, link_to_a_private_folder, in_a_folder_of_others]
)
def test_temporary_folder_that_is_not_private_is_not_used(
    tmp_path, compilations, monkeypatch, temporary, spoil
):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    folder = temporary / f"sgdf-{os.geteuid()}"
    spoil(folder, tmp_path / "elsewhere")
    with pytest.raises(OSError, match="no folder that this user alone can write to"):
        build.load(source(tmp_path))
    assert compilations() == 0
    assert not folder.exists() or not list(folder.iterdir())


def test_temporary_folder_of_another_user_is_not_used(tmp_path, compilations, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    build.temporary_directory().mkdir(mode=0o700)
    mine = os.geteuid()
    monkeypatch.setattr(build.os, "geteuid", lambda: mine + 1)
    build.temporary_directory().mkdir(mode=0o700)  # of the name, but owned by ``mine``
    with pytest.raises(OSError, match="no folder that this user alone can write to"):
        build.load(source(tmp_path))


def test_usual_temporary_folder_is_shared_but_sticky(
    tmp_path, compilations, monkeypatch, temporary
):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    temporary.chmod(0o1777)
    assert build.load(source(tmp_path)).answer() == 42


@pytest.mark.parametrize(("owner", "kept"), [("root", True), ("user", True), ("other", False)])
def test_a_sticky_folder_keeps_only_what_its_owner_leaves(monkeypatch, owner, kept):
    """The owner of a sticky folder can rename what is in it."""
    user = 4321
    monkeypatch.setattr(build.os, "geteuid", lambda: user)
    uid = {"root": 0, "user": user, "other": user + 1}[owner]
    status = os.stat_result((0o41777, 1, 1, 2, uid, uid, 0, 0, 0, 0))
    assert build._keeps_folders(status) is kept


def test_a_link_is_never_followed_on_the_way_to_the_temporary_folder(
    tmp_path, monkeypatch, temporary
):
    """Nor if it is put there between two questions about the path: there is one question."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr(Path, "is_symlink", lambda path: False)
    link_to_a_private_folder(temporary / f"sgdf-{os.geteuid()}", tmp_path / "elsewhere")
    assert list(build._private_folders(make=False)) == []


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


@pytest.fixture
def slow_compiler(tmp_path, monkeypatch):
    """Use a compiler that writes temporary files, as GCC does, and then waits to be killed."""
    script, started = tmp_path / "slow-cc", tmp_path / "started"
    script.write_text(f'#!/bin/sh\necho text > "$TMPDIR/ccabc.s"\necho $$ > {started}\nsleep 60\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    workers = []

    def start():
        """Start a build in another process; return that process when its compiler runs."""
        command = [sys.executable, "-c", WORKER, build.__file__, str(source(tmp_path)), "0"]
        worker = subprocess.Popen(command, start_new_session=True)
        workers.append(worker)
        deadline = time.monotonic() + 30
        while not (started.exists() and started.read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return worker

    yield start
    for worker in workers:  # with the compiler that it has started
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def files_below(*folders):
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("with_its_compiler", [True, False])
def test_a_killed_build_leaves_nothing_behind(
    tmp_path, slow_compiler, monkeypatch, temporary, with_its_compiler
):
    worker = slow_compiler()
    cache = tmp_path / "cache" / "sgdf"
    assert [path.name for path in files_below(cache, temporary)] == ["ccabc.s"]
    if with_its_compiler:
        os.killpg(worker.pid, signal.SIGKILL)
    else:
        worker.kill()
    worker.wait()
    assert [path.name for path in files_below(cache, temporary)] == ["ccabc.s"]
    monkeypatch.setenv("CC", COMPILER)
    assert build.load(source(tmp_path)).answer() == 42
    assert names_in(cache) == ["code"]
    assert not list(temporary.rglob("cc*"))


def test_a_build_in_progress_is_left_alone(tmp_path, slow_compiler, monkeypatch):
    slow_compiler()
    cache = tmp_path / "cache" / "sgdf"
    monkeypatch.setenv("CC", COMPILER)
    assert build.load(source(tmp_path)).answer() == 42
    assert [path.name for path in files_below(cache)].count("ccabc.s") == 1
    assert sorted(names_in(cache)) == ["building", "code"]


@pytest.mark.parametrize(("age", "is_removed"), [(60, False), (3600, True)])
def test_without_locks_only_old_builds_are_removed(
    tmp_path, compilations, monkeypatch, age, is_removed
):
    """As on some network file systems."""

    def flock(*_):
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("fcntl.flock", flock)
    building = tmp_path / "cache" / "sgdf" / "building-of-another"
    building.mkdir(mode=0o700, parents=True)
    os.utime(building, (time.time() - age,) * 2)
    assert build.load(source(tmp_path)).answer() == 42
    assert building.exists() == (not is_removed)


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
