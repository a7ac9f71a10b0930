"""Ends of a model that predicts no tokens: a pooler, and scores of classes.

As in transformers' BertPooler and in its classes ForSequenceClassification.
"""

from __future__ import annotations

from typing import ClassVar

from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise


@record(kw_only=True)
class Pooler(Part):
    """One vector for each sequence: a product of the vector at its first position, and tanh."""

    hidden: Size

    name: ClassVar[str] = "pooler"
    letters: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Dp": "result of the pooler, as wide as D"}
    made: ClassVar[dict[str, str]] = {"Dp": "D"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Product without T, because one position of each sequence is read, and its activation."""
        return (Matmul(at, "B D, D Dp -> B Dp", bias=True), Pointwise(f"{at}.act", "B Dp"))


@record(kw_only=True)
class Classes(Part):
    """Scores of classes for the O positions that the workload asks for, or, `pooled`, for each sequence.

    With one class it is a reward model: one number for each position or sequence.
    """

    hidden: Size
    classes: Size
    bias: bool = False
    pooled: bool = False

    name: ClassVar[str] = "classifier"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "classes": "Y"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Y": "classes that are scored"}
    cases: ClassVar[frozenset[str]] = frozenset("Y")

    def lines(self, at: str) -> tuple[Line, ...]:
        """Product of hidden states with the classes' matrix."""
        spec = "B D, D Y -> B Y" if self.pooled else "B O D, D Y -> B O Y"
        return (Matmul(at, spec, bias=self.bias),)
