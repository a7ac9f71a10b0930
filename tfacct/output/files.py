"""Output files: checked before the work, and never half written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tfacct.base.atomic_files import atomic_write
from tfacct.base.errors import UsageError
from tfacct.base.spelling import option


def check(name: str, file: str, endings: tuple[str, ...], *, force: bool) -> Path:
    """The file that an option names, links followed. Raises UsageError if it cannot or must not be written.

    `endings`: allowed file endings; `force`: overwriting is allowed.
    """
    given = Path(file)
    if given.suffix.lower() not in endings:
        ending = f"unsupported file ending {given.suffix!r}" if given.suffix else "the name of a file needs an ending"
        raise UsageError(f"{option(name, file)}: {ending}", f"use {', '.join(endings)}")
    try:
        path = given.resolve()
        if path.is_dir() or not path.parent.is_dir():
            why = "that is a folder" if path.is_dir() else f"no folder {given.parent}"
            raise UsageError(f"{option(name, file)}: {why}")
        if (path.exists() or given.is_symlink()) and not force:
            raise UsageError(f"{option(name, file)} exists", f"{option('force', True)} overwrites it")
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{option(name, file[:60])}: {getattr(error, 'strerror', None) or error}") from None
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option(name, file)}: {path.parent} cannot be written to")
    return path


def write(name: str, path: Path, into: Callable[[Path], object]) -> None:
    """Write a checked file: `into` fills a temporary file in its folder, which then replaces it."""
    try:
        with atomic_write(path) as temporary:
            into(temporary)
    except OSError as error:
        raise UsageError(f"{option(name, str(path))}: {error.strerror or error}") from None


def write_text(name: str, path: Path, text: str) -> None:
    """Write a text in UTF-8 to a checked file."""
    write(name, path, lambda target: target.write_text(text, encoding="utf-8"))
