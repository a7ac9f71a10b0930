"""Llama 4's language model: attention in chunks, layers that are not rotated, experts beside a shared network."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.parts import Attention, Experts, FeedForward, QKNorm, Rotary, Temperature
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch, UpTo
from tfacct.families._endings import BODY, CAUSAL_MODEL, Ending
from tfacct.families._experts import ROUTED_TENSORS, check_active, every_expert, with_experts
from tfacct.families._layers import FULL, Flags, LayerTypes, kinds_of, rotated
from tfacct.families._llama_like import LlamaLike
from tfacct.families.mistral import Window

RELEASED = "2025-04"

CHUNKED = "chunked_attention"


class Config(LlamaLike):
    """`Llama4TextConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert and of the
    shared network, intermediate_size_mlp that of the dense layers."""

    vocab_size: Count = 202048
    hidden_size: Count = 5120
    intermediate_size: Count = 8192
    intermediate_size_mlp: Count = 16384
    num_hidden_layers: Layers = 48
    num_attention_heads: Count = 40
    num_key_value_heads: Count = 8
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 500_000.0
    attention_bias: Switch = False
    num_local_experts: UpTo = 16
    num_experts_per_tok: UpTo = 1
    moe_layers: list[UpTo] | None = None
    interleave_moe_layer_step: UpTo = 1
    use_qk_norm: Switch = True
    no_rope_layers: Flags | None = None
    no_rope_layer_interval: Count = 4
    attention_chunk_size: Window | None = 8192
    layer_types: LayerTypes | None = None
    attn_temperature_tuning: Switch | UpTo = True  # the first files say 4, which is on
    floor_scale: Count = 8192
    attn_scale: Real = 0.1

    stems: ClassVar = ("Llama4", "Llama4Text")
    uncounted: ClassVar = LlamaLike.uncounted | {
        "attn_scale",
        "attn_temperature_tuning",
        "floor_scale",
        "no_rope_layer_interval",
        "use_qk_norm",
    }
    harmless: ClassVar = frozenset({"for_llm_compressor", "router_jitter_noise"})
    heads: ClassVar[Mapping[str, Ending]] = {
        "ForCausalLM": CAUSAL_MODEL,
        "Model": BODY,
        "ForConditionalGeneration": CAUSAL_MODEL,  # the same head, behind images too
    }
    hf_paths: ClassVar = {
        **{ours: theirs.replace(".mlp.", ".feed_forward.") for ours, theirs in LlamaLike.hf_paths.items()},
        "blocks.*.mlp.router": "model.layers.*.feed_forward.router",
        **{
            f"blocks.*.mlp.experts.{name}": "model.layers.*.feed_forward.experts"
            for name in ("gate_proj", "up_proj", "down_proj")
        },
        **{
            f"blocks.*.mlp.shared.{name}": f"model.layers.*.feed_forward.shared_expert.{name}"
            for name in ("gate_proj", "up_proj", "down_proj")
        },
    }
    inputs_first: ClassVar = ("blocks.*.mlp.experts.",)
    hf_tensors: ClassVar = {ours: theirs.replace(".mlp.", ".feed_forward.") for ours, theirs in ROUTED_TENSORS.items()}
    class_extra: ClassVar = "it sends every token through all experts, and weighs what they read by the router's scores"

    def class_multiplies(self) -> Transformer:
        """The class multiplies every token by all experts."""
        return every_expert(self.transformer())

    def seen(self, turns: list[bool]) -> list[int | None]:
        """The chunk of each layer, None where it sees everything. Raises ConfigError."""
        kinds = kinds_of(
            self.layer_types,
            self.num_hidden_layers,
            lambda number: CHUNKED if turns[number] else FULL,
            (FULL, CHUNKED),
        )
        if CHUNKED in kinds and not self.attention_chunk_size:
            raise ConfigError(
                f"layer {kinds.index(CHUNKED)} has {CHUNKED}, but attention_chunk_size is null",
                "give attention_chunk_size, or set every entry of layer_types to full_attention",
            )
        return [self.attention_chunk_size if kind == CHUNKED else None for kind in kinds]

    def of_layer(self, chunk: int | None, turned: bool) -> Attention:
        """Attention of a layer: in chunks or not, rotated and normed or with queries that grow."""
        biased = self.attention_bias
        norm = QKNorm(self.rms_norm_eps, late=True, learned=False) if self.use_qk_norm and turned else None
        grows = Temperature(self.attn_scale, float(self.floor_scale), 1) if self.attn_temperature_tuning else None
        own = {} if turned else {"rotary": None, "temperature": grows}
        return self.attention(
            qkv_bias=biased, out_bias=biased, qk_norm=norm, window=chunk, chunked=chunk is not None, **own
        )

    def rotary(self) -> Rotary:
        """Neighbouring elements turn together."""
        return LlamaLike.rotary(self)._replace(pairs="neighbours")

    def networks(self) -> dict[bool, FeedForward | Experts]:
        """Network of a layer, by whether it has experts."""
        hidden, act = self.hidden_size, self.activation
        dense = FeedForward(hidden=hidden, width=self.intermediate_size_mlp, gated=True, activation=act)
        if not any(self.routed()):
            return {False: dense}
        for name in ("num_local_experts", "num_experts_per_tok"):
            if getattr(self, name) == 0:
                raise ConfigError(f"{name} = 0, and there are layers with experts")
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_local_experts"))
        experts = Experts(
            hidden=hidden,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            shared_alike=True,
            activation=act,
        )
        return {True: experts, False: dense}

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts."""
        step, layers = self.interleave_moe_layer_step, self.num_hidden_layers
        if self.moe_layers is None and step == 0:
            raise self.refused("interleave_moe_layer_step", 0)
        return (
            with_experts(layers, step, None)
            if self.moe_layers is None
            else [number in self.moe_layers for number in range(layers)]
        )

    def architecture(self) -> Transformer:
        """Blocks of as many kinds as there are mixtures."""
        turns = rotated(self.no_rope_layers or None, self.num_hidden_layers, self.no_rope_layer_interval)
        networks = self.networks()
        per_layer = list(zip(self.seen(turns), turns, self.routed(), strict=True))
        kinds = {
            (chunk, turned, routed): self.block(self.of_layer(chunk, turned), networks[routed])
            for chunk, turned, routed in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])
