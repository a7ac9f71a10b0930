"""What a terminal shows."""

import contextlib
import io
import sys

import pytest

from tfacct.cli import main


def through(encoding: str, *arguments: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Output of a command into a stream of that encoding, decoded."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding, errors="strict", newline="")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["tfacct", *arguments])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as stop:
            assert not stop.code
        out.flush()
    return raw.getvalue().decode(encoding)
