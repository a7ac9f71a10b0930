"""DiffLlama: Llama's block, with heads that are subtracted from one another in pairs."""

from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.parts import DifferentialAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch, even, share
from tfacct.families._llama_like import LlamaLike

RELEASED = "2024-10"
ATTENTION = "model.layers.*.self_attn"


def kv_heads_from(fields: dict[str, Any]) -> int:
    """As many key heads as query heads."""
    heads: int = fields["num_attention_heads"]
    return heads


class Config(LlamaLike):
    """`DiffLlamaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    hidden_size: Count = 2048
    intermediate_size: Count = 8192
    num_hidden_layers: Layers = 16
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=kv_heads_from)
    max_position_embeddings: Count = 2048
    rms_norm_eps: Real = 1e-5
    attention_bias: Switch = False

    stems: ClassVar = ("DiffLlama",)
    harmless: ClassVar = frozenset({"lambda_std_dev"})
    dropouts: ClassVar = {"attention": ("attention_dropout", 0.0)}
    hf_paths: ClassVar = {
        **LlamaLike.hf_paths,
        **{f"blocks.*.attn.second_{name}": ATTENTION for name in ("scores", "values")},
    }
    hf_tensors: ClassVar = {
        f"blocks.*.attn.{which}_lambda.{ours}": f"{ATTENTION}.lambda_{theirs}{number}"
        for number, which in enumerate(("first", "second"), 1)
        for ours, theirs in (("weight", "q"), ("bias", "k"))
    }

    def architecture(self) -> Transformer:
        """Biases at all four products of attention where attention_bias says so. Raises ConfigError."""
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        if kv_heads % 2:
            raise ConfigError(f"num_key_value_heads = {kv_heads:,} must be even: values are halved between them")
        attention = DifferentialAttention(
            hidden=self.hidden_size,
            kv_heads=kv_heads,
            group=share(heads, kv_heads, "num_attention_heads by num_key_value_heads"),
            head_dim=even(self.head_dim),
            rotary=self.rotary(),
            qkv_bias=self.attention_bias,
            out_bias=self.attention_bias,
            eps=self.rms_norm_eps,
        )
        return self.decoder(self.equal_blocks(self.block(attention, self.feed_forward())))
