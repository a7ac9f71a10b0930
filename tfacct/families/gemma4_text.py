"""Gemma 4's language model: other heads in layers that see everything, borrowed keys, per-layer embeddings."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Experts, Head, PerLayerEmbedding, PerLayerInput
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Layers, Real, Switch, UpTo, Word
from tfacct.families._endings import CAUSAL_MODEL, DECODER, Ending
from tfacct.families._experts import ROUTED_TENSORS, check_active
from tfacct.families._gemma_kinds import OfKinds
from tfacct.families._layers import FULL, SLIDING, LayerTypes, angles_of, windows
from tfacct.families.mistral import Window

RELEASED = "2026-04"

ROPE = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}
"""The class's angles where the config has none."""
NAMES = ("gate_proj", "up_proj", "down_proj")


class Config(OfKinds):
    """`Gemma4TextConfig`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    vocab_size: Count = 262144
    hidden_size: Count = 2304
    intermediate_size: Count = 9216
    num_hidden_layers: Layers = 30
    num_attention_heads: Count = 8
    num_key_value_heads: Count = 4
    max_position_embeddings: Count = 131072
    rope_parameters: Fields | None = ROPE
    sliding_window: Window = 512
    layer_types: LayerTypes | None = None
    global_head_dim: Count = 512
    num_global_key_value_heads: Count | None = None
    attention_k_eq_v: Switch = False
    num_kv_shared_layers: UpTo = 0
    use_double_wide_mlp: Switch = False
    vocab_size_per_layer_input: Count = 262144
    hidden_size_per_layer_input: UpTo = 256
    final_logit_softcapping: Real | None = None
    use_bidirectional_attention: Word | None = None
    enable_moe_block: Switch = False
    num_experts: Count | None = None
    top_k_experts: Count | None = None
    moe_intermediate_size: Count | None = None

    stems: ClassVar = ("Gemma4", "Gemma4Text")
    uncounted: ClassVar = OfKinds.uncounted | {
        "final_logit_softcapping",
        "use_bidirectional_attention",
    }
    aliases: ClassVar = {"num_experts_per_tok": "top_k_experts", "expert_intermediate_size": "moe_intermediate_size"}
    heads: ClassVar[Mapping[str, Ending]] = {**DECODER, "ForConditionalGeneration": CAUSAL_MODEL}
    hf_paths: ClassVar = {
        **OfKinds.hf_paths,
        "blocks.*.per_layer.gate_proj": "model.layers.*.per_layer_input_gate",
        "blocks.*.per_layer.up_proj": "model.layers.*.per_layer_projection",
        "blocks.*.per_layer_post_norm": "model.layers.*.post_per_layer_input_norm",
        "blocks.*.mlp.router": "model.layers.*.router.proj",
        "blocks.*.mlp.shared_norm": "model.layers.*.pre_feedforward_layernorm",
        "blocks.*.mlp.shared_post_norm": "model.layers.*.post_feedforward_layernorm_1",
        "blocks.*.mlp.experts_norm": "model.layers.*.pre_feedforward_layernorm_2",
        "blocks.*.mlp.experts_post_norm": "model.layers.*.post_feedforward_layernorm_2",
        **{f"blocks.*.mlp.experts.{name}": "model.layers.*.experts" for name in NAMES},
        **{f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.{name}" for name in NAMES},
        "per_layer": "model.embed_tokens_per_layer",
        "per_layer.project": "model.per_layer_model_projection",
        "per_layer.norm": "model.per_layer_projection_norm",
    }
    hf_tensors: ClassVar = {
        **{ours: theirs.replace(".mlp.", ".") for ours, theirs in ROUTED_TENSORS.items()},
        "blocks.*.mlp.router_norm.weight": "model.layers.*.router.scale",
        "blocks.*.mlp.routing.weight": "model.layers.*.router.per_expert_scale",
    }

    def seen(self) -> list[int | None]:
        """The window of each layer, None where it sees everything."""
        given = None if self.layer_types is None else [*self.layer_types[:-1], FULL]
        layers = self.num_hidden_layers
        if self.layer_types is not None and len(self.layer_types) != layers:
            given = self.layer_types
        return windows(given, layers, self.sliding_window, lambda n: (n + 1) % 6 != 0 and n + 1 < layers)

    def heads_of(self, number: int, window: int | None) -> tuple[int, int]:
        """Size of a layer's heads, and its key/value heads: of its kind, or what per_layer_config says. Raises
        ConfigError."""
        if self.per_layer_config is not None:
            own = self.overrides.get(number, {})
            return own.get("head_dim", self.head_dim), own.get("num_key_value_heads", self.num_key_value_heads)
        alike = self.attention_k_eq_v and window is None
        kv_heads = (self.num_global_key_value_heads if alike else None) or self.num_key_value_heads
        return self.head_dim if window is not None else self.global_head_dim, kv_heads

    def of_layer(self, window: int | None, borrowed: bool, size: int, kv_heads: int) -> Attention:
        """Attention of a layer: its heads, its angles, and whose keys it reads."""
        alike = self.attention_k_eq_v and window is None
        angles, own = angles_of(self.rope_parameters, ROPE, window), alike and not borrowed
        return self.attention_of(window, size, kv_heads, angles, keys_as_values=own, borrowed=borrowed)

    def whole_block(self, window: int | None, borrowed: bool, size: int, kv_heads: int) -> Block:
        """Attention and network with norms around them, and the layer's own row of the token."""
        norm = self.norm()
        network = self.feed_forward()
        if borrowed and self.use_double_wide_mlp:
            network = replace(network, width=2 * self.intermediate_size)
        second = Sublayer(network, norm, norm)
        if self.enable_moe_block:
            second = Sublayer(self.beside(network.width), None, norm)
        parts = [Sublayer(self.of_layer(window, borrowed, size, kv_heads), norm, norm), second]
        if width := self.hidden_size_per_layer_input:
            own = PerLayerInput(hidden=self.hidden_size, width=width, activation=self.activation)
            parts.append(Sublayer(own, None, norm))
        return Block((*parts[:-1], replace(parts[-1], after=1.0)))

    def beside(self, width: int) -> Experts:
        """Experts beside the dense network. Raises ConfigError."""
        sizes = {name: getattr(self, name) for name in ("num_experts", "top_k_experts", "moe_intermediate_size")}
        if missing := [name for name, size in sizes.items() if size is None]:
            raise ConfigError(f"enable_moe_block = true, but {missing[0]} is missing")
        check_active(sizes["top_k_experts"], sizes["num_experts"], ("top_k_experts", "num_experts"))
        return Experts(
            hidden=self.hidden_size,
            experts=sizes["num_experts"],
            active=sizes["top_k_experts"],
            width=sizes["moe_intermediate_size"],
            shared=width,
            norms=self.rms_norm_eps,
            activation=self.activation,
        )

    def refuse(self) -> None:
        """Refuse what no part here can express. Raises ConfigError."""
        if self.use_bidirectional_attention not in (None, "vision"):
            raise self.refused("use_bidirectional_attention", self.use_bidirectional_attention)

    def architecture(self) -> Transformer:
        """Blocks that keep their keys, then those that borrow them."""
        self.refuse()
        slides, layers = self.seen(), self.num_hidden_layers
        first = layers - self.num_kv_shared_layers
        missing = {*slides[max(first, 0) :]} - {*slides[: max(first, 0)]}
        if self.num_kv_shared_layers and missing:
            raise ConfigError(
                f"num_kv_shared_layers = {self.num_kv_shared_layers:,}: no layer before these has the keys they read"
            )
        per_layer = [(window, number >= first, *self.heads_of(number, window)) for number, window in enumerate(slides)]
        if len({(kind[0], *kind[2:]) for kind in per_layer}) > len({*slides}):  # the class turns them by one table
            raise ConfigError("per_layer_config gives layers of one type other heads, which its class refuses")
        kinds = {kind: self.whole_block(*kind) for kind in dict.fromkeys(per_layer)}
        cap, width = self.final_logit_softcapping, self.hidden_size_per_layer_input
        table = PerLayerEmbedding(
            vocab=self.vocab_size_per_layer_input,
            layers=layers,
            width=width,
            hidden=self.hidden_size,
            eps=self.rms_norm_eps,
        )
        head = Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings, softcap=cap)
        return self.decoder([kinds[kind] for kind in per_layer], head=head, per_layer=table if width else None)
