"""Files that are written as a whole or not at all: first under another name, then renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: what a killed process leaves there stays
    fcntl = None  # type: ignore[assignment]

PREFIX = ".writing-"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary file in the folder of `path`, which takes its place at the end of the block.

    It is locked meanwhile: files of that kind without a lock are what killed processes left, and are removed.
    Raises OSError.
    """
    _remove_stale(path.parent)
    handle, temporary = _locked(path)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


def _locked(path: Path) -> tuple[int, Path]:
    """A new temporary file, locked while its handle is open."""
    while True:
        handle, name = tempfile.mkstemp(suffix=path.suffix, prefix=PREFIX, dir=path.parent)
        _lock(handle)
        if Path(name).exists():  # nobody took it for a stale one before it was locked
            return handle, Path(name)
        os.close(handle)


def _lock(handle: int) -> bool:
    """True if nobody else has a lock on an open file, and this process has one now."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody's, or a file system without locks
        return False
    return True


def _remove_stale(folder: Path) -> None:
    """Remove what processes that were killed left in a folder."""
    for left in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            handle = os.open(left, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if _lock(handle):
                    left.unlink()
            finally:
                os.close(handle)


def _umask() -> int:
    """Permissions that a new file may not have; there is no way to ask but to set them."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
