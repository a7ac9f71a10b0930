"""Gemma's language models: norm weights stored minus 1, tied and scaled embedding, an independent head size."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import (
    Attention,
    CrossAttention,
    Embedding,
    Experts,
    FeedForward,
    LightningAttention,
    Part,
    QKNorm,
    Residual,
    Rotary,
    TokenPooler,
)
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.families.decoder import EXPERT_TENSORS, NORMS_AROUND, QK_NORMS, AnyAttention, Decoder, Layer, Window
from tfacct.families.family import mlp_modules
from tfacct.families.fields import (
    CoreSchema,
    JsonDict,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveIntOrList,
    StrictBool,
    StrictStr,
    divide_exactly,
    require_even,
)
from tfacct.families.layer_kinds import (
    FULL,
    SLIDING,
    LayerTypes,
    check_length,
    layer_windows,
    rope_of_kind,
    sizes_by_layer,
)
from tfacct.families.task_heads import CAUSAL_MODEL, CLASSIFYING, DECODER, LABELLING, TaskHead
from tfacct.ledger.einsum import Size
from tfacct.ledger.lines import Line, Matmul, Pointwise, Table, Unused

Shares = Annotated[list[float], CoreSchema(core_schema.list_schema(core_schema.float_schema(ge=0, lt=1), strict=True))]


class GemmaBase(Decoder):
    """The fields that they share. The head is tied by default."""

    sizes = dict(head_dim=256, context=8192)
    defaults = dict(tie_word_embeddings=True, hidden_act="gelu_pytorch_tanh")
    attention_bias: StrictBool = False
    task_heads = LABELLING
    norm_weight_minus_one = True
    embedding_options = dict(scaled=True)  # by √hidden_size
    mask = property(lambda self: "prefix" if self.use_bidirectional_attention else "causal")
    """Bidirectional in the prefix of PaliGemma."""


class Gemma(GemmaBase):
    """Gemma: Llama's layer with an independent head size, GELU as the activation, and a tied, scaled embedding."""

    sizes = dict(mlp=24576, kv_heads=16)
    use_bidirectional_attention: StrictBool | None = None
    nested_defaults = dict(vocab_size=256000, hidden_size=3072, num_hidden_layers=28, num_attention_heads=16)
    ignored_fields = "hidden_activation"
    attention_options = dict(mask=attrgetter("mask"))

    @property
    def activation(self) -> str:
        """The activation. The first releases have `gelu` but use its tanh form; the class also corrects this."""
        return "gelu_pytorch_tanh" if self.hidden_act == "gelu" else self.hidden_act


class GemmaAround(GemmaBase):
    """Norms around every sublayer; soft-capped logits, if the class has the field."""

    hidden_activation: StrictStr = "gelu_pytorch_tanh"
    layer_module_names = NORMS_AROUND
    norms: ClassVar[Literal["before", "around"]] = "around"
    activation = property(attrgetter("hidden_activation"))
    softcap = property(lambda self: getattr(self, "final_logit_softcapping", None))
    head_options = dict(softcap=attrgetter("softcap"))


class Gemma2(GemmaAround):
    """Gemma 2: every other layer has a window, starting with the first; attention scores and logits are soft-capped."""

    sizes = dict(mlp=9216, kv_heads=4)
    query_pre_attn_scalar: PositiveFloat = 256
    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None
    final_logit_softcapping: PositiveFloat | None = 30.0
    attn_logit_softcapping: PositiveFloat | None = 50.0
    use_bidirectional_attention: StrictBool | None = None
    ignored_fields = "sliding_window_size"
    nested_defaults = dict(vocab_size=256000, hidden_size=2304, num_hidden_layers=26, num_attention_heads=8)
    attention_scale = property(lambda self: self.query_pre_attn_scalar**-0.5)
    attention_options = dict(
        softcap=attrgetter("attn_logit_softcapping"), scale=attrgetter("attention_scale"), mask=attrgetter("mask")
    )

    def has_window(self, number: int) -> bool:
        """True for even layers, counted from 0."""
        return number % 2 == 0

    def layers(self) -> list[Layer]:
        return [Layer(window) for window in self.windows(self.has_window, self.sliding_window)]


