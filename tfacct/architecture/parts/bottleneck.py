"""Attention and networks narrower than the stream, between products that make a token narrow and wide again.

Sun et al., "MobileBERT" (arXiv 2004.02984), section 3.1 and table 1; the order of the products: transformers'
MobileBertLayer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.attention import Attention
from tfacct.architecture.parts.feed_forward import FeedForward
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise

NARROW = {"Db": "width of a token in a bottleneck"}


@record(kw_only=True)
class NarrowAttention(Attention):
    """Self-attention of a token as `narrow` as a first product makes it, to which its result is added. Queries and keys
    are made of what a second product gives, values of the whole token. In place of norms stand a scale and a shift.
    The narrow token is its result."""

    narrow: Size

    mesh_unsupported: ClassVar[str] = "attention and networks of narrow tokens"
    letters: ClassVar[dict[str, str]] = {**Attention.letters, "narrow": "Db"}
    legend: ClassVar[dict[str, str]] = {letter: Attention.legend[letter] for letter in "DNKGH"} | NARROW

    def lines(self, at: str) -> tuple[Line, ...]:
        """Both products in front, those of attention, and the sum."""
        return (
            *self._narrowed(f"{at}.input"),
            *self._narrowed(f"{at}.shared"),
            *(self._of_narrow(at, line) for line in Attention.lines(self, at)),
            *_joined(f"{at}.narrow_"),
        )

    @staticmethod
    def _narrowed(at: str) -> Iterator[Line]:
        yield Matmul(at, "B T D, D Db -> B T Db", bias=True)
        yield Pointwise(f"{at}_norm", "B T Db", weight="Db", bias="Db", kind="norm_layer")

    @staticmethod
    def _of_narrow(at: str, line: Line) -> Line:
        """A line of attention as it reads and gives narrow tokens; values alone are made of whole ones."""
        narrow = {f"{at}.{which}_proj" for which in "qko"}
        return line.renamed({"D": "Db"}) if isinstance(line, Matmul) and line.path in narrow else line


@record(kw_only=True)
class NarrowNetworks(FeedForward):
    """So many networks of narrow tokens, `count`, one after the other: the result of each is added to what it reads,
    scaled and shifted. A last product makes the token wide again."""

    narrow: Size
    count: int = 1

    mesh_unsupported: ClassVar[str] = "attention and networks of narrow tokens"
    letters: ClassVar[dict[str, str]] = {"hidden": "D", "width": "F", "narrow": "Db"}
    legend: ClassVar[dict[str, str]] = {letter: FeedForward.legend[letter] for letter in "DF"} | NARROW

    def lines(self, at: str) -> tuple[Line, ...]:
        """The networks, and the product behind."""
        networks = (line for number in range(self.count) for line in self._network(f"{at}.networks.{number}."))
        return (*networks, Matmul(f"{at}.output", "B T Db, Db D -> B T D", bias=True))

    @staticmethod
    def _network(at: str) -> Iterator[Line]:
        yield Matmul(f"{at}up_proj", "B T Db, Db F -> B T F", bias=True)
        yield Pointwise(f"{at}act", "B T F", kind="activation")
        yield Matmul(f"{at}down_proj", "B T F, F Db -> B T Db", bias=True)
        yield from _joined(at)


def _joined(at: str) -> Iterator[Line]:
    """A result added to the narrow token, and what stands for a norm of the sum."""
    yield Pointwise(f"{at}add", "B T Db", kind="sum")
    yield Pointwise(f"{at}norm", "B T Db", weight="Db", bias="Db", kind="norm_layer")
