"""Chameleon's language model: Llama, with a LayerNorm of each head's queries and keys."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Sublayer
from tfacct.architecture.parts import QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch
from tfacct.families._endings import Ending
from tfacct.families._llama_like import QK_NORM_PATHS, LlamaLike

RELEASED = "2024-05"

EPS = 1e-5
"""What the norms of heads have, whatever rms_norm_eps is."""
TOKENIZER = {"base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1, "embed_dim": 4, "num_embeddings": 4}


class Config(LlamaLike):
    """`ChameleonConfig`, with its class's defaults, less what makes tokens of images."""

    vocab_size: Count = 65536
    hidden_size: Count = 4096
    intermediate_size: Count = 11008
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 4096
    rms_norm_eps: Real = 1e-5
    attention_bias: Switch = False
    mlp_bias: Switch = False
    swin_norm: Switch = False

    class_type: ClassVar = "chameleon"
    stems: ClassVar = ("Chameleon",)
    heads: ClassVar[Mapping[str, Ending]] = {
        "ForConditionalGeneration": Ending("ChameleonForConditionalGeneration"),
    }
    harmless: ClassVar = frozenset({"model_parallel_size", "vocabulary_map"})
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **QK_NORM_PATHS,
        "blocks.*.attn_post_norm": "model.layers.*.input_layernorm",
        "blocks.*.mlp_post_norm": "model.layers.*.post_attention_layernorm",
    }

    def class_fields(self) -> Mapping[str, Any]:
        """Something small that makes tokens of images, and a name for such a token."""
        return {"vq_config": TOKENIZER, "vocabulary_map": {"<image>": 0}}

    def architecture(self) -> Transformer:
        """Equal blocks, their norms in front or behind."""
        self.whole_heads()
        norm = QKNorm(EPS, kind="layer", own=True)
        biased = {"qkv_bias": self.attention_bias, "out_bias": self.attention_bias}
        block = self.block(self.attention(qk_norm=norm, **biased), self.feed_forward(bias=self.mlp_bias))
        if self.swin_norm:
            behind = (Sublayer(each.part, post_norm=self.norm()) for each in block.sublayers)
            block = replace(block, sublayers=tuple(behind))
        return self.decoder(self.equal_blocks(block))
