"""Qwen3: Llama's block with a norm over each query and each key head, and its own head size."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.parts import QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch
from tfacct.families._llama_like import QK_NORM_PATHS
from tfacct.families._qwen_like import QwenLike

RELEASED = "2025-04"


class Config(QwenLike):
    """`Qwen3Config`, with its class's defaults. An absent head_dim is 128, whatever the hidden size."""

    head_dim: Count = 128
    attention_bias: Switch = False

    inside: ClassVar[Mapping[str, int]] = {
        "vocab_size": 151936,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    }
    in_files: ClassVar = (  # Cosmos 3's
        (r"\.self_attn\.(to_([qkv])|to_(o)ut)\.", r".self_attn.\2\3_proj."),
        (r"\.self_attn\.norm_([qk])\.", r".self_attn.\1_norm."),
    )
    stems: ClassVar = ("Qwen3",)
    hf_paths: ClassVar = {
        **QwenLike.hf_paths,
        **QK_NORM_PATHS,
    }

    def architecture(self) -> Transformer:
        """Norms of queries and keys; biases on all four projections where attention_bias says so."""
        biased, network, norm = self.attention_bias, self.feed_forward(), QKNorm(self.rms_norm_eps)
        per_layer = self.windows()
        kinds = {
            window: self.block(self.attention(qkv_bias=biased, out_bias=biased, qk_norm=norm, window=window), network)
            for window in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[window] for window in per_layer])
