"""A report that draws itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tfacct.base.errors import UsageError
from tfacct.output.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tfacct.output.chart import Chart


class Drawn(Report):
    """A Report with a picture, where there is one of it."""

    if TYPE_CHECKING:
        _chart: Callable[[], Chart] | None
        """Makes what `plot` draws."""
    else:
        _chart = None

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the report's picture into `ax`, or into axes of its own, and return them. Needs matplotlib.

        Raises TfacctError where there is no picture of the report.
        """
        if self._chart is None:
            raise UsageError("there is no picture of this report", "flops, params, memory, kv, diff and sweep have one")
        from tfacct.output import plot

        return plot.axes(self._chart(), ax)
