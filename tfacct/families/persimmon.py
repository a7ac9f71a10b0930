"""Persimmon: LayerNorms, also of queries and keys; a network of two matrices with squared ReLU."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import FeedForward, Norm, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Real, Switch, Word
from tfacct.families._part_rotated import PartRotated

RELEASED = "2023-09"


class Config(PartRotated):
    """`PersimmonConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 262144
    hidden_size: Count = 4096
    intermediate_size: Count = 16384
    num_hidden_layers: Layers = 36
    num_attention_heads: Count = 64
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 16384
    partial_rotary_factor: Fraction = 0.5
    qk_layernorm: Switch = True
    hidden_act: Word = "relu2"
    layer_norm_eps: Real = 1e-5

    dropouts: ClassVar = {"mlp": ("hidden_dropout", 0.0), "attention": ("attention_dropout", 0.0)}
    stems: ClassVar = ("Persimmon",)
    fixed: ClassVar = frozenset({"G"})  # every head has its own keys
    uncounted: ClassVar = PartRotated.uncounted | {"layer_norm_eps"}
    hf_paths: ClassVar = {
        **PartRotated.hf_paths,
        "blocks.*.attn.q_proj": "model.layers.*.self_attn.query_key_value",
        "blocks.*.attn.k_proj": "model.layers.*.self_attn.query_key_value",
        "blocks.*.attn.v_proj": "model.layers.*.self_attn.query_key_value",
        "blocks.*.attn.q_norm": "model.layers.*.self_attn.q_layernorm",
        "blocks.*.attn.k_norm": "model.layers.*.self_attn.k_layernorm",
        "blocks.*.attn.o_proj": "model.layers.*.self_attn.dense",
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.dense_h_to_4h",
        "blocks.*.mlp.down_proj": "model.layers.*.mlp.dense_4h_to_h",
        "final_norm": "model.final_layernorm",
    }

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps)

    def architecture(self) -> Transformer:
        """Biases everywhere but on the head."""
        self.whole_heads()
        if self.num_key_value_heads != self.num_attention_heads:
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        norm = QKNorm(self.layer_norm_eps, kind="layer") if self.qk_layernorm else None
        attention = self.attention(qkv_bias=True, out_bias=True, qk_norm=norm)
        network = FeedForward(
            hidden=self.hidden_size, width=self.intermediate_size, bias=True, activation=self.activation
        )
        return self.decoder(self.equal_blocks(self.block(attention, network)))
