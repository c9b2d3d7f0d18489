"""Builds the C code beside this file, caches the library, and loads it.

The library is built on first use, with any C compiler of the machine, and stored in the user's
cache. Its file name contains a digest of everything that it depends on, and its last bytes are
a digest of its content: an incomplete or damaged file, or one that other users can write to, is
rebuilt, not loaded.
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
from contextlib import suppress
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

Command = list[str]


def load(source: Path) -> ctypes.CDLL:
    """Return the library built from ``source``, or raise ``OSError`` with the reason."""
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
    cache = _own_cache()
    if cache and _is_sealed(cache / name, key):
        with suppress(OSError):  # for example built with other system libraries
            return ctypes.CDLL(str(cache / name))
    # Built inside the cache: a folder from which no code may be loaded is noticed now.
    with tempfile.TemporaryDirectory(prefix="building-", dir=cache) as directory:
        built = Path(directory) / name
        _build(source, compiler, built)
        built.write_bytes(_sealed(built.read_bytes(), key))
        built.chmod(0o600)
        library = ctypes.CDLL(str(built))
        if cache:
            with suppress(OSError):
                os.replace(built, cache / name)  # atomic: other processes may be doing the same
        return library


def _key(source: Path, compiler: Command) -> str:
    """Return the digest of everything that a library depends on."""
    if not shutil.which(compiler[0]):
        raise FileNotFoundError("not found")
    # Size and mtime identify the compiler without starting it.
    programs = [os.path.realpath(path) for path in filter(None, map(shutil.which, compiler))]
    stamps = [os.stat(program) for program in programs]
    parts = (
        hashlib.sha256(source.read_bytes()).hexdigest(),
        [*compiler, *COMPILE, *LINK, *LIBRARIES],
        [(program, s.st_size, s.st_mtime_ns) for program, s in zip(programs, stamps, strict=True)],
        (platform.machine(), sys.maxsize, _libc_version()),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


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
            timeout=120,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )


def _own_cache() -> Path | None:
    """Return the cache folder if the user, and nobody else, can write to it."""
    try:
        directory = cache_directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        usable = _is_private(directory) and os.access(directory, os.W_OK)
    except (OSError, RuntimeError):  # RuntimeError: the user has no home
        return None
    return directory if usable else None


def _is_private(path: Path) -> bool:
    status = path.stat()
    others = stat.S_IWGRP | stat.S_IWOTH
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _sealed(content: bytes, key: str) -> bytes:
    return content + hashlib.sha256(key.encode() + content).digest()


def _is_sealed(path: Path, key: str) -> bool:
    try:
        content = path.read_bytes()
        private = _is_private(path)
    except OSError:
        return False
    return private and content == _sealed(content[: -hashlib.sha256().digest_size], key)
