"""The width of an output: COLUMNS, with a minimum."""

from __future__ import annotations

import os

NARROWEST = 20
"""The fewest columns that are believed."""
WIDTH = 100
"""Columns of text in Python where COLUMNS says nothing."""


def columns() -> int | None:
    """Columns that the environment asks for, at least the fewest; None where it asks for none."""
    asked = os.environ.get("COLUMNS", "")
    return max(int(asked[:6]), NARROWEST) if asked.isascii() and asked.isdigit() else None


def raise_to_narrowest() -> None:
    """Let COLUMNS of this process ask for the fewest columns where it asks for less: rich prints nothing in none."""
    if (asked := columns()) is not None:
        os.environ["COLUMNS"] = str(asked)
