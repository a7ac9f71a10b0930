"""Views of a report in Python: text, notebook, HTML page, pandas DataFrame, picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tfacct.base.errors import MissingExtraError, UsageError
from tfacct.output import layout, report, signs
from tfacct.output.report import LEFT
from tfacct.output.width import WIDTH, columns

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from tfacct.output.chart import Chart

LONGEST = 2**63
"""The first integer that pandas' Int64 cannot represent."""
EXACT = 2**53
"""A float64 represents every integer up to this one."""


class Report(report.Report):
    """What a method answers: `print` shows its table; each key of its JSON is an attribute, such as `total_bytes`."""

    if TYPE_CHECKING:
        _chart: Callable[[], Chart] | None
        """Makes what `plot` draws."""
    else:
        _chart = None

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the report's picture into `ax` or new axes, and return them. Needs matplotlib. Raises TfacctError if the
        report has no picture.
        """
        if self._chart is None:
            raise UsageError(
                "this report has no picture",
                "pictures exist for flops, params, memory, kv, train and sweep",
            )
        from tfacct.output import plot

        return plot.axes(self._chart(), ax)

    def to_html(self, digits: bool = False) -> str:
        """The report as an HTML page without scripts. `digits`: every digit of a number."""
        from tfacct.output import html

        return html.page(self, digits)

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a DataFrame of plain dtypes: Int64, float64, boolean, string. Needs pandas; no totals.

        Whole numbers whose sum exceeds 2⁶³ stay Python ints, which are exact. Raises TfacctError without pandas.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("to_pandas needs pandas", "pandas") from None
        rows = self.rows
        columns = {key: ([row[key] for row in rows], kind) for key, kind in self.row_keys.items()}
        return pd.DataFrame({key: _series(pd, values, words=kind in LEFT) for key, (values, kind) in columns.items()})

    def __str__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        from tfacct.output import html

        return html.fragment(self)


def text(shown: report.Report) -> str:
    """The report as plain text, COLUMNS or else 100 wide: title, answer, table, notes, hints."""
    width = columns() or WIDTH

    def spelled(words: str) -> str:
        return signs.written(words, sys.stdout)

    lines = [line.text.rstrip() for line in layout.lines(shown, width, digits=False, spelled=spelled)]
    hints = [line for hint in shown.hints for line in layout.wrapped(spelled(hint), width)]
    return "\n".join([*lines, *hints]).rstrip("\n")


def _series(pd: Any, values: Sequence[Any], *, words: bool) -> Any:
    """Cells of one column in the plainest dtype that can represent them."""
    there = [value for value in values if value is not None]
    kinds = {type(value) for value in there} or ({str} if words else {int})
    if kinds == {bool}:
        return pd.Series(values, dtype="boolean")
    if kinds == {int}:
        exact = sum(map(abs, there)) < LONGEST  # else the sum of the column would silently overflow
        return pd.Series(values, dtype="Int64" if exact else object)
    if kinds <= {int, float}:
        exact = all(isinstance(value, float) or abs(value) <= EXACT for value in there)
        return pd.Series(values, dtype="float64" if exact else object)
    return pd.Series([None if value is None else str(value) for value in values], dtype="string")
