"""A report on a terminal, in as many colours as it has: none for NO_COLOR, pipes and dumb terminals."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console
from rich.text import Text

from tfacct.output import layout, signs
from tfacct.output.report import Report

NARROWEST = 20


def console(stream: TextIO) -> Console:
    """A console without markup; plain text for NO_COLOR, pipes and dumb terminals."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return Console(
        file=stream,
        color_system=None if plain else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )


def show(report: Report, *, exact: bool = False) -> None:
    """Print a report on stdout: title, table, notes."""
    out = console(sys.stdout)
    lines = layout.lines(
        report, max(out.width, NARROWEST), exact=exact, spelled=lambda text: signs.written(text, sys.stdout)
    )
    # What cannot be broken, an address, is left to the terminal.
    out.print(Text("\n").join(Text(*line) for line in lines), soft_wrap=True)
