"""A report as lines of text that fit a width. Digits are never wrapped, and no requested column is lost.

A table that is too wide gives up, in this order: columns by their `drop`, from 5 (notation) to 2 (ratios); headers on
one line; details (`drop` 1); text cells on one line. A table that is still too wide is printed in several parts, one
below the other, each with the columns that name its rows.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import NamedTuple

from tfacct.base.errors import printable
from tfacct.base.record import record
from tfacct.base.spelling import option
from tfacct.base.spelling import spelled as option_name
from tfacct.output.report import BACKGROUND, LEFT, PLAIN, Cell, Column, Report, Row
from tfacct.output.width import broken, pieces

BAR_AT_LEAST, BAR_AT_MOST = 6, 24
GAP = 2
INDENT = "  "
"""Before the lines of a cell after its first."""
DECORATION = ("bar", "spec")
"""Kinds of columns that repeat others: they are hidden first, and not mentioned."""
DETAIL = 1
"""The `drop` of columns that are hidden only if breaking headers does not help."""
TEXT = re.compile(r"(?<=[^÷×] )|(?<=[a-z\d_*]\.)(?=[A-Za-z])|(?<=[a-z_]{8}_)(?=[a-z])")
FORMULA = re.compile(r"(?<=[^÷×] )|(?<=[·*])(?![*])")
HEADER = re.compile(r"(?<=[^÷/×] )|(?<=[._])(?=[A-Za-z])|(?<=\S\+)(?=\S)")
"""Where a text cell, a formula and a header may be broken: never within a number."""


AGREES = ("ok", "proven")
"""Positive verdicts."""
ANSWER, TOTAL, LARGEST, ASIDE, GOOD, BAD = "bold", "bold", "cyan", "dim", "green", "bold red"
"""Styles. None has a meaning that the words lack."""


class Span(NamedTuple):
    """A styled range of characters in a line."""

    start: int
    end: int
    style: str


class Line(NamedTuple):
    """One line on the screen."""

    text: str = ""
    style: str = ""
    spans: tuple[Span, ...] = ()


@record
class Part:
    """Columns side by side and their widths. A header is broken at its width, or on one line."""

    columns: tuple[Column, ...]
    widths: dict[str, int]

    @property
    def width(self) -> int:
        """Characters of a line, its leading space included."""
        return 1 + sum(self.widths[column.key] + GAP for column in self.columns) - GAP


class Table:
    """A report's cells as text."""

    def __init__(self, report: Report, digits: bool, spelled: Callable[[str], str], limit: int = 0) -> None:
        self.spelled = spelled
        self.columns = tuple(column._replace(label=printable(spelled(column.label))) for column in report.columns)
        every = report.cells
        shown = every if not limit or len(every) <= limit + 1 else every[:limit]
        self.more = len(every) - len(shown)
        """Rows past the limit. A single one is shown, because the line that counts it would be as long."""
        self.lengths = list(map(len, report.sections))
        self.shown = len(shown)
        self.rows: tuple[Row, ...] = (*shown, *report.total_rows)
        shares = [share for row in report.cells if isinstance(share := row.get("share"), Fraction)]
        self.largest = max(shares) if len(set(shares)) > 1 else None
        self.longest = {
            column.key: longest_bar(report, column.key) for column in report.columns if column.kind == "bar"
        }
        self.next_to_bars = {
            key: max((len(spelled(text)) for row in self.rows if isinstance(text := row.get(key), str)), default=0)
            for key in self.longest
        }
        self.texts = [
            {column.key: printable(spelled(column.text(row.get(column.key), digits))) for column in report.columns}
            for row in self.rows
        ]
        self.body = {
            key: max((len(text[key]) for text in self.texts), default=0) for key in (c.key for c in self.columns)
        }

    def parts(self, width: int) -> tuple[list[Part], list[Column]]:
        """The table in parts that are at most `width` wide, and the hidden columns."""
        part = self._fewer(self._part(self.columns), width, above=DETAIL)
        if part.width > width:
            part = self._fewer(self._header_broken(part.columns), width, above=0)
        left = [column for column in self.columns if column not in part.columns and column.kind not in DECORATION]
        if part.width > width:
            part = self._text_broken(part, width)
        if part.width > width:
            return list(self._split(part, width)), left
        return [self._widened(part, width)], left

    @staticmethod
    def _fewer(part: Part, width: int, above: int) -> Part:
        """The part with the least important columns (highest `drop`) removed until it fits. Columns of one `drop` leave
        together; details leave one by one from the right, because the first columns matter most."""
        while part.width > width and (droppable := [column for column in part.columns if column.drop > above]):
            most = max(column.drop for column in droppable)
            least = [column for column in droppable if column.drop == most]
            leaving = least[-1:] if most == DETAIL else least
            part = replace(part, columns=tuple(column for column in part.columns if column not in leaving))
        return part

    def _part(self, columns: tuple[Column, ...]) -> Part:
        """The columns with every header on one line and bars at their shortest."""
        return Part(columns, {column.key: max(len(column.label), self._content(column)) for column in columns})

    def _content(self, column: Column) -> int:
        return max(BAR_AT_LEAST, self.next_to_bars[column.key]) if column.kind == "bar" else self.body[column.key]

    def _header_broken(self, columns: tuple[Column, ...]) -> Part:
        """The columns with every header broken that is wider than its cells."""
        return Part(columns, {c.key: max(self._content(c), _longest(c.label, HEADER)) for c in columns})

    def _text_broken(self, part: Part, width: int, *, anyway: bool = False) -> Part:
        """The part with text cells broken, the widest first, until it fits. If it cannot fit it is unchanged, or
        `anyway` as narrow as it can be."""
        widths = dict(part.widths)
        least = {
            column.key: max(
                _longest(column.label, HEADER),
                *(_longest(text[column.key], _breaks(column)) for text in self.texts),
            )
            for column in part.columns
            if column.kind in LEFT and self.texts
        }
        while (excess := replace(part, widths=widths).width - width) > 0:
            breakable = [key for key, narrowest in least.items() if widths[key] > narrowest]
            if not breakable:
                return replace(part, widths=widths) if anyway else part
            key = max(breakable, key=widths.__getitem__)
            widths[key] = max(least[key], widths[key] - excess)
        return replace(part, widths=widths)

    def _widened(self, part: Part, width: int) -> Part:
        """The part with the fewest header lines and the longest bars that fit."""
        broken = [column for column in part.columns if len(column.label) > part.widths[column.key]]
        while broken:
            tallest = max(broken, key=lambda column: _height(column, part.widths[column.key]))
            now, free = part.widths[tallest.key], width - part.width
            wider = (w for w in range(now + 1, now + free + 1) if _height(tallest, w) < _height(tallest, now))
            enough = next(wider, None)
            if enough is None:
                broken.remove(tallest)
            else:
                part = replace(part, widths=part.widths | {tallest.key: enough})
                broken = [column for column in broken if len(column.label) > part.widths[column.key]]
        bars = [column.key for column in part.columns if column.kind == "bar"]
        longer = {key: max(part.widths[key], min(BAR_AT_MOST, BAR_AT_LEAST + width - part.width)) for key in bars}
        return replace(part, widths=part.widths | longer)

    def _split(self, part: Part, width: int) -> Iterator[Part]:
        """Parts that fit, each with the columns that name the rows."""
        naming = tuple(column for i, column in enumerate(part.columns) if i == 0 or column.names_rows)
        columns = naming
        for column in (column for column in part.columns if column not in naming):
            if columns != naming and replace(part, columns=(*columns, column)).width > width:
                yield self._widened(self._text_broken(replace(part, columns=columns), width, anyway=True), width)
                columns = naming
            columns = (*columns, column)
        last = self._text_broken(replace(part, columns=columns), width, anyway=True)
        yield self._widened(last, width)

    def lines(self, part: Part) -> Iterator[Line]:
        """A part: its header, a rule, its rows, a blank line between sections."""
        header = {column.key: broken(column.label, part.widths[column.key], HEADER) for column in part.columns}
        height = max(map(len, header.values()))
        yield from _side_by_side(part, {key: [""] * (height - len(text)) + text for key, text in header.items()}, ASIDE)
        yield Line(" " + self.spelled("─") * (part.width - 1), ASIDE)
        rows = zip(self.rows, self.texts, strict=True)
        of_sections = islice(rows, self.shown)
        sections = [(list(islice(of_sections, length)), self._style) for length in self.lengths]
        shown = 0
        for section, style in (*sections, (list(rows), lambda row: "" if row.get(PLAIN) else TOTAL)):
            lines = [
                line
                for row, text in section
                if self._says(part, text)
                for line in self._row(part, row, text, style(row))
            ]
            if lines and shown:
                yield Line()
            yield from lines
            shown += len(lines)

    def _style(self, row: Row) -> str:
        """Style of a row: the row with the largest share is highlighted."""
        share = row.get("share")
        return LARGEST if share and share == self.largest else ""

    def _says(self, part: Part, text: dict[str, str]) -> bool:
        """True if a row has a value in this part of a table."""
        return len(part.columns) == len(self.columns) or any(
            text[column.key] for index, column in enumerate(part.columns) if index and not column.names_rows
        )

    def _row(self, part: Part, row: Row, text: dict[str, str], style: str) -> Iterator[Line]:
        """A row, in as many lines as its cells need."""
        cells = {
            column.key: [self.spelled(_bar(row.get(column.key), self.longest[column.key], part.widths[column.key]))]
            if column.kind == "bar"
            else _cell(text[column.key], part.widths[column.key], _breaks(column))
            for column in part.columns
        }
        yield from _side_by_side(part, cells, style)


