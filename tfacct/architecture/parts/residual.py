"""The addition that ends a sublayer, and the factor of what one reads."""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.altup import LEGEND, MADE, OTHER
from tfacct.architecture.parts.part import Part
from tfacct.architecture.parts.shared import ALONE
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Pointwise


@record(kw_only=True)
class Residual(Part):
    """Addition of a sublayer's result to the stream that it read, or, with `others`, to those beside it. `factor`
    multiplies the result first, `stream` the stream, `after` the sum. If it is `gated`, the tanh of a learned number
    multiplies the result (MllamaCrossAttentionDecoderLayer). If it is `weighed`, learned numbers, one for each of the
    hidden size, over this temperature weigh the result and, by what they leave, the stream (MuseSparkResidualGate).
    If both are `scaled`, learned numbers are added to each, and others multiply it (ZayaResidualScaling)."""

    hidden: Size
    factor: float | None = None
    after: float | None = None
    others: bool = False
    stream: float | None = None
    gated: bool = False
    weighed: float | None = None
    scaled: bool = False

    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {**{name: LEGEND[name] for name in ("D", OTHER)}, **ALONE}
    made: ClassVar[dict[str, str]] = {OTHER: MADE[OTHER]}

    def derived(self) -> dict[str, str]:
        """Other streams, where it adds to them, and U, where a number is learned."""
        return {**(self.made if self.others else {}), **({"U": "1"} if self.gated else {})}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Addition, and the multiplications before and after it."""
        if self.others:
            return (Pointwise(at, "B T Xo D", kind="residual"),)
        if self.weighed is not None:
            stream = Pointwise(f"{at}.stream_gate", "B T D", kind="gate")
            return (
                stream,
                Pointwise(f"{at}.gate", "B T D", weight="D"),
                Pointwise(at, "B T D", kind="residual"),
            )
        if self.scaled:
            both = (Pointwise(f"{at}.{name}", "B T D", weight="D", bias="D") for name in ("stream_gate", "gate"))
            return (*both, Pointwise(at, "B T D", kind="residual"))
        gate = (Pointwise(f"{at}.gate", "B T D U", weight="U"),) if self.gated else ()
        scale = () if self.factor is None else (Pointwise(f"{at}.scale", "B T D", kind="scale"),)
        after = () if self.after is None else (Pointwise(f"{at}.sum_scale", "B T D", kind="scale"),)
        before = () if self.stream is None else (Pointwise(f"{at}.stream_scale", "B T D", kind="scale"),)
        return (*before, *gate, *scale, Pointwise(at, "B T D", kind="residual"), *after)


@record(kw_only=True)
class Scale(Part):
    """Factor of what a sublayer reads. No count depends on it."""

    hidden: Size
    factor: float

    label: ClassVar[str] = "a scaled stream"
    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The multiplication."""
        return (Pointwise(at, "B T D", kind="scale"),)
