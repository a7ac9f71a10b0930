"""Qwen 1: Llama's block with biases on q, k and v, in one matrix; intermediate_size is twice the network's width."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.parts import FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Switch
from tfacct.families._endings import DECODER
from tfacct.families._part_rotated import PartRotated

RELEASED = "2023-08"


class Config(PartRotated):
    """`QWenConfig` of its own code, with its defaults, sizes too: transformers has no class for it."""

    vocab_size: Count = 151936
    hidden_size: Count = 4096
    intermediate_size: Count = 22016
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    head_dim: Count = 128
    max_position_embeddings: Count = 8192
    partial_rotary_factor: Fraction = 1.0
    no_bias: Switch = True
    use_cache_quantization: Switch = False

    stems: ClassVar = ("QWen", "Qwen2")
    in_files: ClassVar = (
        (r"^transformer\.wte\.", "model.embed_tokens."),
        (r"^transformer\.h\.", "model.layers."),
        (r"^transformer\.ln_f\.", "model.norm."),
        (r"\.attn\.c_attn\.", ".self_attn.qkv_proj."),
        (r"\.attn\.c_proj\.", ".self_attn.o_proj."),
        (r"\.ln_1\.", ".input_layernorm."),
        (r"\.ln_2\.", ".post_attention_layernorm."),
        (r"\.mlp\.w1\.", ".mlp.up_proj."),
        (r"\.mlp\.w2\.", ".mlp.gate_proj."),
        (r"\.mlp\.c_proj\.", ".mlp.down_proj."),
    )
    class_type: ClassVar = "qwen2"
    fixed: ClassVar = frozenset("G")
    uncounted: ClassVar = PartRotated.uncounted | {"no_bias", "use_cache_quantization"}
    aliases: ClassVar = {
        "kv_channels": "head_dim",
        "layer_norm_epsilon": "rms_norm_eps",
        "rotary_pct": "partial_rotary_factor",
        "rotary_emb_base": "rope_theta",
    }
    heads: ClassVar = DECODER
    harmless: ClassVar = frozenset(
        """
        attn_dropout_prob emb_dropout_prob bf16 fp16 fp32 onnx_safe padded_vocab_size params_dtype scale_attn_weights
        softmax_in_fp32 tokenizer_type use_cache_kernel use_dynamic_ntk use_flash_attn use_logn_attn
        """.split()
    )

    @property
    def width(self) -> int:
        """Width of the network."""
        return self.intermediate_size // 2

    def architecture(self) -> Transformer:
        """Biases on q, k and v; none on o and in the network. Raises ConfigError."""
        self.whole_heads()
        understood = {"num_key_value_heads": self.num_attention_heads, "no_bias": True, "use_cache_quantization": False}
        for name, value in understood.items():
            if getattr(self, name) != value:
                raise self.refused(name, getattr(self, name))
        if self.width == 0:
            raise self.refused("intermediate_size", self.intermediate_size)
        network = FeedForward(hidden=self.hidden_size, width=self.width, gated=True, activation=self.activation)
        return self.decoder(self.equal_blocks(self.block(self.attention(qkv_bias=True), network)))

    def class_fields(self) -> Mapping[str, Any]:
        """Its fields, with their defaults, by Qwen2's names."""
        own = ("no_bias", "use_cache_quantization", "partial_rotary_factor")
        fields = self.model_dump(exclude=set(own), exclude_none=True)
        return {**fields, "intermediate_size": self.width}
