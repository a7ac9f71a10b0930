"""Residual addition after a sublayer, and scale of a sublayer's input."""

from __future__ import annotations

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

    def lines(self, at: str) -> tuple[Line, ...]:
        """Addition, and the multiplications before and after it."""
        given = {"stream_scale": self.stream, "scale": self.factor, "sum_scale": self.after}
        scales = {name: Pointwise(f"{at}.{name}", "B T D", kind="scale") for name in given if given[name] is not None}
        after = [scales.pop("sum_scale")] if "sum_scale" in scales else []
        added = Pointwise(at, "B T D", kind="residual", dropout=self.dropout, needs_result=self.needs_result)
        return (*scales.values(), *self.gates(at), added, *after)

    def gates(self, at: str) -> tuple[Line, ...]:  # noqa: ARG002
        """Learned operations on the residual stream and the result before the addition."""
        return ()


@record(kw_only=True)
class GatedResidual(Residual):
    """Residual addition with the result multiplied by the tanh of a learned number
    (MllamaCrossAttentionDecoderLayer)."""

    legend: ClassVar[dict[str, str]] = {**Residual.legend, **ALONE}
    made: ClassVar[dict[str, str]] = {"U": "1"}

    def gates(self, at: str) -> tuple[Line, ...]:
        return (Pointwise(f"{at}.gate", "B T D U", weight="U"),)


@record(kw_only=True)
class LerpResidual(Residual):
    """Interpolation between residual stream and result, with a learned weight per channel divided by `temperature`
    (MuseSparkResidualGate)."""

    temperature: float

    def gates(self, at: str) -> tuple[Line, ...]:
        return (Pointwise(f"{at}.stream_gate", "B T D", kind="gate"), Pointwise(f"{at}.gate", "B T D", weight="D"))


@record(kw_only=True)
class Scale(Part):
    """Factor of a sublayer's input. No count depends on it."""

    hidden: Size
    factor: float

    label: ClassVar[str] = "a scaled residual stream"
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The multiplication."""
        return (Pointwise(at, "B T D", kind="scale"),)
