"""What joins a decoder to an encoder, and scores that know only how far apart two tokens are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tfacct.lines import Line, Matmul, Pointwise, State, Table
from tfacct.notation import Size
from tfacct.parts.attention import Attention, Grouped, Measure


@dataclass(frozen=True, slots=True)
class CrossAttention(Grouped):
    """Attention of the decoder's tokens to all tokens of a source that an encoder has read.

    Keys and values are made of the source once, in the step that reads it, and kept.
    """

    hidden: Size
    kv_heads: Size
    group: Size
    head_dim: Size
    qkv_bias: bool = False
    out_bias: bool = False
    scale: float | None = None
    measure: Measure = "product"

    letters: ClassVar[dict[str, str]] = {"hidden": "D", "kv_heads": "K", "group": "G", "head_dim": "H"}
    legend: ClassVar[dict[str, str]] = {letter: Attention.legend[letter] for letter in "DNKGH"}

    def lines(self, at: str) -> tuple[Line, ...]:
        """Queries of the new tokens, keys and values of the new source tokens, QKᵀ and PV, and the two caches."""
        return (
            Matmul(f"{at}.q_proj", "B T D, D N H -> B T N H", bias=self.qkv_bias),
            Matmul(f"{at}.k_proj", "B I D, D K H -> B I K H", bias=self.qkv_bias),
            Matmul(f"{at}.v_proj", "B I D, D K H -> B I K H", bias=self.qkv_bias),
            Pointwise(f"{at}.scores", "B K G T J H")
            if self.measure == "distance"
            else Matmul(f"{at}.scores", "B T K G H, B J K H -> B K G T J"),
            Pointwise(f"{at}.softmax", "B K G T J"),
            Matmul(f"{at}.values", "B K G T J, B J K H -> B T K G H"),
            Matmul(f"{at}.o_proj", "B T N H, N H D -> B T D", bias=self.out_bias),
            State(f"{at}.k_cache", "B J K H"),
            State(f"{at}.v_cache", "B J K H"),
        )


@dataclass(frozen=True, slots=True)
class RelativeBias(Grouped):
    """A learned score for each head and each of `buckets` distances between two tokens; all blocks of a stack add it.

    Distances of `furthest` and more share a bucket; the nearest have one each. No count depends on it.
    """

    buckets: Size
    kv_heads: Size
    group: Size
    furthest: int = 128

    letters: ClassVar[dict[str, str]] = {"buckets": "Rp", "kv_heads": "K", "group": "G"}
    legend: ClassVar[dict[str, str]] = {
        "Rp": "buckets of distances between tokens",
        **{letter: Attention.legend[letter] for letter in "NKG"},
    }

    def axes(self) -> dict[str, Size]:
        """Rp, and N = K · G."""
        return {"Rp": self.buckets, "N": self.heads}

    def lines(self, at: str) -> tuple[Line, ...]:
        """The table."""
        return (Table(at, "Rp N"),)
