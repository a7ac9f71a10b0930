"""A report as HTML: a fragment for a notebook, or a page for a file. It has no scripts and fetches nothing.

All styles are classes in `report.css`: no element has a style attribute, so the page's policy forbids them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from fractions import Fraction
from html import escape
from importlib.resources import files

from tfacct.base.errors import printable
from tfacct.base.version import __version__
from tfacct.output.layout import AGREES, longest_bar
from tfacct.output.report import BACKGROUND, LEFT, PLAIN, Cell, Column, Kind, Report, Row

CODE = ("spec", "formula")
"""Kinds of cells with notation."""


def page(report: Report, digits: bool = False) -> str:
    """A whole document: the report, with its conventions folded below. Works in light and dark, on paper and with a
    screen reader. Its policy forbids scripts and requests."""
    style = stylesheet()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    others = "".join(f"<p>{_text(note)}</p>" for note in (*report.under_table()[1], *report.details))
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{_text(report.title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            '<body class="tfacct-page">',
            '<main class="tfacct">',
            *body(report, "h1", digits),
            *([f"<details><summary>Conventions</summary>{others}</details>"] if others else ()),
            f'<p class="aside">tfacct {__version__}</p>',
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def fragment(report: Report) -> str:
    """The report as one element that includes its stylesheet."""
    return "\n".join(['<div class="tfacct">', f"<style>{stylesheet()}</style>", *body(report, "p"), "</div>"])


def stylesheet() -> str:
    """The styles of a report, all under the class `tfacct`."""
    return files("tfacct.output").joinpath("report.css").read_text(encoding="utf-8")


def body(report: Report, heading: str, digits: bool = False) -> Iterator[str]:
    """Title, answer, table or derivation, notes, hints."""
    yield f'<{heading} class="title">{_text(report.title)}</{heading}>'
    if report.answer:
        yield f'<p class="answer"><strong>{_text(report.answer)}</strong></p>'
    if report.derivation is None:
        yield from _table(report.labelled(digits), digits)
    else:
        from tfacct.output import derivation

        lines = derivation.lines(report.derivation, derivation.WIDTH, str)
        text = "\n".join(f"<b>{_text(line)}</b>" if style == "bold" else _text(line) for line, style in lines)
        yield f"<pre>{text}</pre>"
    for kind, background in (("notes", False), ("aside", True)):
        if notes := [note for note in report.shown_notes if (note.key in BACKGROUND) == background]:
            yield f'<p class="{kind}">{"<br>".join(map(_text, notes))}</p>'
    if report.hints:
        yield f'<p class="aside"><small>{"<br>".join(map(_text, report.hints))}</small></p>'


def _table(report: Report, digits: bool) -> Iterator[str]:
    """The rows: a body for every section, a foot for the totals. A wide table scrolls by itself."""
    columns = report.columns
    longest = {column.key: longest_bar(report, column.key) for column in columns if column.kind == "bar"}
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(report.title)}">'
    yield "<table>"
    yield f"<thead><tr>{''.join(map(_header, columns))}</tr></thead>"
    for tag, rows in [*(("tbody", section) for section in report.sections), ("tfoot", report.total_rows)]:
        if rows:
            yield f"<{tag}>"
            yield from (_row(row, columns, longest, digits, total=tag == "tfoot") for row in rows)
            yield f"</{tag}>"
    yield "</table>"
    yield "</div>"


def _header(column: Column) -> str:
    if not column.label:
        return f"<td{_classed(column.kind)}></td>"  # an empty header
    return f'<th scope="col"{_classed(column.kind)}>{_text(column.label)}</th>'


def _row(row: Row, columns: tuple[Column, ...], longest: dict[str, Fraction], digits: bool, *, total: bool) -> str:
    name, *rest = columns
    first = f'<th scope="row"{_classed(name.kind)}>{_cell(name, row.get(name.key), digits)}</th>'
    cells = (
        _bar(row.get(column.key), longest[column.key]) if column.kind == "bar" else _number(column, row, digits)
        for column in rest
    )
    plain = ' class="plain"' if total and row.get(PLAIN) else ""
    return f"<tr{plain}>{first}{''.join(cells)}</tr>"


def _number(column: Column, row: Row, digits: bool) -> str:
    """A cell; the exact number shows on hover."""
    cell = row.get(column.key)
    shown, every_digit = column.text(cell, digits), column.text(cell, digits=True)
    more = f' title="{_text(every_digit)}"' if every_digit != shown else ""
    return f"<td{_classed(column.kind, shown)}{more}>{_cell(column, cell, digits)}</td>"


def _cell(column: Column, cell: Cell, digits: bool) -> str:
    text = _text(column.text(cell, digits))
    return f"<code>{text}</code>" if column.kind in CODE and text else text


def _classed(kind: Kind, shown: str = "") -> str:
    """CSS class of a cell: text to the left, a verdict in its colour; none for numbers, which are on the right."""
    if kind == "verdict" and shown:
        return f' class="words {"good" if shown in AGREES else "bad"}"'
    return ' class="words"' if kind in LEFT else ""


def _bar(cell: Cell, longest: Fraction) -> str:
    """A bar; screen readers skip it, because the numbers have the same content."""
    if not isinstance(cell, Fraction) or cell <= 0:
        return f"<td>{_text(cell) if isinstance(cell, str) else ''}</td>"
    width = f"{float(100 * cell / longest):.4g}"
    rectangle = f'<rect width="{width}" height="10"/>'
    return f'<td><svg aria-hidden="true" viewBox="0 0 100 10" preserveAspectRatio="none">{rectangle}</svg></td>'


def _text(words: str) -> str:
    """Text from outside, escaped."""
    return escape(printable(words))
