"""Builds the C code beside this file, caches the library, and loads it.

The library is built on first use, with any C compiler of the machine, and stored in the user's
cache, or in a private temporary folder if no code can be loaded from the cache. Its file name
contains a digest of everything that it depends on, and its last bytes are a digest of its content:
an incomplete or damaged file, or one that other users can write to, is rebuilt, not loaded.

A build takes place in a folder of its own beside the libraries, which its process keeps locked. If
the process is killed, the next build finds the folder unlocked and removes it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# No -march: the source chooses the vector width at run time. No -ffast-math: loading such a
# library makes the whole process flush subnormal numbers to zero. Without loop unswitching the
# build takes half as long, and the loops, which wait for memory, are as fast.
COMPILE = (
    *("-std=gnu11", "-O3", "-fno-unswitch-loops", "-fPIC", "-fopenmp"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
# Without -fopenmp: its symbols are resolved by the OpenMP library that torch has loaded.
LINK = ("-shared",)
LIBRARIES = ("-lm",)
LONGEST_COMMAND = 120.0
"""After so many seconds a compiler is ended."""
BUILDING = "building-"
"""How the names of the folders begin in which builds take place."""

Command = list[str]


def load(source: Path) -> ctypes.CDLL:
    """Return the library built from ``source``, or raise ``OSError`` with the reason.

    The headers beside it count as parts of it.
    """
    if sys.platform != "linux":
        raise OSError(f"native code is built on Linux only, this is {sys.platform}")
    reasons = []
    try:
        for compiler in _compilers():
            try:
                return _load(source, compiler)
            except (OSError, subprocess.SubprocessError) as error:
                reasons.append(_reason(compiler, error))
    except ValueError as error:
        raise OSError(f"$CC is no command: {error}") from None
    raise OSError("; ".join(reasons) or "no C compiler was found (cc, gcc, clang, or $CC)")


def cache_directory() -> Path:
    """Return the folder of the built libraries: ``$XDG_CACHE_HOME/sgdf`` or ``~/.cache/sgdf``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgdf"


def temporary_directory() -> Path:
    """Return the folder that is used if no code can be loaded from the cache."""
    return Path(tempfile.gettempdir()) / f"sgdf-{os.geteuid()}"


def _compilers() -> Iterator[Command]:
    """Yield the compiler that ``$CC`` names, then each one that is installed."""
    if asked := os.environ.get("CC"):
        yield shlex.split(asked)
    # All names: links to one program (ccache) can stand for different compilers.
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            yield [path]


def _reason(compiler: Command, error: Exception) -> str:
    lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
    telling = [line for line in lines if "error:" in line] or lines[-1:]
    return f"{shlex.join(compiler)}: {telling[0] if telling else type(error).__name__}"


def _load(source: Path, compiler: Command) -> ctypes.CDLL:
    key = _key(source, compiler)
    name = f"{source.stem}-{key[:32]}.so"
    for folder in _private_folders(make=False):
        if _is_sealed(folder / name, key):
            with suppress(OSError):  # for example built with other system libraries
                return ctypes.CDLL(str(folder / name))
    content = None
    fault = OSError("there is no folder that this user alone can write to, to build in")
    for folder in _private_folders(make=True):
        try:
            with _building_folder(folder) as directory:
                built = directory / name
                if content is None:
                    _build(source, compiler, built)
                    content = _sealed(built.read_bytes(), key)
                built.write_bytes(content)
                built.chmod(0o600)
                library = ctypes.CDLL(str(built))  # fails if the folder is mounted noexec
                with suppress(OSError):
                    os.replace(built, folder / name)  # atomic: others may be doing the same
                return library
        except OSError as error:
            fault = error
    raise fault


