"""Residual addition after a sublayer, and scale of a sublayer's input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import ALONE
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Pointwise


@record(kw_only=True)
class Residual(Part):
    """Addition of a sublayer's result to the residual stream.

    Constants multiply the result (`factor`, GraniteDecoderLayer), the residual stream (`stream`, MiniMaxDecoderLayer),
    or the sum (`after`, Gemma4TextDecoderLayer). `dropout`: the result is dropped in training. `needs_result`: as in
    `Pointwise`.
    """

    hidden: Size
    factor: float | None = None
    stream: float | None = None
    after: float | None = None
    dropout: bool = False
    needs_result: bool = False

    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> Iterator[Line]:
        """Addition, and the multiplications before and after it."""
        if self.stream is not None:
            yield Pointwise(f"{at}.stream_scale", "B T D", kind="scale")
        if self.factor is not None:
            yield Pointwise(f"{at}.scale", "B T D", kind="scale")
        yield from self.gates(at)
        yield Pointwise(at, "B T D", kind="residual", dropout=self.dropout, needs_result=self.needs_result)
        if self.after is not None:
            yield Pointwise(f"{at}.sum_scale", "B T D", kind="scale")

    def gates(self, at: str) -> Iterable[Line]:  # noqa: ARG002
        """Learned operations on the residual stream and the result before the addition."""
        return ()


@record(kw_only=True)
class GatedResidual(Residual):
    """Residual addition with the result multiplied by the tanh of a learned number
    (MllamaCrossAttentionDecoderLayer)."""

    legend: ClassVar[dict[str, str]] = {**Residual.legend, **ALONE}
    made: ClassVar[dict[str, str]] = {"U": "1"}

    def gates(self, at: str) -> Iterator[Line]:
        yield Pointwise(f"{at}.gate", "B T D U", weight="U")


@record(kw_only=True)
class LerpResidual(Residual):
    """Interpolation between residual stream and result, with a learned weight per channel divided by `temperature`
    (MuseSparkResidualGate)."""

    temperature: float

    def gates(self, at: str) -> Iterator[Line]:
        yield Pointwise(f"{at}.stream_gate", "B T D", kind="gate")
        yield Pointwise(f"{at}.gate", "B T D", weight="D")


@record(kw_only=True)
class Scale(Part):
    """Factor of a sublayer's input. No count depends on it."""

    hidden: Size
    factor: float

    label: ClassVar[str] = "a scaled residual stream"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> Iterator[Line]:
        """The multiplication."""
        yield Pointwise(at, "B T D", kind="scale")
