"""The rows of a report, sorted by a column, or the first of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeVar

from tfacct.base.errors import UsageError, nearest
from tfacct.output.report import Amount, Cell, Column, Report

ReportT = TypeVar("ReportT", bound=Report)


def sorted_by(report: ReportT, column: str) -> ReportT:
    """The report with its rows sorted by a column, smallest first, or largest first for `-column`. Rows without a value
    come last. Raises UsageError."""
    name, falling = column.removeprefix("-"), column.startswith("-")
    columns = (*report.columns, *report.aside)
    places: dict[str, tuple[Column, int | None]]
    places = {key: (one, at) for one in columns for at, key in enumerate(one.keys)}
    places |= {title: (one, None) for one in columns for title in (one.label, one.key)}
    if name not in places:
        labels = f"columns: {', '.join(one.label for one in report.columns if one.label)}"
        raise UsageError(f"no column {name!r}", " ".join(filter(None, (nearest(name, places), labels))))

    cells = [(_part(row.get(places[name][0].key), places[name][1]), row) for row in report.cells]
    known = [(cell, row) for cell, row in cells if cell not in (None, "")]
    others = [row for cell, row in cells if cell in (None, "")]
    known.sort(key=lambda one: _order(one[0]), reverse=falling)
    return replace(report, sections=((*(row for _, row in known), *others),))


def first_rows(report: ReportT, most: int) -> ReportT:
    """The report with at most this many rows, without its totals if rows are missing; 0: all rows."""
    data = report.data and first_rows(report.data, most)
    if not most or len(report.cells) <= most:
        return replace(report, data=data)
    sections, left = [], most
    for rows in report.sections:
        sections.append(rows[:left])
        left -= len(sections[-1])
    return replace(report, sections=tuple(filter(None, sections)), total_rows=(), data=data)


def _part(cell: Cell, at: int | None) -> Cell:
    """One number of a cell with several, or the whole cell."""
    return cell if at is None or not isinstance(cell, tuple) else cell[at]


def _order(cell: Any) -> tuple[bool, Any]:
    """Numbers before texts; several numbers by their product."""
    value = cell.value if isinstance(cell, Amount) else cell
    if isinstance(value, tuple):
        product = Fraction(1)
        for one in value:
            product *= one or 0
        return False, product
    return isinstance(value, str), value.casefold() if isinstance(value, str) else value
