"""Self-attention: multi-head, grouped-query and multi-query attention are one part, with G query heads per key/value
head.

Scaled dot-product attention: Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), section 3.2. Multi-query:
Shazeer (1911.02150). Grouped-query: Ainslie et al. (2305.13245). Rotary positions: Su et al., "RoFormer" (2104.09864).
ALiBi: Press et al. (2108.12409). Windows: Jiang et al., "Mistral 7B" (2310.06825). Softcap: "Gemma 2" (2408.00118), and
transformers' Gemma2Attention. Norms of queries and keys: transformers' Qwen3Attention, each head by itself,
Olmo2Attention, all heads together, and HunYuanDenseV1Attention, after the rotary embedding. Sinks: transformers'
GptOssAttention. Bounded queries, keys and values: OlmoAttention. Queries scaled by their position: Ministral3Attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from tfacct.architecture.parts.indexer import Indexer
from tfacct.architecture.parts.part import Part
from tfacct.base.record import record
from tfacct.ledger.einsum import Mask, Size, divided
from tfacct.ledger.lines import TILE, Line, Matmul, Pointwise, PointwiseKind, State, Table
from tfacct.ledger.workload import TILES

ScoreFunction: TypeAlias = Literal["product", "distance"]
"""Score of a query and a key: dot product, or max |q − k|."""


class Rotary(NamedTuple):
    """Rotary embedding: base, and scaling for longer contexts. No count depends on it.

    `pairs`: which elements of a head rotate together: one from each half, or neighbours; with `quarters`, each half
    rotates separately, the first by column (Gemma4VisionAttention).

    `kind`: coordinates of the angles. `sequence`: the position, `backwards` with the opposite sign (NanoChatAttention).
    The others are for square images. `grid`: half of the pairs rotate by the row of a patch, half by its column:
    alternating pairs (PixtralVisionModel), or, with `tiles`, the first and second half with the same frequencies
    (Qwen2VLVisionRotaryEmbedding). `woven_grid`: alternating columns and rows (Kimi_K25VisionRotaryEmbedding).
    `video_grid`: a third of the pairs rotates by the frame (MiniMaxM3VLVisionRotaryEmbedding). `grid_from_one`: rows
    and columns count from 1, columns first (Llama4VisionRotaryEmbedding). `centred_grid`: rows and columns from -1 to
    1, in full rotations (DINOv3ViTRopePositionEmbedding).

    `tiles`: side lengths of the tiles that order the patches. `unrotated`: number of learned tokens without rotation:
    the last ones, or in a `centred_grid` the first.
    """

    base: float
    scaling: Mapping[str, Any] | None = None
    pairs: Literal["halves", "neighbours", "quarters"] = "halves"
    kind: Literal["sequence", "backwards", "grid", "woven_grid", "video_grid", "grid_from_one", "centred_grid"] = (
        "sequence"
    )
    tiles: tuple[int, ...] | None = None
    unrotated: int = 0

    @property
    def axes(self) -> int:
        """Number of coordinates of the angles."""
        return {"sequence": 1, "backwards": 1, "video_grid": 3}.get(self.kind, 2)

    @property
    def scaled(self) -> str:
        """Kind of scaling for longer contexts, as in transformers: `rope_type`, formerly `type`."""
        scaling = self.scaling or {}
        return str(scaling.get("rope_type", scaling.get("type", "default")))


class QKNorm(NamedTuple):
    """Norm of queries and keys, per head or of all heads `together`, before the rotary embedding.

    `late`: after the rotary embedding. `learned`: it has a weight. `per_head`: separate scale and shift for each head
    (transformers' ChameleonLayerNorm); with `together`, a norm of all heads that an engine shards. `shift`: a LayerNorm
    has a shift (not in EsmcAttention, CohereAttention).
    """

    eps: float
    together: bool = False
    kind: Literal["layer", "rms"] = "rms"
    less_one: bool = False
    late: bool = False
    learned: bool = True
    per_head: bool = False
    shift: bool = True


class Gate(NamedTuple):
    """Gate of attention results, projected from the token: one number per element, or per head.

    Without `bias`, it has none even if queries have one (transformers' Qwen3NextAttention, LagunaAttention).
    """

    of: Literal["elements", "heads"] = "elements"
    act: Literal["sigmoid", "softplus"] = "sigmoid"
    bias: bool = True


class Temperature(NamedTuple):
    """Factor of a query at position p: 1 + beta · ln(1 + (p + first) // length). No count depends on it."""

    beta: float
    length: float
    first: int


class ReadNorm(NamedTuple):
    """RMSNorm of attention results: per head, before the gate and without weight (MuseSparkAttention), or of all heads
    `together`, after the gate (BitNetAttention)."""

    eps: float
    together: bool = False


class Scales(NamedTuple):
    """Constant factors of keys (FalconH1Attention) and values (MiMoV2FlashAttention); position-dependent factor of
    queries (Ministral3Attention)."""

    queries: Temperature | None = None
    keys: float | None = None
    values: float | None = None


class Compression(NamedTuple):
    """Compressed keys of `tokens` tokens each, if any; an indexer chooses at most `chosen` of them."""

    label: str
    tokens: Size | None
    chosen: Size | None


class SelfAttention(Part):
    """Self-attention of any kind."""

    __slots__ = ()
    hidden: Size
    rotary: Rotary | None
    rope_dim: Size | None
    window: Size | None

    if TYPE_CHECKING:

        @property
        def heads(self) -> Size:
            """Number of query heads."""

        @property
        def kv_heads(self) -> Size:
            """Number of key/value heads."""

    @property
    def compression(self) -> Compression | None:
        """Compression of tokens, for attention with keys that are also values; None without it."""
        return None


class Grouped(Part):
    """A part with `kv_heads` key/value heads and `group` query heads per key/value head."""

    __slots__ = ()
    kv_heads: Size
    group: Size

    made: ClassVar[dict[str, str]] = {"N": "K · G"}
    cases: ClassVar[frozenset[str]] = frozenset("KG")

    @property
    def heads(self) -> Size:
        """Number of query heads, N = K · G."""
        return self.kv_heads * self.group

    def with_kv_heads(self, kv_heads: Size) -> Self:
        """Return the part with another number of key/value heads for the same query heads: MHA at N, MQA at 1."""
        sizes: dict[str, Size] = {"kv_heads": kv_heads, "group": divided(self.heads, kv_heads)}
        return replace(self, **sizes)


TILED = f"{TILES} {TILE}", f"{TILES} Wk"
"""Axes of queries and of keys in windows of patches."""
DISTANCES = "buckets of relative positions"
"""Meaning of axis Rp."""
DIRECTIONS = "directions of a relative position, 2"
"""Meaning of axis Xd."""


@record(kw_only=True)
class DistanceBias(Part):
    """Learned biases of the attention scores, by head and distance between two tokens.

    They come from a table with `buckets` rows, or, without `buckets`, from the RelativeBias that all layers share. The
    other fields are those of RelativeBias.
    """

    buckets: Size | None = None
    furthest: int = 128
    across: int | None = None

    axis_names: ClassVar[dict[str, str]] = {"buckets": "Rp"}
    legend: ClassVar[dict[str, str]] = {"Rp": DISTANCES}

    def lines(self, at: str) -> Iterator[Line]:
        """Table, if any, and addition."""
        if self.buckets is None:
            yield Pointwise(at, "B K G T S", kind="sum")
        else:
            yield Table(at, "Rp N", embedding=False)
            yield Pointwise(f"{at}.add", "B K G T S", kind="sum")


@record(kw_only=True)
class Attention(Grouped, SelfAttention):
    """Self-attention with `kv_heads` key/value heads and `group` query heads per key/value head.

    heads · head_dim need not be the hidden size.

    - `causal`: if false, every token sees all tokens and nothing is cached. `cache`: `borrowed`: keys and values of the
      last previous layer that has its own and the same window (Gemma4TextAttention); `none`: the class only accepts
      whole sequences (CLIPTextModel).
    - `mask`: of causal attention. `prefix`: tokens of a prefix, with a length set by the caller, also see one another
      (PaliGemmaModel). `blocks`: tokens see all tokens of their block and of the blocks before it (LLaDA2MoeModel).
      `chunks`: a token sees its chunk of `window` positions up to itself (Llama4TextAttention).
    - `window`: keys that a query sees, up to its own, or, if not causal, around it. `tiles`: patches of a window, which
      see only one another (Qwen2_5_VLVisionAttention).
    - `indexer`: chooses the keys that a token sees.
    - `qkv_bias`, `out_bias`: biases of the projections; `key_bias`: false if keys have none.
    - `rope_dim`: elements of a head with rotary embedding, None for all. `scales`: factors of queries, keys and values.
      `clip`: bound of their elements.
    - `value_dim`: size of a value head, None for head_dim. `value_norm`: ε of a norm of values, without weight.
      `keys_as_values`: values are the results of the key projection.
    - `scale`: factor of the scores, None for head_dim^−½. `score_function`: the dot product of a query and a key, or
      max |q − k|, which is no matmul. `softcap` bounds the scores, `alibi` lowers them with the distance,
      `distance_bias` adds learned biases. `sinks`: one learned score per head without a key.
    - `channel_scale`: learned factors of the channels of the result (LayerScale, arXiv 2103.17239).
    """

    hidden: Size
    kv_heads: Size
    group: Size
    head_dim: Size
    gate: Gate | None = None
    keys_as_values: bool = False
    value_norm: float | None = None
    cache: Literal["own", "borrowed", "none"] = "own"
    value_dim: Size | None = None
    scales: Scales = Scales()
    read_norm: ReadNorm | None = None
    channel_scale: bool = False
    tiles: Size | None = None
    indexer: Indexer | None = None
    qkv_bias: bool = False
    key_bias: bool = True
    out_bias: bool = False
    rotary: Rotary | None = None
    rope_dim: Size | None = None
    window: Size | None = None
    qk_norm: QKNorm | None = None
    sinks: bool = False
    clip: float | None = None
    softcap: float | None = None
    alibi: bool = False
    scale: float | None = None
    causal: bool = True
    mask: Literal["causal", "chunks", "prefix", "blocks"] = "causal"
    distance_bias: DistanceBias | None = None
    score_function: ScoreFunction = "product"

    name: ClassVar[str] = "attn"
    reads_source: ClassVar[bool] = False
    """True if queries also see the tokens of a source."""
    axis_names: ClassVar[dict[str, str]] = {
        "hidden": "D",
        "kv_heads": "K",
        "group": "G",
        "head_dim": "H",
        "rope_dim": "Hr",
        "value_dim": "Hv",
        "window": "W",
        "tiles": TILE,
    }
    legend: ClassVar[dict[str, str]] = {
        "D": "hidden size",
        "N": "query heads, K · G",
        "K": "key/value heads",
        "G": "query heads per key/value head",
        "H": "head size",
        "Hr": "rotary dimensions of a head",
        "Hv": "size of a value head",
        "W": "keys that a query of a windowed layer sees",
        "Wb": "keys that a query of a windowed layer sees, before and after it",
        TILE: "positions of a window that attends only to itself",
        "Wk": "the same positions, as keys",
    }
    at_most: ClassVar[dict[str, str]] = {"Hr": "H"}
    cut: ClassVar[frozenset[str]] = frozenset(("Hr",))
    nested: ClassVar[tuple[str, ...]] = ("distance_bias", "indexer")

    def sizes(self) -> dict[str, str]:
        """Return field → axis; a window around the query has another axis than one that ends with it."""
        found = Part.sizes(self)
        return found if self.causal or self.window is None else {**found, "window": "Wb"}

    def derived(self) -> dict[str, str]:
        """Query heads, and Wk for windows of patches."""
        return self.made if self.tiles is None else self.made | {"Wk": TILE}

    def multiples(self) -> dict[str, int]:
        """Rotary dimensions come in pairs, with equal numbers for rows and columns."""
        if self.rotary is None:
            return {}
        pairs = 6 if self.rotary.axes == 3 else 2 if self.rotary.tiles is None else 4
        return {"H" if self.rope_dim is None else "Hr": pairs}

    def lines(self, at: str) -> Iterator[Line]:
        """Four projections, QKᵀ and PV (both operands are activations), pointwise operations, and both caches."""
        mask: Mask = self.mask if self.causal else "full" if self.window is None else "near"
        value_axis = self.value_axis
        new, seen = ("T", "S") if self.tiles is None else TILED
        scores = self.pairs
        yield from self._projection(at, "q", "N", bias=self.qkv_bias)
        if not self.borrowed:
            yield from self._keys_and_values(at)
        yield from self._gate(at)
        yield from self._query_key_lines(at)
        if self.indexer is not None:
            yield from self.indexer.scores(f"{at}.indexer", rotary=self.rotary is not None)
        if self.score_function == "distance":
            yield Pointwise(f"{at}.scores", "B K G T S H")
        else:
            yield Matmul(f"{at}.scores", f"B {new} K G H, B {seen} K H -> B K G {scores}", mask=mask)
        yield from self._score_lines(at)
        yield Matmul(f"{at}.values", f"B K G {scores}, B {seen} K {value_axis} -> B {new} K G {value_axis}", mask=mask)
        yield from self._result_lines(at, value_axis)
        yield Matmul(f"{at}.o_proj", f"B T N {value_axis}, N {value_axis} D -> B T D", bias=self.out_bias)
        if self.channel_scale:
            yield Pointwise(f"{at}.channel_scale", "B T D", weight="D")
        if self.has_cache:
            yield State(f"{at}.k_cache", "B S K H")
            yield State(f"{at}.v_cache", f"B S K {value_axis}")
            if self.indexer is not None:
                yield State(f"{at}.index_cache", "B S Hx")

    def _result_lines(self, at: str, value_axis: str) -> Iterator[Line]:
        norm = self.read_norm
        if norm is not None and not norm.together:
            yield Pointwise(f"{at}.head_norm", f"B T N {value_axis}", kind="norm_rms")
        if self.gate is not None:
            yield Pointwise(f"{at}.gate", "B T N H", kind="gate", function="sigmoid")
        if norm is not None and norm.together:
            yield Pointwise(f"{at}.read_norm", f"B T N {value_axis}", weight=f"N {value_axis}", kind="norm_rms")

    def _gate(self, at: str) -> Iterator[Line]:
        if self.gate is not None:
            made = "N H" if self.gate.of == "elements" else "N"
            yield Matmul(f"{at}.gate_proj", f"B T D, D {made} -> B T {made}", bias=self.gate.bias and self.qkv_bias)

    @property
    def has_cache(self) -> bool:
        """True if it caches its own keys and values."""
        return self.causal and self.cache == "own"

    @property
    def borrowed(self) -> bool:
        """True if it uses the keys and values of another layer."""
        return self.cache == "borrowed"

    @property
    def pairs(self) -> str:
        """Axes of query–key pairs."""
        return "T S" if self.tiles is None else f"{TILED[0]} Wk"

    @property
    def value_axis(self) -> str:
        """Axis of a value head."""
        return "H" if self.value_dim is None else "Hv"

    def _keys_and_values(self, at: str) -> Iterator[Line]:
        yield from self._projection(at, "k", "K", bias=self.qkv_bias and self.key_bias)
        if self.scales.keys is not None:
            yield Pointwise(f"{at}.k_scale", "B T K H", kind="scale")
        if not self.keys_as_values:
            yield from self._projection(at, "v", "K", self.value_axis, bias=self.qkv_bias)
        if self.scales.values is not None:
            yield Pointwise(f"{at}.v_scale", f"B T K {self.value_axis}", kind="scale")

    def _projection(self, at: str, which: str, heads: str, size: str = "H", *, bias: bool) -> Iterator[Line]:
        yield Matmul(f"{at}.{which}_proj", f"B T D, D {heads} {size} -> B T {heads} {size}", bias=bias)

    def _query_key_lines(self, at: str) -> Iterator[Line]:
        late = self.qk_norm is not None and self.qk_norm.late
        if not late:
            yield from self._qk_norms(at)
        if self.value_norm is not None and not self.borrowed:
            yield Pointwise(f"{at}.v_norm", "B T K H", kind="norm_rms")
        if self.clip is not None:
            for name, heads in (("q_clip", "N"), ("k_clip", "K"), ("v_clip", "K")):
                yield Pointwise(f"{at}.{name}", f"B T {heads} H")
        if self.rotary is not None:
            rope_axis = "H" if self.rope_dim is None else "Hr"
            yield Pointwise(f"{at}.q_rotary", f"B T N {rope_axis}", kind="rotary")
            if not self.borrowed:
                yield Pointwise(f"{at}.k_rotary", f"B T K {rope_axis}", kind="rotary")
        if late:
            yield from self._qk_norms(at)
        if self.scales.queries is not None:
            yield Pointwise(f"{at}.q_scale", "B T N H", kind="scale")

    def _qk_norms(self, at: str) -> Iterator[Line]:
        if self.qk_norm is None:
            return
        layer, per_head = self.qk_norm.kind == "layer", self.qk_norm.per_head
        kind: PointwiseKind = "norm_layer" if layer else "norm_rms"
        for name, heads in (("q_norm", "N"), ("k_norm", "K")):
            if name == "k_norm" and self.borrowed:
                continue
            scale = f"{heads} H" if self.qk_norm.together or per_head else "H"
            scale = scale if self.qk_norm.learned else ""
            shift = scale if layer and self.qk_norm.shift else ""
            yield Pointwise(f"{at}.{name}", f"B T {heads} H", weight=scale, bias=shift, kind=kind, per_head=per_head)

    def _score_lines(self, at: str) -> Iterator[Line]:
        if self.softcap is not None:
            yield Pointwise(f"{at}.softcap", "B K G T S")
        if self.alibi:
            yield Pointwise(f"{at}.alibi", "B K G T S", kind="sum")
        if self.distance_bias is not None:
            yield from self.distance_bias.lines(f"{at}.rel_bias")
        if self.sinks:
            yield Pointwise(f"{at}.sinks", "B N T", weight="N")
        yield Pointwise(f"{at}.softmax", f"B K G {self.pairs}", kind="softmax")
