"""A.X K2: DeepSeek-V3.2's block, with norms that narrow networks gate, and queries made of a latent beside its norm."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Attention, Experts, FeedForward, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, UpTo
from tfacct.families._endings import CLASSIFYING, Ending
from tfacct.families._experts import dense_or_sparse
from tfacct.families._indexed import Indexed

RELEASED = "2026-07"

NETWORK = {"gate_down": "fc1", "gate_up": "fc2"}
"""The network that gates a norm."""


def _gated(ours: str, theirs: str) -> dict[str, str]:
    return {ours: f"{theirs}.norm", **{f"{ours}.{name}": f"{theirs}.mlp.{own}" for name, own in NETWORK.items()}}


class Config(Indexed):
    """`AXK2Config`, with its class's defaults, sizes too: those of A.X-K2-Light."""

    vocab_size: Count = 163840
    hidden_size: Count = 2048
    intermediate_size: Count = 5120
    num_hidden_layers: Layers = 48
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 131072
    q_lora_rank: Count = 384
    kv_lora_rank: Count = 128
    qk_nope_head_dim: Count = 64
    qk_rope_head_dim: Count = 32
    v_head_dim: Count = 64
    moe_intermediate_size: Count = 512
    n_routed_experts: Count = 128
    first_k_dense_replace: UpTo = 1
    index_n_heads: Count = 16
    gated_norm_rank: Count = 16

    stems: ClassVar = ("AXK2",)
    heads: ClassVar[Mapping[str, Ending]] = CLASSIFYING
    uncounted: ClassVar = Indexed.uncounted - {"moe_layer_freq"}
    understood: ClassVar[Mapping[str, object]] = {"mlp_bias": False}
    hf_paths: ClassVar = {
        **Indexed.hf_paths,
        **_gated("blocks.*.attn_norm", "model.layers.*.input_layernorm"),
        **_gated("blocks.*.mlp_norm", "model.layers.*.post_attention_layernorm"),
        **{f"blocks.*.attn.{name}": "model.layers.*.self_attn.q_gate_proj" for name in ("q_b_proj", "gate_proj")},
    }

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts. Raises ConfigError."""
        layers, first, every = self.num_hidden_layers, self.first_k_dense_replace, self.moe_layer_freq
        if self.mlp_layer_types is None:
            return [number >= first and number % every == 0 for number in range(layers)]
        return dense_or_sparse(self.mlp_layer_types, layers)

    def class_paths(self) -> Mapping[str, str]:
        """The norm in front of a dense network is one module, without a gate."""
        plain = (number for number, routed in enumerate(self.routed()) if not routed)
        norms = {f"blocks.{number}.mlp_norm": f"model.layers.{number}.post_attention_layernorm" for number in plain}
        return {**self.hf_paths, **norms}

    def block(self, attention: Attention | LatentAttention, network: FeedForward | Experts) -> Block:
        """A pre-norm block."""
        gated = replace(self.norm(), gate_rank=self.gated_norm_rank)
        own = gated if isinstance(network, Experts) else self.norm()
        return Block((Sublayer(attention, gated), Sublayer(network, own)))

    def architecture(self) -> Transformer:
        """An indexer and a gate in every layer."""
        self.refuse()
        attention = self.choosing(paired=True, gated=True, gates="channels")
        return self.indexed([attention] * self.num_hidden_layers)