def lines(
    report: Report, width: int, *, digits: bool, spelled: Callable[[str], str], verbose: bool = False, limit: int = 0
) -> Iterator[Line]:
    """Lines of a report: answer, title, table, notes, hidden columns. `spelled` replaces signs that the screen cannot
    show, before text is measured; `limit`: most rows of the table, 0 for all."""
    yield from _sentence(spelled(report.answer), width, ANSWER)
    if report.derivation is not None or not report.untitled:
        yield from _sentence(spelled(report.title), width)
    yield Line()
    hidden: list[Column] = []
    if report.derivation is None:
        table = Table(report.labelled(digits), digits, spelled, limit)
        parts, hidden = table.parts(width)
        for part in parts if table.rows else ():
            yield from table.lines(part)
            if table.more:
                yield Line(spelled(f" … {table.more:,} more rows ({option('limit', 0)})"), ASIDE)
            yield Line()
    else:
        from tfacct.output import derivation

        yield from (Line(*line) for line in derivation.lines(report.derivation, width, spelled))
        yield Line()
    notes, others = report.under_table(verbose)
    for note in notes:
        text = f"{note.removesuffix('.')} · tfacct help counting" if note.key == "counted" else note
        if others and note is notes[-1]:
            count = "1 more note" if len(others) == 1 else f"{len(others)} more notes"
            text = f"{text} ({count}: {option_name('-v', '.notes')})"
        yield from _sentence(spelled(text), width, ASIDE if note.key in BACKGROUND else "")
    if named := [f'"{column.label}"' for column in hidden if column.label]:
        text = f"Columns not shown at this width: {', '.join(named)}"
        yield from (Line(part, ASIDE) for part in broken(text, width, TEXT))


