"""The parts a transformer is put together from: their sizes, their axes, their lines.

A part holds any kind of number. `axes()` is the one bridge from its fields to the letters of its lines;
`lines(at)` are those lines, with `at` as the path they stand under.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from tfacct.ledger import Line
from tfacct.notation import Size
from tfacct.parts.attention import Attention
from tfacct.parts.embedding import Embedding, Head, Positions
from tfacct.parts.feed_forward import FeedForward
from tfacct.parts.norm import Norm
from tfacct.parts.residual import Residual

__all__ = ["Attention", "Embedding", "FeedForward", "Head", "Norm", "Part", "Positions", "Residual"]


class Part(Protocol):
    """What the architecture asks of every part."""

    legend: ClassVar[dict[str, str]]
    """What each of the part's own axes means, explained here and nowhere else."""

    def axes(self) -> dict[str, Size]:
        """The sizes of the part's axes."""

    def lines(self, at: str) -> tuple[Line, ...]:
        """The part's lines, under the path `at`."""
