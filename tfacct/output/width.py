"""The width of the output: COLUMNS, with a minimum; and text in lines of a width."""

from __future__ import annotations

import os
import re

NARROWEST = 20
"""The minimum width."""
WIDTH = 100
"""Columns of text in Python without COLUMNS."""


def columns() -> int | None:
    """COLUMNS of the environment, but at least the minimum; None if it is not set."""
    given = os.environ.get("COLUMNS", "")
    return max(int(given[:6]), NARROWEST) if given.isascii() and given.isdigit() else None


def raise_to_narrowest() -> None:
    """Raise COLUMNS of this process to the minimum: rich prints nothing at width 0."""
    if (given := columns()) is not None:
        os.environ["COLUMNS"] = str(given)


def broken(text: str, width: int, breaks: re.Pattern[str], indent: str = "") -> list[str]:
    """The text in lines of at most `width` if it can be broken so; those after the first are indented."""
    if len(text) <= width:
        return [text]
    found, line = [], ""
    for piece in pieces(text, breaks):
        if line and len((line + piece).rstrip()) > width:
            found.append(line.rstrip())
            line = indent + piece.lstrip()
        else:
            line += piece
    return [*found, line.rstrip()]


def pieces(text: str, breaks: re.Pattern[str]) -> list[str]:
    """Pieces of a text that cannot be broken; a URL is one."""
    return re.split("(?<= )" if "://" in text else breaks, text)
