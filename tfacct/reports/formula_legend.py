"""The letters of a formula, as they are explained under it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEGEND_WIDTH = 79
"""The letters are explained in lines that a terminal of 80 columns does not break."""


def legend_notes(legend: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The letters, as many on a line as fit."""
    notes: list[str] = []
    for letter, about in legend.items():
        value = f" = {about['value']:,}" if "value" in about else ""
        entry = f"{letter}{value} {about['meaning']}"
        if notes and len(f"{notes[-1]}; {entry}") < LEGEND_WIDTH:
            notes[-1] += f"; {entry}"
        else:
            notes.append(entry)
    return notes
