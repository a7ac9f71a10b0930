"""Cross attention of a decoder to an encoder, and learned relative position biases.

Encoder-decoder attention: Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), section 3.2.3. Relative
position biases: Raffel et al., "T5" (1910.10683), section 2.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from tfacct.architecture.parts.attention import DISTANCES, Attention, Grouped, ScoreFunction
from tfacct.base.record import record
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, State, Table

OF_SOURCE = "Ds"
"""Axis of the source's hidden size. In a model it has the encoder's name."""
SOURCES = "source_"
"""Prefix of the source's lines in attention to both tokens and a source."""


@record(kw_only=True)
class CrossAttention(Grouped):
    """Attention of decoder tokens to all tokens of an encoder's source.

    Keys and values of the source are computed once, in the prefill, and cached. `source_hidden`: hidden size of the
    source, if different. `qk_norm`: RMSNorms of each head's queries and keys (MllamaTextCrossAttention). The other
    fields are those of Attention.
    """

    hidden: Size
    kv_heads: Size
    group: Size
    head_dim: Size
    qkv_bias: bool = False
    key_bias: bool = True
    out_bias: bool = False
    scale: float | None = None
    score_function: ScoreFunction = "product"
    source_hidden: Size | None = None
    softcap: float | None = None
    qk_norm: float | None = None

    name: ClassVar[str] = "cross"
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "kv_heads": "K",
        "group": "G",
        "head_dim": "H",
        "source_hidden": OF_SOURCE,
    }
    legend: ClassVar[dict[str, str]] = {
        **{axis: Attention.legend[axis] for axis in "DNKGH"},
        OF_SOURCE: "hidden size of the source",
    }

    def lines(self, at: str) -> Iterator[Line]:
        """Projections of new tokens (queries) and new source tokens (keys, values), QKᵀ, PV, and both caches."""
        read = "D" if self.source_hidden is None else OF_SOURCE
        yield Matmul(f"{at}.q_proj", "B T D, D N H -> B T N H", bias=self.qkv_bias)
        yield Matmul(f"{at}.k_proj", f"B I {read}, {read} K H -> B I K H", bias=self.qkv_bias and self.key_bias)
        yield Matmul(f"{at}.v_proj", f"B I {read}, {read} K H -> B I K H", bias=self.qkv_bias)
        if self.qk_norm is not None:
            yield Pointwise(f"{at}.q_norm", "B T N H", weight="H", kind="norm_rms")
            yield Pointwise(f"{at}.k_norm", "B I K H", weight="H", kind="norm_rms")
        if self.score_function == "distance":
            yield Pointwise(f"{at}.scores", "B K G T J H")
        else:
            yield Matmul(f"{at}.scores", "B T K G H, B J K H -> B K G T J")
        if self.softcap is not None:
            yield Pointwise(f"{at}.softcap", "B K G T J")
        yield Pointwise(f"{at}.softmax", "B K G T J", kind="softmax")
        yield Matmul(f"{at}.values", "B K G T J, B J K H -> B T K G H")
        yield Matmul(f"{at}.o_proj", "B T N H, N H D -> B T D", bias=self.out_bias)
        yield State(f"{at}.k_cache", "B J K H")
        yield State(f"{at}.v_cache", "B J K H")


@record(kw_only=True)
class RelativeBias(Grouped):
    """Learned biases for each head and each of `buckets` distances between two tokens, shared by all layers.

    Distances from `furthest` on share a bucket, and the smallest distances have one each: transformers'
    T5Attention._relative_position_bucket. No count depends on `furthest`. `within`: the class has the table in the
    first layer of the stack. `across`: width in patches of an image whose rows and columns define the distances, with
    three buckets for the class token (BeitRelativePositionBias).
    """

    buckets: Size
    kv_heads: Size
    group: Size
    furthest: int = 128
    within: bool = False
    across: int | None = None

    name: ClassVar[str] = "rel_bias"
    axis_names: ClassVar[dict[str, str]] = {"buckets": "Rp", "kv_heads": "K", "group": "G"}
    legend: ClassVar[dict[str, str]] = {"Rp": DISTANCES, **{axis: Attention.legend[axis] for axis in "NKG"}}

    def axes(self) -> dict[str, Size]:
        """Rp and N: one bias per query head."""
        return {axis: size for axis, size in Grouped.axes(self).items() if axis in ("Rp", "N")}

    def lines(self, at: str) -> Iterator[Line]:
        """Table of the biases."""
        yield Table(at, "Rp N", embedding=False, within=self.within)