def _key(source: Path, compiler: Command) -> str:
    """Return the digest of everything that a library depends on."""
    if not shutil.which(compiler[0]):
        raise FileNotFoundError("not found")
    # Size and mtime identify the compiler without starting it.
    programs = [os.path.realpath(path) for path in filter(None, map(shutil.which, compiler))]
    stamps = [os.stat(program) for program in programs]
    parts = (
        [_digest(file) for file in (source, *sorted(source.parent.glob("*.h")))],
        [*compiler, *COMPILE, *LINK, *LIBRARIES],
        [(program, s.st_size, s.st_mtime_ns) for program, s in zip(programs, stamps, strict=True)],
        (platform.machine(), sys.maxsize, _libc_version()),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _libc_version() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):  # another libc
        return None


def _build(source: Path, compiler: Command, target: Path) -> None:
    unit = target.with_suffix(".o")
    for arguments in (
        [*COMPILE, "-c", str(source), "-o", str(unit)],
        [*LINK, str(unit), "-o", str(target), *LIBRARIES],
    ):
        subprocess.run(
            [*compiler, *arguments],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST_COMMAND,
            stdin=subprocess.DEVNULL,
            # Temporary files beside the target: a killed compiler does not remove its own.
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(target.parent)},
        )


def _private_folders(*, make: bool) -> Iterator[Path]:
    """Yield the folders for libraries that the user, and nobody else, can write to.

    The second is not made if the first one serves.
    """
    with suppress(OSError, RuntimeError):  # RuntimeError: the user has no home
        cache = cache_directory()
        if make:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(cache.stat()) and os.access(cache, os.W_OK):
            yield cache
    with suppress(OSError):
        temporary = temporary_directory()
        if make:
            temporary.mkdir(mode=0o700, exist_ok=True)
        # The name can be guessed: it may be another user's folder, or a link to somewhere else.
        # One question answers both, since the path may change from one question to the next.
        status = temporary.lstat()
        is_folder = stat.S_ISDIR(status.st_mode)
        if is_folder and _is_private(status) and _keeps_folders(temporary.parent.stat()):
            yield temporary


def _keeps_folders(parent: os.stat_result) -> bool:
    """Return whether nobody else can put a folder in the place of one that the user has there.

    In a sticky folder its owner still can.
    """
    is_sticky = bool(parent.st_mode & stat.S_ISVTX)
    return (is_sticky and parent.st_uid in (0, os.geteuid())) or _is_private(parent)


@contextmanager
def _building_folder(folder: Path) -> Iterator[Path]:
    """Make a folder inside ``folder`` for one build, and remove it at the end."""
    with ExitStack() as stack:
        with _locked(folder):  # otherwise a new folder that is not locked yet could be removed
            _remove_abandoned(folder)
            directory = tempfile.TemporaryDirectory(prefix=BUILDING, dir=folder)
            building = Path(stack.enter_context(directory))
            stack.enter_context(_locked(building))
        yield building


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, which also ends if the process is killed."""
    import fcntl  # Windows, where nothing is built, does not have it

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks for folders
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(folder: Path) -> None:
    """Remove the folders of builds whose processes were killed."""
    for building in folder.glob(f"{BUILDING}*"):
        with suppress(OSError):
            if _is_abandoned(building):
                shutil.rmtree(building, ignore_errors=True)


def _is_abandoned(building: Path) -> bool:
    import fcntl

    descriptor = os.open(building, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks: no build takes that long
        return time.time() - os.fstat(descriptor).st_mtime > 4 * LONGEST_COMMAND
    finally:
        os.close(descriptor)
    return True


def _is_private(status: os.stat_result) -> bool:
    """Return whether the user, and nobody else, can write to a file or folder."""
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _sealed(content: bytes, key: str) -> bytes:
    return content + hashlib.sha256(key.encode() + content).digest()


def _is_sealed(path: Path, key: str) -> bool:
    try:
        content = path.read_bytes()
        private = _is_private(path.stat())
    except OSError:
        return False
    return private and content == _sealed(content[: -hashlib.sha256().digest_size], key)
