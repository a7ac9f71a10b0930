"""Escapes text from outside, such as file names, for CSV, Markdown and LaTeX."""

from __future__ import annotations

import re

from tfacct.base.errors import printable

_FORMULA = re.compile(r"[=+\-@\t\r]")
_MARKUP = re.compile(r"[|*<]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|\[(?=[^\]]*\][(\[:])|&(?=#?\w+;)")
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "_%&#${}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "×": r"$\times$",
        "÷": r"$\div$",
        "·": r"$\cdot$",
        "−": "$-$",
        "≈": r"$\approx$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "→": r"$\to$",
        "–": "--",
        "…": r"\dots{}",
    }
)


def csv_cell(text: str) -> str:
    """Text of a cell that no spreadsheet runs as a formula: an apostrophe precedes what begins like one.

    >>> csv_cell("=cmd()"), csv_cell("-1+2"), csv_cell("gpt2")
    ("'=cmd()", "'-1+2", 'gpt2')
    """
    return printable(f"'{text}" if _FORMULA.match(text) else text)


def markdown(text: str) -> str:
    r"""Text in Markdown without emphasis, columns, links or HTML of its own.

    >>> markdown("a*b | c"), markdown("<img src=x>"), markdown("[a](b)"), markdown("[1, 2] & 3 -> 4")
    ('a\\*b \\| c', '&lt;img src=x>', '\\[a](b)', '[1, 2] & 3 -> 4')
    """
    return _MARKUP.sub(lambda sign: _ENTITIES.get(sign[0], f"\\{sign[0]}"), printable(text))


def latex(text: str) -> str:
    r"""Text in LaTeX, outside math mode.

    >>> latex("k_proj, 50%"), latex("≈ 3 × 4")
    ('k\\_proj, 50\\%', '$\\approx$ 3 $\\times$ 4')
    """
    return printable(text).translate(_LATEX)
