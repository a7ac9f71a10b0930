"""Gemma 3n's language model: four streams, a low-rank product beside attention, rows of every layer, borrowed keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import (
    AltUp,
    Attention,
    FeedForward,
    Head,
    Laurel,
    Merged,
    PerLayerEmbedding,
    PerLayerInput,
    QKNorm,
    Rotary,
    Streams,
)
from tfacct.architecture.parts.altup import OTHERS, STREAMS
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, CountOrList, Layers, Real, Switch, UpTo, Word, even, share
from tfacct.families._endings import CAUSAL_MODEL, DECODER, Ending
from tfacct.families._gemma_like import GemmaLike
from tfacct.families._layers import FULL, SLIDING, LayerTypes, one_each, windows
from tfacct.families._llama_like import QK_NORM_PATHS
from tfacct.families.mistral import Window

RELEASED = "2025-05"

SPARSE, FIRST = 0.95, 10
"""Share of a gate that is set to 0 in the first layers, where activation_sparsity_pattern is absent."""
ROUTER = "model.layers.*.altup"
Shares: TypeAlias = Annotated[
    list[float], Checked(core_schema.list_schema(core_schema.float_schema(ge=0, lt=1), strict=True))
]
ROPE: Mapping[str, Mapping[str, Any]] = {FULL: {"rope_theta": 1_000_000.0}, SLIDING: {"rope_theta": 10_000.0}}


class Config(GemmaLike):
    """`Gemma3nTextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 262_400
    hidden_size: Count = 2048
    intermediate_size: CountOrList = 16_384  # type: ignore[assignment]
    num_hidden_layers: Layers = 35
    num_attention_heads: Count = 8
    num_key_value_heads: Count = 2
    max_position_embeddings: Count = 32_768
    hidden_activation: Word = "gelu_pytorch_tanh"
    rope_local_base_freq: Real | None = None
    sliding_window: Window = 512
    layer_types: LayerTypes | None = None
    final_logit_softcapping: Real | None = 30.0
    vocab_size_per_layer_input: Count = 262_144
    hidden_size_per_layer_input: Count = 256
    altup_num_inputs: Count = STREAMS
    altup_active_idx: UpTo = 0
    altup_correct_scale: Switch = True
    num_kv_shared_layers: UpTo = 15
    laurel_rank: Count = 64
    activation_sparsity_pattern: Shares | None = None

    stems: ClassVar = ("Gemma3n", "Gemma3nText")
    fixed: ClassVar = frozenset({"Xo", "Xs", "Xt", "Xu"})
    uncounted: ClassVar = GemmaLike.uncounted | {
        "hidden_activation",
        "rope_local_base_freq",
        "final_logit_softcapping",
        "altup_correct_scale",
        "activation_sparsity_pattern",
    }
    harmless: ClassVar = frozenset({"altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar"})
    heads: ClassVar[Mapping[str, Ending]] = {**DECODER, "ForConditionalGeneration": CAUSAL_MODEL}
    hf_paths: ClassVar = {
        **GemmaLike.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.post_attention_layernorm",
        "blocks.*.mlp_norm": "model.layers.*.pre_feedforward_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_feedforward_layernorm",
        "blocks.*.laurel.down_proj": "model.layers.*.laurel.linear_left",
        "blocks.*.laurel.up_proj": "model.layers.*.laurel.linear_right",
        "blocks.*.laurel.norm": "model.layers.*.laurel.post_laurel_norm",
        "blocks.*.altup.router_norm": f"{ROUTER}.router_norm",
        "blocks.*.altup.router": f"{ROUTER}.modality_router",
        "blocks.*.altup.correct_router": f"{ROUTER}.modality_router",
        "blocks.*.altup.predict_coefs": f"{ROUTER}.prediction_coefs",
        "blocks.*.altup.correct_coefs": f"{ROUTER}.correction_coefs",
        "blocks.*.altup.predict": "model.layers.*",
        "blocks.*.per_layer.gate_proj": "model.layers.*.per_layer_input_gate",
        "blocks.*.per_layer.up_proj": "model.layers.*.per_layer_projection",
        "blocks.*.per_layer_post_norm": "model.layers.*.post_per_layer_input_norm",
        "per_layer": "model.embed_tokens_per_layer",
        "per_layer.project": "model.per_layer_model_projection",
        "per_layer.norm": "model.per_layer_projection_norm",
        **{f"streams.{name}": f"model.altup_projections.{number}" for number, name in enumerate(OTHERS)},
        **{f"merged.{name}": f"model.altup_unembed_projections.{number}" for number, name in enumerate(OTHERS)},
    }
    hf_tensors: ClassVar = {"blocks.*.altup.out_scale.weight": f"{ROUTER}.correct_output_scale"}

    @property
    def activation(self) -> str:
        """hidden_activation."""
        return self.hidden_activation

    def widths(self) -> list[int]:
        """Width of the network in each layer. Raises ConfigError."""
        given, layers = self.intermediate_size, self.num_hidden_layers
        widths = given if isinstance(given, list) else [given] * layers
        one_each("intermediate_size", widths, layers)
        return widths

    def shares(self) -> list[float]:
        """Share of the gate that is set to 0 in each layer. Raises ConfigError."""
        given, layers = self.activation_sparsity_pattern, self.num_hidden_layers
        if given is None:
            sparse = FIRST if layers > FIRST else 0
            return [SPARSE] * sparse + [0.0] * (layers - sparse)
        one_each("activation_sparsity_pattern", given, layers)
        return given

    def of_layer(self, window: int | None, borrowed: bool) -> Attention:
        """Attention of a layer: its angles, and whose keys it reads. Raises ConfigError."""
        kind = FULL if window is None else SLIDING
        own = self.rope_parameters or {}
        if own and not any(isinstance(own.get(name), Mapping) for name in (FULL, SLIDING)):
            raise ConfigError(f"rope_parameters must have the angles of {FULL} and of {SLIDING}")
        spelled = {**ROPE[kind], **(own.get(kind) or {})}
        older = self.rope_theta if window is None else self.rope_local_base_freq
        base = spelled["rope_theta"] if kind in own or older is None else older
        return Attention(
            hidden=self.hidden_size,
            kv_heads=self.num_key_value_heads,
            group=share(self.num_attention_heads, self.num_key_value_heads, "num_attention_heads by key/value heads"),
            head_dim=even(self.head_dim),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            rotary=Rotary(base, self.rope_scaling if window is None and not own else spelled),
            qk_norm=QKNorm(self.rms_norm_eps),
            value_norm=self.rms_norm_eps,
            borrowed=borrowed,
            window=window,
            scale=1.0,
        )

    def whole_block(self, window: int | None, borrowed: bool, width: int, sparsity: float) -> Block:
        """Attention with a product of low rank beside it, a network, and the layer's own row of the token."""
        hidden, norm, eps = self.hidden_size, self.norm(), self.rms_norm_eps
        network = FeedForward(
            hidden=hidden, width=width, gated=True, activation=self.activation, sparsity=sparsity or None
        )
        own = PerLayerInput(
            hidden=hidden, width=self.hidden_size_per_layer_input, others=True, activation=self.activation
        )
        sublayers = (
            Sublayer(self.of_layer(window, borrowed), norm, norm),
            Sublayer(Laurel(hidden=hidden, rank=self.laurel_rank, eps=eps), beside=True, after=2**-0.5),
            Sublayer(network, norm, norm),
            Sublayer(own, None, norm),
        )
        return Block(sublayers, altup=AltUp(hidden=hidden, scaled=self.altup_correct_scale, eps=eps))

    def norm(self) -> Any:
        """RMSNorm, its weight the scale itself."""
        return replace(GemmaLike.norm(self), less_one=False)

    def refuse(self) -> None:
        """Refuse what no part here can express. Raises ConfigError."""
        if self.altup_num_inputs != STREAMS:
            raise self.refused("altup_num_inputs", self.altup_num_inputs)
        if self.altup_active_idx:
            raise self.refused("altup_active_idx", self.altup_active_idx)

    def architecture(self) -> Transformer:
        """Blocks that keep their keys, then those that borrow them, between streams made of one and merged to one."""
        self.refuse()
        layers, hidden = self.num_hidden_layers, self.hidden_size
        slides = windows(self.layer_types, layers, self.sliding_window, lambda number: (number + 1) % 5 != 0)
        first = layers - self.num_kv_shared_layers
        if self.num_kv_shared_layers and {*slides} - {*slides[: max(first, 0)]}:
            raise ConfigError(
                f"num_kv_shared_layers = {self.num_kv_shared_layers:,}: no layer before these has the keys they read"
            )
        borrows = [number >= first for number in range(layers)]
        each = list(zip(slides, borrows, self.widths(), self.shares(), strict=True))
        kinds = {kind: self.whole_block(*kind) for kind in dict.fromkeys(each)}
        table = PerLayerEmbedding(
            vocab=self.vocab_size_per_layer_input,
            layers=layers,
            width=self.hidden_size_per_layer_input,
            hidden=hidden,
            eps=self.rms_norm_eps,
        )
        cap = self.final_logit_softcapping
        head = Head(hidden=hidden, vocab=self.vocab_size, tied=self.tie_word_embeddings, softcap=cap)
        ends = {"streams": Streams(hidden=hidden), "merged": Merged(hidden=hidden)}
        return self.decoder([kinds[kind] for kind in each], head=head, per_layer=table, **ends)
