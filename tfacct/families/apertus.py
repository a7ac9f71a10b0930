"""Apertus: Qwen3's attention, and a network of two matrices whose activation has two learned numbers (xIELU)."""

from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.parts import FeedForward, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fields, Layers, Real, Switch, Word
from tfacct.families._endings import DECODER, TOKENS
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2025-09"

SCALING: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


class Config(LlamaLike):
    """`ApertusConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 131072
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 65536
    attention_bias: Switch = False
    hidden_act: Word = "xielu"
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 12_000_000.0
    rope_scaling: Fields | None = Field(default=SCALING)

    stems: ClassVar = ("Apertus",)
    uncounted: ClassVar = LlamaLike.uncounted - {"hidden_act"}
    heads: ClassVar = {**DECODER, "ForTokenClassification": TOKENS}
    harmless: ClassVar = frozenset({"qk_norm", "post_norm", "mlp_bias", "hidden_dropout"})
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn_norm": "model.layers.*.attention_layernorm",
        "blocks.*.mlp_norm": "model.layers.*.feedforward_layernorm",
        "blocks.*.mlp.act": "model.layers.*.mlp.act_fn",
    }
    hf_tensors: ClassVar = {
        "blocks.*.mlp.act.weight": "model.layers.*.mlp.act_fn.alpha_p",
        "blocks.*.mlp.act.bias": "model.layers.*.mlp.act_fn.alpha_n",
    }

    def architecture(self) -> Transformer:
        """attention_bias is on all four projections; the network has none."""
        biased = self.attention_bias
        attention = self.attention(qkv_bias=biased, out_bias=biased, qk_norm=QKNorm(self.rms_norm_eps))
        network = FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            activation=self.activation,
            bent=self.hidden_act == "xielu",
        )
        return self.decoder(self.equal_blocks(self.block(attention, network)))
