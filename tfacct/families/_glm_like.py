"""Shared by GLM-4's families: Llama's block, half of each head rotated by neighbours, biases on q, k and v."""

from typing import ClassVar

from tfacct.architecture.parts import Rotary
from tfacct.families._base import Count, Fraction, Layers, Real, Switch
from tfacct.families._part_rotated import PartRotated


class GlmLike(PartRotated):
    """The fields that both spell alike, with their classes' defaults, sizes too."""

    vocab_size: Count = 151552
    hidden_size: Count = 4096
    intermediate_size: Count = 13696
    num_hidden_layers: Layers = 40
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 2
    head_dim: Count = 128
    max_position_embeddings: Count = 131072
    partial_rotary_factor: Fraction = 0.5
    attention_bias: Switch = True
    rms_norm_eps: Real = 1.5625e-07

    hf_paths: ClassVar = {
        **PartRotated.hf_paths,
        "blocks.*.mlp.gate_proj": "model.layers.*.mlp.gate_up_proj",
        "blocks.*.mlp.up_proj": "model.layers.*.mlp.gate_up_proj",
    }

    def rotary(self) -> Rotary:
        """Neighbouring elements turn together."""
        return PartRotated.rotary(self)._replace(pairs="neighbours")
