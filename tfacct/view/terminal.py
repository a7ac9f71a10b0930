"""A report on a terminal: the widest table that fits, digits never wrapped."""

from __future__ import annotations

import os
import sys
import textwrap
from fractions import Fraction
from itertools import islice
from typing import TextIO

from rich.console import Console
from rich.text import Text

from tfacct.errors import printable
from tfacct.report import LEFT, Cell, Column, Report

BAR_AT_LEAST, BAR_AT_MOST = 6, 24
GAP = 2
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
    out.width = max(out.width, NARROWEST)
    rows = (*report.rows, *report.totals)
    texts = [{column.key: column.text(row.get(column.key), exact) for column in report.columns} for row in rows]
    widths = {
        column.key: max(len(column.label), *(len(text[column.key]) for text in texts), 0) for column in report.columns
    }
    columns, bar = _fitting(report.columns, widths, out.width)
    for key in (column.key for column in columns if column.kind == "bar"):
        widths[key], longest = bar, _longest(report, key)
        for text, row in zip(texts, rows, strict=True):
            text[key] = _bar(row.get(key), longest, bar)

    lines = [
        Text(printable(report.title), "bold"),
        Text(),
        _line(columns, widths, {column.key: column.label for column in columns}, "dim"),
        Text(" " + "─" * (sum(widths[column.key] + GAP for column in columns) - GAP), "dim"),
    ]
    following = iter(texts)
    for index, section in enumerate(report.sections):
        lines += [Text()] if index else []
        lines += [_line(columns, widths, text) for text in islice(following, len(section))]
    lines += [Text()] if report.totals else []
    lines += [_line(columns, widths, text, "bold") for text in following]
    lines.append(Text())
    # A line too long is better than a broken number: only the notes are wrapped.
    out.print(Text("\n").join(lines), soft_wrap=True)
    for note in report.notes:
        wrapped = textwrap.fill(note, out.width, break_long_words=False, break_on_hyphens=False)
        out.print(Text(wrapped, "dim"), soft_wrap=True)


def _line(columns: list[Column], widths: dict[str, int], cells: dict[str, str], style: str = "") -> Text:
    """One row: text to the left, numbers to the right, nothing behind the last cell."""
    padded = (
        cells[column.key].ljust(widths[column.key])
        if column.kind in LEFT
        else cells[column.key].rjust(widths[column.key])
        for column in columns
    )
    return Text(printable(" " + (" " * GAP).join(padded)).rstrip(), style)


def _fitting(columns: tuple[Column, ...], widths: dict[str, int], width: int) -> tuple[list[Column], int]:
    """The columns that fit, most wanted first, and the room that is left for a bar."""
    kept = list(columns)
    while True:
        taken = 1 + sum((BAR_AT_LEAST if c.kind == "bar" else widths[c.key]) + GAP for c in kept) - GAP
        droppable = [column for column in kept if column.drop]
        if taken <= width or not droppable:
            return kept, min(BAR_AT_MOST, BAR_AT_LEAST + max(0, width - taken))
        kept.remove(max(droppable, key=lambda column: column.drop))


def _longest(report: Report, key: str) -> Fraction:
    """The value whose bar is as long as there is room."""
    return max((cell for row in report.rows if isinstance(cell := row.get(key), Fraction)), default=Fraction(1))


def _bar(cell: Cell, longest: Fraction, width: int) -> str:
    if not isinstance(cell, Fraction) or not longest:
        return ""
    halves = round(cell / longest * width * 2)
    return "█" * (halves // 2) + "▌" * (halves % 2)
