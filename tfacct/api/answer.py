"""A Report as Python's callers get it: the keys of its command's JSON are attributes, and `plot` draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tfacct.base.errors import UsageError
from tfacct.output.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tfacct.output.chart import Chart


class Answer(Report):
    """A Report whose exact facts are attributes: `load("gpt2").memory().weights_bytes`."""

    _line: ClassVar[type | None] = None
    """Type of one of its `lines`; None where there are none."""
    _optional: ClassVar[tuple[str, ...]] = ()
    """Keys that only some questions have."""
    _reserved: ClassVar[dict[str, Any]] = {}
    """Keys whose names mean something else in Python, or here: read them in `.models`."""

    model: str
    family: str

    if TYPE_CHECKING:
        _chart: Callable[[], Chart] | None
        """Makes what `plot` draws."""
    else:
        _chart = None

    if not TYPE_CHECKING:  # a type checker knows the keys by the annotations, and no others

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name in Report.__slots__:
                raise AttributeError(name)
            if len(self.models) != 1:
                raise AttributeError(
                    f"{name}: this report is about {len(self.models)} models: ask `.models`", name=name
                )
            facts = self.models[0]
            if name not in facts:
                raise AttributeError(f"a {self.command} report has no {name!r}", name=name, obj=self)
            return facts[name]

        def __dir__(self) -> list[str]:
            facts = self.models[0] if len(self.models) == 1 else {}
            return sorted({*super().__dir__(), *(name for name in facts if name.isidentifier())})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the report's picture into `ax`, or into axes of its own, and return them. Needs matplotlib.

        Raises TfacctError where there is no picture of the report.
        """
        if self._chart is None:
            raise UsageError("there is no picture of this report", "flops, params, memory, kv, diff and sweep have one")
        from tfacct.output import plot

        return plot.axes(self._chart(), ax)


AnswerT = TypeVar("AnswerT", bound=Answer)


def answered(kind: type[AnswerT], report: Report, chart: Callable[[], Chart] | None = None) -> AnswerT:
    """The report with its facts as attributes; `chart` makes what `plot` draws."""
    answer = kind(**{entry.name: getattr(report, entry.name) for entry in fields(report)})
    object.__setattr__(answer, "_chart", chart)
    return answer