def _sentence(text: str, width: int, style: str = "") -> Iterator[Line]:
    return (Line(line, style) for line in wrapped(text, width))


def wrapped(text: str, width: int) -> list[str]:
    """A sentence in lines of at most `width`, broken at spaces; a long formula between factors, a URL never."""
    lines = textwrap.wrap(printable(text), width, break_long_words=False, break_on_hyphens=False)
    return [part for line in lines for part in ([line] if "://" in line else broken(line, width, FORMULA))]


def _height(column: Column, width: int) -> int:
    """Lines in the header."""
    return len(broken(column.label, width, HEADER))


def _breaks(column: Column) -> re.Pattern[str]:
    """Pattern of the places where cells may be broken."""
    return FORMULA if column.kind == "formula" else TEXT


def _cell(text: str, width: int, breaks: re.Pattern[str]) -> list[str]:
    """A cell in lines; those after the first are indented where there is room."""
    lines = broken(text, width, breaks, INDENT)
    return lines if max(map(len, lines)) <= width else broken(text, width, breaks)


def _longest(text: str, breaks: re.Pattern[str]) -> int:
    """The longest piece of a text that cannot be broken, apart from URLs."""
    return max(0 if "://" in piece else len(piece.rstrip()) for piece in pieces(text, breaks))


def _side_by_side(part: Part, cells: dict[str, list[str]], style: str = "") -> Iterator[Line]:
    """One row in as many lines as its highest cell: text to the left, numbers to the right, no trailing spaces."""
    for index in range(max(map(len, cells.values()))):
        text, spans = " ", []
        for column in part.columns:
            cell = cells[column.key][index] if index < len(cells[column.key]) else ""
            width = part.widths[column.key]
            if column.kind == "verdict" and cell:
                spans.append(Span(len(text), len(text) + len(cell), GOOD if cell in AGREES else BAD))
            text += (cell.ljust(width) if column.kind in LEFT else cell.rjust(width)) + " " * GAP
        yield Line(text.rstrip(), style, tuple(spans))


def longest_bar(report: Report, key: str) -> Fraction:
    """The value whose bar has the full length."""
    return max((cell for row in report.cells if isinstance(cell := row.get(key), Fraction)), default=Fraction(1))


def _bar(cell: Cell, longest: Fraction, width: int) -> str:
    if isinstance(cell, str):
        return cell
    if not isinstance(cell, Fraction) or cell <= 0:
        return ""
    halves = round(cell / longest * min(width, BAR_AT_MOST) * 2)
    return "█" * (halves // 2) + "▌" * (halves % 2)
