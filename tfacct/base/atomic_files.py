"""Atomic writes: a temporary file that is renamed when complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: temporary files of killed processes remain
    fcntl = None  # type: ignore[assignment]

PREFIX = ".writing-"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Context manager: a temporary file that replaces `path` at the end of the block.

    The file is locked until then. Temporary files without a lock come from killed processes and are removed. Raises
    OSError.
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
    """Handle and path of a new temporary file, locked while the handle is open."""
    while True:
        handle, name = tempfile.mkstemp(suffix=path.suffix, prefix=PREFIX, dir=path.parent)
        _lock(handle)
        if Path(name).exists():  # not removed as stale before it was locked
            return handle, Path(name)
        os.close(handle)


def _lock(handle: int) -> bool:
    """Try to lock an open file; False if another process has the lock."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # locked by another process, or a file system without locks
        return False
    return True


def _remove_stale(folder: Path) -> None:
    """Remove temporary files of killed processes from a folder."""
    for left in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            handle = os.open(left, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if _lock(handle):
                    left.unlink()
            finally:
                os.close(handle)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
