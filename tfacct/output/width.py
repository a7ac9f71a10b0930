"""The width of the output: COLUMNS, with a minimum."""

from __future__ import annotations

import os

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
