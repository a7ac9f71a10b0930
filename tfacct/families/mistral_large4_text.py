"""Mistral Large 4's language model: latent attention that an indexer chooses for, layers that are not rotated, latents
that several layers may share; a dense layer, then experts beside a shared network."""

from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Head, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families import glm_moe_dsa
from tfacct.families._base import Checked, Count, Fields, Layers, Real, UpTo
from tfacct.families._endings import inside
from tfacct.families._experts import beside_shared
from tfacct.families._indexed import Indexed
from tfacct.families._layers import Flags, rotated

RELEASED = "2026-09"

ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 2048.0,
    "original_max_position_embeddings": 512,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attention_factor": 1.0,
}
"""The class's angles where the config has none."""
Sources = Annotated[list[int], Checked(core_schema.list_schema(core_schema.int_schema(strict=True, ge=0), strict=True))]
"""The layer whose latents each layer reads."""
_OURS, _THEIRS = "blocks.*.attn", "model.layers.*.self_attn"


class Config(glm_moe_dsa.Config):
    """`MistralLarge4TextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 204800
    hidden_size: Count = 6144
    intermediate_size: Count = 24576
    num_hidden_layers: Layers = 72
    num_attention_heads: Count = 64
    num_key_value_heads: Count = 64
    max_position_embeddings: Count = 1048576
    rms_norm_eps: Real = 1e-5
    q_lora_rank: None = None  # type: ignore[assignment]
    qk_nope_head_dim: Count = 64
    v_head_dim: Count = 128
    moe_intermediate_size: Count = 6144
    n_routed_experts: Count = 128
    n_shared_experts: Count = 1
    num_experts_per_tok: Count = 4
    first_k_dense_replace: UpTo = 1
    index_n_heads: Count = 32
    no_rope_layers: Flags | None = None
    no_rope_layer_interval: Count = 4
    kv_source_layers: Sources | None = None
    final_logit_softcapping: Real = 30.0
    rope_parameters: Fields | None = ROPE

    stems: ClassVar = ("MistralLarge4", "MistralLarge4Text")
    heads: ClassVar = inside("MistralLarge4ForConditionalGeneration", "MistralLarge4TextModel")
    uncounted: ClassVar = Indexed.uncounted | {"final_logit_softcapping"}
    hf_paths: ClassVar = {
        **Indexed.hf_paths,
        f"{_OURS}.indexer.q_norm": f"{_THEIRS}.indexer.q_input_norm",
    }
    hf_tensors: ClassVar = {
        **Indexed.hf_tensors,
        **{
            f"{_OURS}.{at}q_scale.{ours}": f"{_THEIRS}.{at}softmax_scaling.{theirs}"
            for at in ("", "indexer.")
            for ours, theirs in (("weight", "scale"), ("bias", "bias"))
        },
    }

    def lends(self, turned: list[bool]) -> list[bool]:
        """Booleans, one for each layer: whether it reads the latents of another. Raises ConfigError."""
        layers = self.num_hidden_layers
        sources = [*range(layers)] if self.kv_source_layers is None else self.kv_source_layers
        if len(sources) != layers:
            raise ConfigError(f"kv_source_layers names {len(sources):,} layers, and num_hidden_layers is {layers:,}")
        last: dict[bool, int] = {}
        for number, source in enumerate(sources):
            if source > number or sources[source] != source:
                raise ConfigError(
                    f"kv_source_layers: layer {number:,} reads the latents of layer {source:,}, which has none of its"
                    " own before it"
                )
            if source == number and number in sources[number + 1 :]:
                last[turned[number]] = number
            if source != number and last.get(turned[number]) != source:  # the class reads the last one's of its kind
                raise ConfigError(
                    f"kv_source_layers: layer {number:,} reads the latents of layer {source:,}, and the class gives it"
                    " those of the last layer that others read too and that rotates, or does not, as it does"
                )
        return [source != number for number, source in enumerate(sources)]

    def of_layer(self, *, turned: bool, chooses: bool, borrowed: bool) -> LatentAttention:
        """Attention of a layer; of one that is not rotated, all of a key comes from the latent."""
        own: dict[str, Any] = {"index_pairs": "neighbours", "index_streamed": True, "learned": True}
        part = self.choosing(**own, eps=self.rms_norm_eps, follows=not chooses, borrowed=borrowed)
        if turned:
            return part
        whole = self.qk_nope_head_dim + self.qk_rope_head_dim
        return replace(part, rotary=None, rope_dim=None, nope_dim=whole)

    def architecture(self) -> Transformer:
        """A block of each kind: rotated or not, with an indexer or without, with latents of its own or another's."""
        self.refuse()
        turned = rotated(self.no_rope_layers, self.num_hidden_layers, self.no_rope_layer_interval)
        per_layer = list(zip(turned, self.chooses(), self.lends(turned), self.routed(), strict=True))
        experts, dense = beside_shared(self, self.n_routed_experts, self.n_shared_experts), self.feed_forward()
        made: dict[tuple[bool, ...], Block] = {}
        for kind in dict.fromkeys(per_layer):
            turns, chooses, borrowed, routed = kind
            attention = self.of_layer(turned=turns, chooses=chooses, borrowed=borrowed)
            made[kind] = self.block(attention, experts if routed else dense)
        head = Head(
            hidden=self.hidden_size,
            vocab=self.vocab_size,
            tied=self.tie_word_embeddings,
            softcap=self.final_logit_softcapping,
        )
        return self.decoder([made[kind] for kind in per_layer], head=head)
