"""Views of a report that only Python's callers ask for: text, a pandas DataFrame."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfacct.base.errors import MissingExtraError
from tfacct.output import layout, signs
from tfacct.output.report import LEFT, Report
from tfacct.output.width import WIDTH, columns

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 2**63
"""What an Int64 of pandas cannot hold any more."""
EXACT = 2**53
"""Up to here a float64 holds every whole number."""


def text(report: Report) -> str:
    """The report as plain text: title, answer, table, notes, hints; as wide as COLUMNS says, else 100."""
    width = columns() or WIDTH

    def spelled(words: str) -> str:
        return signs.written(words, sys.stdout)

    lines = [line.text.rstrip() for line in layout.lines(report, width, digits=False, spelled=spelled)]
    hints = [line for hint in report.hints for line in layout.wrapped(spelled(hint), width)]
    return "\n".join([*lines, *hints]).rstrip("\n")


def frame(report: Report) -> pd.DataFrame:
    """The rows as a DataFrame, its columns Int64, float64, boolean or string. Raises MissingExtraError.

    Whole numbers whose sum an Int64 does not hold stay Python's own, in a column of objects: they are exact.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError("to_pandas needs pandas", "pandas") from None
    rows = report.rows
    columns = {key: ([row[key] for row in rows], kind) for key, kind in report.row_keys.items()}
    series = {key: _series(pd, values, words=kind in LEFT) for key, (values, kind) in columns.items()}
    return pd.DataFrame(series)


def _series(pd: Any, values: Sequence[Any], *, words: bool) -> Any:
    """Cells of one column in the plainest dtype that holds them."""
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there} or ({str} if words else {int})
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean")
    if kinds == {int}:
        held = sum(map(abs, there)) < LONGEST  # else adding the column up would wrap, without a word
        return pd.Series(values, dtype="Int64" if held else object)
    if kinds <= {int, float}:
        held = all(isinstance(value, float) or abs(value) <= EXACT for value in there)
        return pd.Series(values, dtype="float64" if held else object)
    return pd.Series([None if value is None else str(value) for value in values], dtype="string")
