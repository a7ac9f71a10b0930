"""Self-attention: multi-head, grouped-query and multi-query are one part, with G query heads per key head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from tfacct.lines import Line, Matmul, Pointwise, State
from tfacct.notation import Mask, Size, divided
from tfacct.parts.part import Part

Measure: TypeAlias = Literal["product", "distance"]
"""What a score is of a query and a key."""


class Rotary(NamedTuple):
    """Rotary positions: the base of their angles, and how a longer context stretches them. No count depends on it.

    `pairs`: which numbers of a head turn together, one of each half or neighbours.
    """

    base: float
    scaling: Mapping[str, Any] | None = None
    pairs: Literal["halves", "neighbours"] = "halves"


class QKNorm(NamedTuple):
    """A norm of queries and keys before their rotation: of each head by itself, or of all heads `together`."""

    eps: float
    together: bool = False
    kind: Literal["layer", "rms"] = "rms"
    less_one: bool = False


class Grouped(Part):
    """A part with `kv_heads` key/value heads, each read by `group` query heads."""

    __slots__ = ()
    kv_heads: Size
    group: Size

    @property
    def heads(self) -> Size:
        """Query heads, N = K · G."""
        return self.kv_heads * self.group

    def axes(self) -> dict[str, Size]:
        """The sizes, and N = K · G."""
        return {**Part.axes(self), "N": self.heads}

    def with_kv_heads(self, kv_heads: Size) -> Self:
        """The same query heads sharing another number of key/value heads: MHA at N, MQA at 1."""
        sizes: dict[str, Size] = {"kv_heads": kv_heads, "group": divided(self.heads, kv_heads)}
        return replace(self, **sizes)


@dataclass(frozen=True, slots=True)
class Attention(Grouped):
    """Self-attention over `kv_heads` key/value heads, each read by `group` query heads.

    `head_dim` is its own number: heads · head_dim need not be the hidden size. Not `causal`: every token sees all, and
    nothing is kept between steps. A query of a `window` sees so many keys, its own among them. `turned` of a head's
    numbers are rotated, where that is not all of them. `sinks`: one learned score per head that no key has. `softcap`
    bounds the scores, `alibi` lowers them with the distance, `biased` adds those of a table of distances
    (RelativeBias). `scale`: what scores are multiplied by, where that is not head_dim^−½. `measure`: of a query and a
    key the score is their product, or the largest distance between two of their numbers, max |q − k|, which is no
    product.
    """

    hidden: Size
    kv_heads: Size
    group: Size
    head_dim: Size
    qkv_bias: bool = False
    out_bias: bool = False
    rotary: Rotary | None = None
    turned: Size | None = None
    window: Size | None = None
    qk_norm: QKNorm | None = None
    sinks: bool = False
    softcap: float | None = None
    alibi: bool = False
    scale: float | None = None
    causal: bool = True
    biased: bool = False
    measure: Measure = "product"

    letters: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "kv_heads": "K",
        "group": "G",
        "head_dim": "H",
        "turned": "Hr",
        "window": "W",
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads, K · G",
        "K": "key/value heads",
        "G": "query heads per key/value head",
        "H": "size of one head",
        "Hr": "numbers of a head that are turned by its position",
        "W": "keys that a query of a windowed block sees",
    }

    def lines(self, at: str) -> tuple[Line, ...]:
        """Four projections, QKᵀ and PV (both sides activations), and the two caches."""
        mask: Mask = "causal" if self.causal else "full"
        kept = (State(f"{at}.k_cache", "B S K H"), State(f"{at}.v_cache", "B S K H"))
        return (
            Matmul(f"{at}.q_proj", "B T D, D N H -> B T N H", bias=self.qkv_bias),
            Matmul(f"{at}.k_proj", "B T D, D K H -> B T K H", bias=self.qkv_bias),
            Matmul(f"{at}.v_proj", "B T D, D K H -> B T K H", bias=self.qkv_bias),
            *self._of_queries_and_keys(at),
            Pointwise(f"{at}.scores", "B K G T S H")
            if self.measure == "distance"
            else Matmul(f"{at}.scores", "B T K G H, B S K H -> B K G T S", mask=mask),
            *self._of_scores(at),
            Matmul(f"{at}.values", "B K G T S, B S K H -> B T K G H", mask=mask),
            Matmul(f"{at}.o_proj", "B T N H, N H D -> B T D", bias=self.out_bias),
            *(kept if self.causal else ()),
        )

    def _of_queries_and_keys(self, at: str) -> Iterator[Line]:
        if self.qk_norm is not None:
            for name, heads in (("q_norm", "N"), ("k_norm", "K")):
                scale = f"{heads} H" if self.qk_norm.together else "H"
                shift = scale if self.qk_norm.kind == "layer" else ""
                yield Pointwise(f"{at}.{name}", f"B T {heads} H", weight=scale, bias=shift)
        if self.rotary is not None:
            turned = "H" if self.turned is None else "Hr"
            yield Pointwise(f"{at}.q_rotary", f"B T N {turned}")
            yield Pointwise(f"{at}.k_rotary", f"B T K {turned}")

    def _of_scores(self, at: str) -> Iterator[Line]:
        if self.softcap is not None:
            yield Pointwise(f"{at}.softcap", "B K G T S")
        if self.alibi:
            yield Pointwise(f"{at}.alibi", "B K G T S", sums=True)
        if self.biased:
            yield Pointwise(f"{at}.rel_bias", "B K G T S", sums=True)
        if self.sinks:
            yield Pointwise(f"{at}.sinks", "B N T", weight="N")
        yield Pointwise(f"{at}.softmax", "B K G T S")
