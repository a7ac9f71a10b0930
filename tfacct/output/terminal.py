"""Prints a report on a terminal, without colours for NO_COLOR, pipes and dumb terminals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

from rich.console import Console
from rich.text import Text

from tfacct.output import layout, signs
from tfacct.output.report import Report
from tfacct.output.width import NARROWEST


class _Console(Console):
    """A console that leaves a closed pipe to the caller; rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Re-raise the BrokenPipeError that is being handled."""
        raise


def console(stream: TextIO) -> Console:
    """A console; plain text for NO_COLOR, pipes and dumb terminals."""
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return _Console(
        file=stream,
        color_system=None if plain else "auto",
        highlight=False,
    )


LIMIT = 20
"""Most rows of a table on a terminal without --limit."""


def show(report: Report, *, digits: bool = False, verbose: bool = False, limit: int | None = None) -> None:
    """Print a report on stdout: title, answer, table, notes, and its `details` if `verbose`.

    `limit`: most rows of the table, 0 for all; None: 20 on a terminal, all into a pipe or a file.
    """
    if limit is None:
        limit = LIMIT if sys.stdout.isatty() else 0
    out = console(sys.stdout)
    width = max(out.width, NARROWEST)
    lines = layout.lines(
        report,
        width,
        digits=digits,
        spelled=lambda text: signs.written(text, sys.stdout),
        verbose=verbose,
        limit=limit,
    )
    # A URL is left to the terminal.
    out.print(Text("\n").join(map(_styled, lines)), soft_wrap=True)


def complain(lines: Iterable[str]) -> None:
    """Print an error on stderr, with its first word in red if there are colours.

    Lines are wrapped to the width of a terminal; a pipe gets whole lines.
    """
    out = console(sys.stderr)
    for line in lines:
        text = Text("\n".join(layout.wrapped(line, out.width) if out.is_terminal else [line]))
        text.highlight_regex(r"^error:", "bold red")
        out.print(text, soft_wrap=True)


def _styled(line: layout.Line) -> Text:
    text = Text(line.text, line.style)
    for span in line.spans:
        text.stylize(span.style, span.start, span.end)
    return text
