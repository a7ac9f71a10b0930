"""Attention of a decoder's tokens to themselves and to a source at once: one softmax over the keys of both.

Zhang et al., "T5Gemma 2" (arXiv 2512.14856), "merged attention"; the order and the shapes of the products:
transformers' T5Gemma2MergedAttention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.attention import Attention
from tfacct.architecture.parts.cross import SOURCES
from tfacct.base.record import record
from tfacct.ledger.lines import Line, Matmul, Pointwise, State


@record(kw_only=True)
class MergedAttention(Attention):
    """Attention whose queries see the keys of earlier tokens and all those of a source that an encoder has read, as
    wide as they are. Both are made by the same products and norms; the source's are not rotated. They are made once, in
    the step that reads it, and kept.
    """

    mesh_unsupported: ClassVar[str] = "attention to tokens and to a source at once"
    reads_source: ClassVar[bool] = True
    legend: ClassVar[dict[str, str]] = {letter: Attention.legend[letter] for letter in ("D", "N", "K", "G", "H", "W")}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Attention's own, each with that of the source behind it, and what is kept of both."""
        own = Attention.lines(self, at)
        work, kept = ([line for line in own if isinstance(line, State) is state] for state in (False, True))
        return (
            *(line for first in work for line in (first, *self._of_source(at, first))),
            *kept,
            *(State(f"{at}.{SOURCES}{which}_cache", "B J K H") for which in "kv"),
        )

    def _of_source(self, at: str, own: Line) -> Iterator[Line]:
        leaf = own.path.removeprefix(f"{at}.")
        path = f"{at}.{SOURCES}{leaf}"
        match leaf:
            case "k_proj" | "v_proj":  # a bias is stored once, with the weight
                yield Matmul(path, "B I D, D K H -> B I K H", weight=own.path)
            case "k_norm":
                yield Pointwise(path, "B I K H", weight="H", kind="norm_rms", module=own.path)
            case "scores":
                yield Matmul(path, "B T K G H, B J K H -> B K G T J")
            case "softmax":
                yield Pointwise(path, "B K G T J", kind="softmax")
            case "values":
                yield Matmul(path, "B K G T J, B J K H -> B T K G H")
