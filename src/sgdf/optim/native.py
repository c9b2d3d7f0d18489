"""Builds, keeps and loads the C code beside this file.

An object is built on first use, by whatever C compiler the machine has, and kept in the
user's cache. Its name holds everything that its contents depend on, and its last bytes
a digest: a file that is torn, tampered with or another user's is built anew, not loaded.
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
from collections.abc import Iterator
from pathlib import Path

# No -march: the source picks the vector width at run time. No -ffast-math: loading such an
# object makes the whole process flush subnormal numbers to zero.
COMPILE = (
    *("-std=gnu11", "-O3", "-fno-unswitch-loops", "-fPIC", "-fopenmp"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"),
)
# Without -fopenmp: its symbols are found in the OpenMP library that torch has loaded.
LINK = ("-shared",)
LIBRARIES = ("-lm",)

Command = list[str]


def load(source: Path) -> ctypes.CDLL:
    """Return the library made of ``source``; raise ``OSError`` with the reason if none can be."""
    if sys.platform != "linux":
        raise OSError(f"native code is built on Linux only, this is {sys.platform}")
    reasons = []
    for compiler in _compilers():
        try:
            return _load(source, compiler)
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(_reason(compiler, error))
    raise OSError("; ".join(reasons) or "no C compiler was found (cc, gcc, clang, or $CC)")


def cache_directory() -> Path:
    """Return where the objects are kept: ``$XDG_CACHE_HOME/sgdf`` or ``~/.cache/sgdf``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sgdf"


def _compilers() -> Iterator[Command]:
    """Yield the compiler that ``$CC`` asks for, or else each one that is installed."""
    if asked := shlex.split(os.environ.get("CC", "")):
        yield asked
        return
    found = filter(None, map(shutil.which, ("cc", "gcc", "clang")))
    yield from ([path] for path in {os.path.realpath(path): path for path in found}.values())


def _reason(compiler: Command, error: Exception) -> str:
    lines = str(getattr(error, "stderr", None) or error).strip().splitlines()
    telling = [line for line in lines if "error:" in line] or lines[-1:]
    return f"{shlex.join(compiler)}: {telling[0] if telling else type(error).__name__}"


def _load(source: Path, compiler: Command) -> ctypes.CDLL:
    key = _key(source, compiler)
    name = f"{source.stem}-{key[:32]}.so"
    try:
        kept = _own_cache() / name
        if _is_sealed(kept, key):
            return ctypes.CDLL(str(kept))
    except (OSError, RuntimeError):
        pass  # no cache, nothing in it, or an object that does not load: build
    with tempfile.TemporaryDirectory(prefix="sgdf-") as directory:
        built = Path(directory) / name
        _build(source, compiler, built)
        built.write_bytes(_sealed(built.read_bytes(), key))
        try:
            kept = _own_cache() / name
            _put(built, kept)
            return ctypes.CDLL(str(kept))
        except (OSError, RuntimeError):  # no home to keep it in: a build per process
            return ctypes.CDLL(str(built))


def _key(source: Path, compiler: Command) -> str:
    """Return the digest of everything that an object depends on."""
    program = shutil.which(compiler[0])
    if program is None:
        raise FileNotFoundError("not found")
    # The program's stamp stands for its version, which would take a process to ask for.
    real = os.path.realpath(program)
    stamp = os.stat(real)
    parts = (
        hashlib.sha256(source.read_bytes()).hexdigest(),
        [*compiler, *COMPILE, *LINK, *LIBRARIES],
        (real, stamp.st_size, stamp.st_mtime_ns),
        (platform.machine(), sys.maxsize, os.confstr("CS_GNU_LIBC_VERSION")),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


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
            timeout=120,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )


def _own_cache() -> Path:
    """Return the cache directory if nobody else can write to it, or raise ``OSError``."""
    directory = cache_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(directory):
        raise PermissionError(f"{directory} is not the user's own")
    return directory


def _is_private(path: Path) -> bool:
    status = path.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _sealed(content: bytes, key: str) -> bytes:
    return content + hashlib.sha256(key.encode() + content).digest()


def _is_sealed(path: Path, key: str) -> bool:
    content = path.read_bytes()
    return _is_private(path) and content == _sealed(content[: -hashlib.sha256().digest_size], key)


def _put(built: Path, kept: Path) -> None:
    """Copy a file into the cache at one stroke, since other processes may do the same."""
    handle, name = tempfile.mkstemp(dir=kept.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(built.read_bytes())
        os.replace(name, kept)
    except BaseException:
        os.unlink(name)
        raise
