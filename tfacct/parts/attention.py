"""Self-attention: multi-head, grouped-query and multi-query are one part, with G query heads per key head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tfacct.lines import Line, Matmul, Pointwise, State
from tfacct.notation import Size, divided
from tfacct.parts.part import Part


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary positions: the base of their angles, and how a longer context stretches them. No count depends on it."""

    base: float
    scaling: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Attention(Part):
    """Causal self-attention over `kv_heads` key/value heads, each read by `group` query heads.

    `head_dim` is its own number: heads · head_dim need not be the hidden size. With `qk_norm_eps` every query and
    every key head is RMS-normalised before its rotation, by one scale of `head_dim` numbers each.
    """

    hidden: Size
    kv_heads: Size
    group: Size
    head_dim: Size
    qkv_bias: bool = False
    out_bias: bool = False
    rotary: Rotary | None = None
    qk_norm_eps: float | None = None

    letters: ClassVar[dict[str, str]] = {"hidden": "D", "kv_heads": "K", "group": "G", "head_dim": "H"}
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads, K · G",
        "K": "key/value heads",
        "G": "query heads per key/value head",
        "H": "size of one head",
    }

    @property
    def heads(self) -> Size:
        """Query heads, N = K · G."""
        return self.kv_heads * self.group

    def axes(self) -> dict[str, Size]:
        """D, K, G, H and N = K · G."""
        return {**Part.axes(self), "N": self.heads}

    def with_kv_heads(self, kv_heads: Size) -> Attention:
        """The same query heads sharing another number of key/value heads: MHA at N, MQA at 1."""
        return replace(self, kv_heads=kv_heads, group=divided(self.heads, kv_heads))

    def lines(self, at: str) -> tuple[Line, ...]:
        """Four projections, QKᵀ and PV (both sides activations), and the two caches."""
        norms = (
            Pointwise(f"{at}.q_norm", "B T N H", weight="H"),
            Pointwise(f"{at}.k_norm", "B T K H", weight="H"),
        )
        rotary = (
            Pointwise(f"{at}.q_rotary", "B T N H"),
            Pointwise(f"{at}.k_rotary", "B T K H"),
        )
        return (
            Matmul(f"{at}.q_proj", "B T D, D N H -> B T N H", bias=self.qkv_bias),
            Matmul(f"{at}.k_proj", "B T D, D K H -> B T K H", bias=self.qkv_bias),
            Matmul(f"{at}.v_proj", "B T D, D K H -> B T K H", bias=self.qkv_bias),
            *(norms if self.qk_norm_eps is not None else ()),
            *(rotary if self.rotary is not None else ()),
            Matmul(f"{at}.scores", "B T K G H, B S K H -> B K G T S", mask="causal"),
            Pointwise(f"{at}.softmax", "B K G T S"),
            Matmul(f"{at}.values", "B K G T S, B S K H -> B T K G H", mask="causal"),
            Matmul(f"{at}.o_proj", "B T N H, N H D -> B T D", bias=self.out_bias),
            State(f"{at}.k_cache", "B S K H"),
            State(f"{at}.v_cache", "B S K H"),
        )