class VaultGemma(Gemma2):
    """VaultGemma: Gemma 2 without the norms after attention and MLP."""

    sizes = dict(vocab=256000, hidden=2304, layers=26, heads=8)
    task_heads = DECODER
    norms = "before"

    def check(self) -> None:
        self.require_if_given({"use_bidirectional_attention": False})


class Gemma3Text(Gemma2):
    """Gemma 3: five windowed layers to one full layer; norms of queries and keys; two rotary bases."""

    sizes = dict(vocab=262208, hidden=2304, layers=26, heads=8, context=131072)
    defaults = dict(final_logit_softcapping=None, attn_logit_softcapping=None)
    sliding_window_pattern: PositiveInt = 6
    rope_local_base_freq: PositiveFloat = 10_000.0
    class_prefixes = ("Gemma3", "Gemma3Text")
    ignored_fields = "_sliding_window_pattern"
    task_heads = {**CLASSIFYING, "ForConditionalGeneration": CAUSAL_MODEL}  # the same head, with images too
    layer_module_names = QK_NORMS
    qk_norm = QKNorm(0, less_one=True)

    def has_window(self, number: int) -> bool:
        """All but every sliding_window_pattern-th."""
        return (number + 1) % self.sliding_window_pattern != 0

    def attention(self, layer: Layer, **overrides: Any) -> AnyAttention:
        """Windowed layers have a smaller RoPE base and no scaling."""
        older = self.rope_scaling if layer.window is None else None
        spelled = rope_of_kind(self.rope_parameters, layer.window) or older or {}
        otherwise = self.rope_local_base_freq if layer.window else self.rope_theta or 1_000_000.0
        how: dict[str, Any] = {"rotary": Rotary(spelled.get("rope_theta") or otherwise, spelled), "mask": "causal"}
        if self.use_bidirectional_attention:  # EmbeddingGemma
            how |= {"window": layer.window and 2 * (layer.window // 2) + 1, "causal": False}
        return super().attention(layer, **how)

    def hf_cache(self) -> Transformer:
        """The class also caches keys and values of an encoder."""
        if not self.use_bidirectional_attention:
            return super().hf_cache()

        def cached(part: Part) -> Part:
            if not isinstance(part, Attention):
                return part
            return replace(part, causal=True, window=part.window and part.window // 2)

        return self.transformer().mapped(cached)


PER_LAYER_LEGEND = {
    "D": "hidden size",
    "Vp": "vocabulary of the per-layer embeddings",
    "Lp": "layers with per-layer embeddings",
    "Dy": "width of a per-layer embedding",
}


@record(kw_only=True)
class PerLayerProjection(Part):
    """Per-layer inputs of `width` for each of `layers`: a normed projection of the token embedding
    (EmbeddingGemma2TextPLE)."""

    layers: Size
    width: Size
    hidden: Size
    eps: float = 1e-6

    name: ClassVar[str] = "per_layer"
    label: ClassVar[str] = "per-layer embeddings"
    listed_after: ClassVar[tuple[str, int]] = (Embedding.name, 0)
    axis_names: ClassVar[dict[str, str]] = {"layers": "Lp", "width": "Dy", "hidden": "D"}
    legend: ClassVar[dict[str, str]] = PER_LAYER_LEGEND

    def lines(self, at: str) -> Iterator[Line]:
        """Projection, scale and norm."""
        yield Matmul(f"{at}.project", "B T D, D Lp Dy -> B T Lp Dy")
        yield Pointwise(f"{at}.project_scale", "B T Lp Dy", kind="scale")
        yield Pointwise(f"{at}.norm", "B T Lp Dy", weight="Dy", kind="norm_rms")


@record(kw_only=True)
class PerLayerEmbedding(PerLayerProjection):
    """Per-layer embedding of `vocab` tokens, with a row of `width` for each of `layers`, plus such a projection
    (`project_per_layer_inputs` of Gemma3nTextModel and Gemma4TextModel)."""

    vocab: Size

    axis_names: ClassVar[dict[str, str]] = {"vocab": "Vp", **PerLayerProjection.axis_names}

    def lines(self, at: str) -> Iterator[Line]:
        """Embedding, scaled rows, projection, norm and sum."""
        yield Table(at, "Vp Lp Dy")
        yield Pointwise(f"{at}.scale", "B T Lp Dy", kind="scale")
        yield from PerLayerProjection.lines(self, at)
        yield Pointwise(f"{at}.add", "B T Lp Dy", kind="sum")
        yield Pointwise(f"{at}.sum_scale", "B T Lp Dy", kind="scale")


@record(kw_only=True)
class PerLayerInput(Part):
    """Activated projection of a token, times the layer's own row, projected back."""

    hidden: Size
    width: Size
    activation: str = "gelu_pytorch_tanh"

    name: ClassVar[str] = "per_layer"
    label: ClassVar[str] = "per-layer embeddings"
    listed_after: ClassVar[tuple[str, int]] = PerLayerProjection.listed_after
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "width": "Dy"}
    legend: ClassVar[dict[str, str]] = {name: text for name, text in PER_LAYER_LEGEND.items() if name in ("D", "Dy")}

    def lines(self, at: str) -> Iterator[Line]:
        """Two matmuls, and the activation between them."""
        yield Matmul(f"{at}.gate_proj", "B T D, D Dy -> B T Dy")
        yield Pointwise(f"{at}.act", "B T Dy", kind="activation", function=self.activation)
        yield Matmul(f"{at}.up_proj", "B T Dy, Dy D -> B T D")


def per_layer_modules(layer: str = "", model: str = "model") -> tuple[dict[str, str], dict[str, str]]:
    """Modules of per-layer embeddings: those of the model, and those of a layer."""
    names = {"project": "per_layer_model_projection", "norm": "per_layer_projection_norm"}
    return {f"per_layer.{name}": f"{model}.{hf_name}" for name, hf_name in names.items()}, {
        "per_layer.gate_proj": f"{layer}per_layer_input_gate",
        "per_layer.up_proj": f"{layer}per_layer_projection",
        "per_layer_post_norm": f"{layer}post_per_layer_input_norm",
    }


PER_LAYER_OF_MODEL, PER_LAYER_OF_LAYER = per_layer_modules()


class PerLayerGemma(GemmaAround):
    """Every layer reads its own embedding of a token; norms of queries, keys and values; unscaled attention scores."""

    layer_types: LayerTypes | None = None

    layer_module_names = QK_NORMS
    qk_norm = QKNorm(0)
    norm_weight_minus_one = False
    attention_options = dict(value_norm=attrgetter("rms_norm_eps"), scale=1.0)

    def borrowing_layers(self, windows: Sequence[int | None]) -> list[bool]:
        """True for each layer that reuses keys and values of an earlier layer with the same window. Raises
        ConfigError."""
        first = max(self.num_hidden_layers - self.num_kv_shared_layers, 0)
        if {*windows[first:]} - {*windows[:first]}:
            raise ConfigError(
                f"num_kv_shared_layers = {self.num_kv_shared_layers:,}: no earlier layer has the keys that they share"
            )
        return [number >= first for number in range(len(windows))]

    def per_layer_embedding(self) -> PerLayerProjection | None:
        """Rows of every layer's own embedding."""
        return PerLayerEmbedding(vocab=self.vocab_size_per_layer_input, **self.per_layer_sizes())

    def per_layer_sizes(self) -> dict[str, Any]:
        """Sizes of every layer's own embedding."""
        sizes = {"layers": self.num_hidden_layers, "width": self.hidden_size_per_layer_input}
        return {**sizes, "hidden": self.hidden_size, "eps": self.rms_norm_eps}

    def per_layer_input(self, **overrides: Any) -> Any:
        """The addition of a layer's own embedding."""
        return PerLayerInput(
            hidden=self.hidden_size, width=self.hidden_size_per_layer_input, activation=self.activation, **overrides
        )

    def embeddings_and_head(self) -> dict[str, Any]:
        return {**super().embeddings_and_head(), "per_layer": self.per_layer_embedding()}


STREAMS = 4
"""Residual streams of a model with AltUp."""
OTHERS = ("second", "third", "fourth")
"""Residual streams except the first, which layers read, by their names in paths."""
OTHER, EACH = "Xo", "Xs"
STREAMS_MADE = {OTHER: str(STREAMS - 1), EACH: str(STREAMS), "Xt": str(STREAMS), "Xu": str(STREAMS)}
STREAMS_LEGEND = {
    "D": "hidden size",
    OTHER: f"residual streams except the active one, {STREAMS - 1}",
    EACH: f"streams, {STREAMS}",
    "Xt": f"source streams of a prediction, {STREAMS}",
    "Xu": f"predicted streams, {STREAMS}",
}


@record(kw_only=True)
class AltUp(Part):
    """Alternating updates: Baykal et al., "Alternating Updates for Efficient Transformers" (arXiv 2301.13310), with the
    matmuls of transformers' Gemma3nTextAltUp.

    Before a layer, each residual stream is predicted from all, with coefficients computed from the first one. After it,
    all are corrected by the change of the first, each with a coefficient computed from the layer's output. `scaled`: a
    vector multiplies the first stream before it gates the per-layer inputs; otherwise it is only stored.
    """

    hidden: Size
    scaled: bool
    eps: float

    name: ClassVar[str] = "altup"
    label: ClassVar[str] = "AltUp"
    listed_after: ClassVar[tuple[str, int]] = (CrossAttention.name, 1)
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {axis: text for axis, text in STREAMS_LEGEND.items() if axis != OTHER}
    made: ClassVar[dict[str, str]] = {axis: count for axis, count in STREAMS_MADE.items() if axis != OTHER}

    def lines(self, at: str) -> Iterator[Line]:
        """Coefficients and predictions, then coefficients and corrections."""
        yield from self._routed(at, "")
        yield Matmul(f"{at}.predict_coefs", "B T Xs, Xs Xt Xu -> B T Xt Xu")
        yield Matmul(f"{at}.predict", "B T D Xt, B T Xt Xu -> B T D Xu")
        yield Pointwise(f"{at}.predict_add", "B T D Xs", kind="sum")
        yield from self._routed(at, "correct_")
        yield Matmul(f"{at}.correct_coefs", "B T Xs, Xs Xt -> B T Xt")
        yield Pointwise(f"{at}.innovation", "B T D", kind="sum")
        yield Pointwise(f"{at}.correct", "B T D Xs")
        yield Pointwise(f"{at}.correct_add", "B T D Xs", kind="sum")
        scale = Pointwise(f"{at}.out_scale", "B T D", weight="D")
        yield scale if self.scaled else Unused(scale)

    def _routed(self, at: str, which: str) -> Iterator[Line]:
        """The input of the coefficients, from the same norm and the same matrix both times."""
        owner = f"{at}.router"
        yield Pointwise(
            f"{at}.{which}router_norm", "B T D", weight="D", module=f"{owner}_norm" if which else None, kind="norm_rms"
        )
        yield Pointwise(f"{at}.{which}router_scale", "B T D", kind="scale")
        yield Matmul(f"{at}.{which}router", "B T D, D Xs -> B T Xs", weight=owner if which else None)
        yield Pointwise(f"{at}.{which}tanh", "B T Xs")


@record(kw_only=True)
class SparseFeedForward(FeedForward):
    """Gated MLP with a sparse gate. Setting this share of it to 0 saves no work (Gemma3nTextMLP)."""

    gated: bool = True
    sparsity: float

    kind: ClassVar[str] = "sparse"

    def lines(self, at: str) -> Iterator[Line]:
        """Projections and activation, with the sparse gate."""
        gate, *rest = FeedForward.lines(self, at)
        yield gate
        yield Pointwise(f"{at}.sparsity", "B T F")
        yield from rest


@record(kw_only=True)
class AltUpResidual(Residual):
    """Addition of a sublayer's result to all residual streams but the first."""

    legend: ClassVar[dict[str, str]] = {name: STREAMS_LEGEND[name] for name in ("D", OTHER)}
    made: ClassVar[dict[str, str]] = {OTHER: STREAMS_MADE[OTHER]}

    def lines(self, at: str) -> Iterator[Line]:
        """The addition."""
        yield Pointwise(at, "B T Xo D", kind="residual")


@record(kw_only=True)
class AltUpExpand(Part):
    """Additional residual streams: one projection of the embedding each, rescaled to the length of the first one
    (Gemma3nTextModel)."""

    hidden: Size

    name: ClassVar[str] = "streams"
    listed_after: ClassVar[tuple[str, int]] = (Embedding.name, 1)
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D"}
    legend: ClassVar[dict[str, str]] = {
        "D": STREAMS_LEGEND["D"],
        OTHER: STREAMS_LEGEND[OTHER],
        "Do": "output width of a square matrix (= D)",
    }
    made: ClassVar[dict[str, str]] = {OTHER: STREAMS_MADE[OTHER], "Do": "D"}

    def lines(self, at: str) -> Iterator[Line]:
        """One projection per residual stream but the first, and their lengths."""
        for name in OTHERS:
            yield Matmul(f"{at}.{name}", "B T D, D Do -> B T Do")
        yield Pointwise(f"{at}.rescale", "B T Xo D", kind="scale")


@record(kw_only=True)
class AltUpMerge(AltUpExpand):
    """Mean of all residual streams: the first one, and projections of the others, rescaled to its length."""

    name: ClassVar[str] = "merged"
    listed_after: ClassVar[tuple[str, int]] = (LightningAttention.name, 0)

    def lines(self, at: str) -> Iterator[Line]:
        """The same projections and lengths, and the mean."""
        yield from AltUpExpand.lines(self, at)
        yield Pointwise(f"{at}.mean", "B T D")


@record(kw_only=True)
class Laurel(Part):
    """Input of attention plus a normed low-rank projection of it, added to the residual stream together with
    attention's result. Menghani et al., "LAuReL" (arXiv 2411.07501), with the matmuls of transformers'
    Gemma3nTextLaurelBlock."""

    hidden: Size
    rank: Size
    eps: float = 1e-6

    name: ClassVar[str] = "laurel"
    listed_after: ClassVar[tuple[str, int]] = (CrossAttention.name, 0)
    axis_names: ClassVar[dict[str, str]] = {"hidden": "D", "rank": "Ru"}
    legend: ClassVar[dict[str, str]] = {"D": "hidden size", "Ru": "rank of the LAuReL projection parallel to attention"}

    def lines(self, at: str) -> Iterator[Line]:
        """Two matmuls, a norm and a sum."""
        yield Matmul(f"{at}.down_proj", "B T D, D Ru -> B T Ru")
        yield Matmul(f"{at}.up_proj", "B T Ru, Ru D -> B T D")
        yield Pointwise(f"{at}.norm", "B T D", weight="D", kind="norm_rms")
        yield Pointwise(f"{at}.add", "B T D", kind="sum")


class Gemma3n(PerLayerGemma):
    """Gemma 3n's language model: four residual streams (AltUp), a low-rank projection parallel to attention (Laurel),
    per-layer embeddings, and last layers that reuse keys and values of earlier ones."""

    sizes = dict(vocab=262_400, hidden=2048, layers=35, heads=8, kv_heads=2, context=32_768)
    intermediate_size: PositiveIntOrList = 16_384  # type: ignore[assignment]
    rope_local_base_freq: PositiveFloat | None = None
    sliding_window: Window = 512
    final_logit_softcapping: PositiveFloat | None = 30.0
    vocab_size_per_layer_input: PositiveInt = 262_144
    hidden_size_per_layer_input: PositiveInt = 256
    altup_num_inputs: PositiveInt = STREAMS
    altup_active_idx: NonNegativeInt = 0
    altup_correct_scale: StrictBool = True
    num_kv_shared_layers: NonNegativeInt = 15
    laurel_rank: PositiveInt = 64
    activation_sparsity_pattern: Shares | None = None

    class_prefixes = ("Gemma3n", "Gemma3nText")
    task_heads = {**DECODER, "ForConditionalGeneration": CAUSAL_MODEL}
    constant_axes = frozenset({"Xo", "Xs", "Xt", "Xu"})
    required_values = {"altup_num_inputs": STREAMS, "altup_active_idx": 0}
    reference_only = "-altup_num_inputs -altup_active_idx altup_correct_scale activation_sparsity_pattern"
    ignored_fields = "altup_coef_clip altup_lr_multiplier query_pre_attn_scalar"
    module_names = {
        "per_layer": "model.embed_tokens_per_layer",
        **PER_LAYER_OF_MODEL,
        **{f"streams.{name}": f"model.altup_projections.{number}" for number, name in enumerate(OTHERS)},
        **{f"merged.{name}": f"model.altup_unembed_projections.{number}" for number, name in enumerate(OTHERS)},
    }
    layer_module_names = {
        "laurel.down_proj": "laurel.linear_left",
        "laurel.up_proj": "laurel.linear_right",
        "laurel.norm": "laurel.post_laurel_norm",
        "altup.router_norm": "altup.router_norm",
        "altup.router": "altup.modality_router",
        "altup.correct_router": "altup.modality_router",
        "altup.predict_coefs": "altup.prediction_coefs",
        "altup.correct_coefs": "altup.correction_coefs",
        "altup.predict": "",
        **PER_LAYER_OF_LAYER,
    }
    layer_tensor_names = {"altup.out_scale.weight": "altup.correct_output_scale"}

    def layers(self) -> list[Layer]:
        """Windows in all layers but every fifth."""
        windows = self.windows(lambda number: (number + 1) % 5 != 0, self.sliding_window)
        rows = zip(windows, self.borrowing_layers(windows), self.mlp_widths(), self.sparsities(), strict=True)
        return [
            Layer(window, borrowed=borrowed, width=width, sparsity=sparsity)
            for window, borrowed, width, sparsity in rows
        ]

    def mlp_widths(self) -> list[int]:
        """Width of the MLP in each layer. Raises ConfigError."""
        given, layers = self.intermediate_size, self.num_hidden_layers
        widths = given if isinstance(given, list) else [given] * layers
        check_length("intermediate_size", widths, layers)
        return widths

    def sparsities(self) -> list[float]:
        """Share of the gate that is set to 0: by default 0.95 in the first ten layers. Raises ConfigError."""
        given, layers = self.activation_sparsity_pattern, self.num_hidden_layers
        if given is None:
            return [0.95] * 10 + [0.0] * (layers - 10) if layers > 10 else [0.0] * layers
        check_length("activation_sparsity_pattern", given, layers)
        return given

    def layer_rope(self, layer: Layer) -> Rotary:
        kind, by_kind = FULL if layer.window is None else SLIDING, self.rope_parameters or {}
        if by_kind and not any(isinstance(by_kind.get(name), Mapping) for name in (FULL, SLIDING)):
            raise ConfigError(f"rope_parameters needs entries for {FULL} and {SLIDING}")
        theta = 1_000_000.0 if kind == FULL else 10_000.0
        parameters = {"rope_theta": theta, **rope_of_kind(by_kind, layer.window)}
        older = self.rope_theta if kind == FULL else self.rope_local_base_freq
        theta = parameters["rope_theta"] if kind in by_kind or older is None else older
        return Rotary(theta, self.rope_scaling if kind == FULL and not by_kind else parameters)

    def embeddings_and_head(self) -> dict[str, Any]:
        hidden = self.hidden_size
        streams = {"expand_streams": AltUpExpand(hidden=hidden), "join_streams": AltUpMerge(hidden=hidden)}
        return {**super().embeddings_and_head(), **streams}

    def mlp(self, layer: Layer) -> FeedForward:
        plain = self.dense_mlp(width=layer.width)
        return SparseFeedForward.of(plain, sparsity=layer.sparsity) if layer.sparsity else plain

    def block(self, layer: Layer) -> Block:
        hidden, norm, eps = self.hidden_size, self.norm(), self.rms_norm_eps
        laurel: Any = Laurel(hidden=hidden, rank=self.laurel_rank, eps=eps)
        sublayers = (
            Sublayer(self.attention(layer, cache="borrowed" if layer.borrowed else "own"), norm, norm),
            Sublayer(laurel, add=Residual(hidden=hidden, after=2**-0.5), parallel=True),
            Sublayer(self.mlp(layer), norm, norm),
            Sublayer(self.per_layer_input(), None, norm, AltUpResidual(hidden=hidden)),
        )
        return Block(sublayers, streams=AltUp(hidden=hidden, scaled=self.altup_correct_scale, eps=eps))


class Gemma4Base(PerLayerGemma):
    """Layers with and without a window have their own heads and rotary embedding; the last layer has no window."""

    per_layer_config: JsonDict | None = None
    global_head_dim: PositiveInt = 512
    # If it is null, no layer has its own sizes, whatever global_head_dim is.
    null_means: ClassVar[Mapping[str, Any]] = {"per_layer_config": {}}
    reference_only = "-per_layer_config"
    sliding_window_pattern = 6
    num_kv_shared_layers = 0
    window = property(attrgetter("sliding_window"))
    """Keys that a token sees in a layer with a window."""

    def heads_of(self, number: int, window: int | None) -> tuple[int, int]:
        """Size of a layer's heads, and its key/value heads. Raises ConfigError."""
        if self.per_layer_config is not None:
            sizes = sizes_by_layer(self, ("head_dim", "num_key_value_heads")).get(number, {})
            return sizes.get("head_dim", self.head_dim), sizes.get("num_key_value_heads", self.num_key_value_heads)
        if window is not None:
            return self.head_dim, self.num_key_value_heads
        return self.global_head_dim, self.full_kv_heads

    def layers(self) -> list[Layer]:
        count, kinds, every = self.num_hidden_layers, self.layer_types, self.sliding_window_pattern
        if kinds is not None and len(kinds) == count:
            kinds = [*kinds[:-1], FULL]
        windows = layer_windows(kinds, count, self.window, lambda n: (n + 1) % every != 0 and n + 1 < count)
        borrowed = self.borrowing_layers(windows)
        heads = [self.heads_of(number, window) for number, window in enumerate(windows)]
        if len({*zip(windows, heads, strict=True)}) > len({*windows}):  # the class has one rotary table for each type
            raise ConfigError(
                "per_layer_config gives layers of one type different heads, which its class does not accept"
            )
        experts = getattr(self, "enable_moe_block", False)
        return [
            Layer(window, experts, head_dim=head_dim, kv_heads=kv_heads, borrowed=reads)
            for window, reads, (head_dim, kv_heads) in zip(windows, borrowed, heads, strict=True)
        ]

    def head_sizes(self, layer: Any) -> dict[str, int]:
        group = divide_exactly(self.num_attention_heads, layer.kv_heads, "num_attention_heads by key/value heads")
        field = "head_dim" if layer.window is not None else "global_head_dim"
        return {"kv_heads": layer.kv_heads, "group": group, "head_dim": require_even(layer.head_dim, field)}

    def block(self, layer: Any) -> Block:
        """A layer, with its output multiplied by a learned scalar."""
        norm, mlp = self.norm(), self.mlp(layer)
        parts = [Sublayer(self.attention(layer), norm, norm)]
        parts.append(Sublayer(mlp, None if isinstance(mlp, Experts) else norm, norm))
        if self.hidden_size_per_layer_input:
            parts.append(Sublayer(self.per_layer_input(), None, norm))
        return Block((*parts[:-1], replace(parts[-1], add=Residual(hidden=self.hidden_size, after=1.0))))


class Gemma4(Gemma4Base):
    """Gemma 4's language model: other heads in layers without a window, per-layer embeddings, last layers that read
    keys and values of earlier ones, and in some models experts parallel to a dense MLP."""

    rope_by_kind = {
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
        FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    }
    sizes = dict(vocab=262144, hidden=2304, mlp=9216, layers=30, heads=8, kv_heads=4, context=131072)
    defaults = dict(rope_parameters=rope_by_kind)
    sliding_window: Window = 512
    num_global_key_value_heads: PositiveInt | None = None
    attention_k_eq_v: StrictBool = False
    num_kv_shared_layers: NonNegativeInt = 0
    use_double_wide_mlp: StrictBool = False
    vocab_size_per_layer_input: PositiveInt = 262144
    hidden_size_per_layer_input: NonNegativeInt = 256
    final_logit_softcapping: PositiveFloat | None = None
    use_bidirectional_attention: StrictStr | None = None
    enable_moe_block: StrictBool = False
    num_experts: PositiveInt | None = None
    top_k_experts: PositiveInt | None = None
    moe_intermediate_size: PositiveInt | None = None

    class_prefixes = ("Gemma4", "Gemma4Text")
    task_heads = {**DECODER, "ForConditionalGeneration": CAUSAL_MODEL}
    attribute_map = {"num_experts_per_tok": "top_k_experts", "expert_intermediate_size": "moe_intermediate_size"}
    module_names = {"per_layer": "model.embed_tokens_per_layer", **PER_LAYER_OF_MODEL}
    layer_module_names = {
        **PER_LAYER_OF_LAYER,
        "mlp.router": "router.proj",
        "mlp.shared_norm": "pre_feedforward_layernorm",
        "mlp.shared_post_norm": "post_feedforward_layernorm_1",
        "mlp.experts_norm": "pre_feedforward_layernorm_2",
        "mlp.experts_post_norm": "post_feedforward_layernorm_2",
        **{f"mlp.experts.{name}_proj": "experts" for name in ("gate", "up", "down")},
        **mlp_modules("mlp", at="mlp.shared"),
    }
    layer_tensor_names = {
        **{name: hf_name.removeprefix("mlp.") for name, hf_name in EXPERT_TENSORS.items()},
        "mlp.router_norm.weight": "router.scale",
        "mlp.routing.weight": "router.per_expert_scale",
    }
    expert_top_k = "top_k_experts"

    def check(self) -> None:
        if self.use_bidirectional_attention not in (None, "vision"):
            raise self.refused("use_bidirectional_attention", self.use_bidirectional_attention)

    @property
    def full_kv_heads(self) -> int:
        """Key/value heads of layers without a window."""
        return (self.num_global_key_value_heads if self.attention_k_eq_v else None) or self.num_key_value_heads

    def attention(self, layer: Any, **overrides: Any) -> AnyAttention:
        same = self.attention_k_eq_v and layer.window is None and not layer.borrowed
        return super().attention(layer, keys_as_values=same, cache="borrowed" if layer.borrowed else "own")

    def mlp(self, layer: Any) -> FeedForward | Experts:
        """use_double_wide_mlp doubles the width in layers that read earlier keys."""
        width = self.intermediate_size * (2 if layer.borrowed and self.use_double_wide_mlp else 1)
        return self.experts_and_mlp(width) if layer.experts else self.dense_mlp(width=width)

    def experts_and_mlp(self, width: int) -> Experts:
        """Experts parallel to a dense MLP. Raises ConfigError."""
        for name in ("num_experts", "top_k_experts", "moe_intermediate_size"):
            if getattr(self, name) is None:
                raise ConfigError(f"enable_moe_block = true, but {name} is missing")
        return self.experts(shared=width, norms=self.rms_norm_eps)

    def per_layer_embedding(self) -> PerLayerProjection | None:
        return super().per_layer_embedding() if self.hidden_size_per_layer_input else None


class EmbeddingGemma2Text(Gemma4Base):
    """EmbeddingGemma 2's text encoder: Gemma 4's layers, bidirectional, with per-layer inputs computed from the token's
    embedding alone, and a projection of every result."""

    rope_by_kind = {**Gemma4.rope_by_kind, FULL: {"rope_type": "default", "rope_theta": 1_000_000.0}}
    sizes = dict(vocab=262144, hidden=512, mlp=2048, layers=24, heads=4, kv_heads=2, context=262144)
    defaults = dict(rope_parameters=rope_by_kind)
    sliding_window: PositiveInt = 512
    sliding_window_pattern: PositiveInt = 6
    num_global_key_value_heads: PositiveInt = 1
    hidden_size_per_layer_input: PositiveInt = 512
    embedding_dim: PositiveInt = 768

    class_prefixes = ("EmbeddingGemma2Text", "EmbeddingGemma2")
    task_heads = {
        "Model": TaskHead("AutoModel", "none", pooler=True, paths={"pooler.project": "embedding_projection"}, body="")
    }
    module_names, layer_module_names = per_layer_modules("ple_block.", "model.ple")
    full_kv_heads = property(attrgetter("num_global_key_value_heads"))
    attention_options = dict(causal=False)
    window = property(lambda self: 2 * self.sliding_window + 1)
    """As many keys before the token as after it."""

    def per_layer_embedding(self) -> PerLayerProjection:
        return PerLayerProjection(**self.per_layer_sizes())

    def pooler(self, hidden: Any) -> TokenPooler:
        return TokenPooler(hidden=hidden, reads="each", width=self.embedding_dim)
