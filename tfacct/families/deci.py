"""DeciLM: Llama's block, with key heads of each layer's own."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import Attention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Switch, even, share
from tfacct.families._endings import CAUSAL_MODEL
from tfacct.families._layers import one_each
from tfacct.families._llama_like import LlamaLike, head_dim_from

RELEASED = "2023-12"


class Config(LlamaLike):
    """`DeciLMConfig` of its own code of 2023, read in public copies. No size has a default."""

    num_key_value_heads_per_layer: list[Count]
    num_key_value_heads: Count | None = None  # type: ignore[assignment]
    head_dim: Count = Field(default_factory=head_dim_from)
    attention_bias: Switch = False

    stems: ClassVar = ("DeciLM",)
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL}
    hf_paths: ClassVar[dict[str, str]] = {}
    uncounted: ClassVar = LlamaLike.uncounted | {"num_key_value_heads"}

    def of_layer(self, kv_heads: int) -> Attention:
        """Attention of a layer with so many key heads. Raises ConfigError."""
        self.whole_heads()
        biased = self.attention_bias
        return Attention(
            hidden=self.hidden_size,
            kv_heads=kv_heads,
            group=share(self.num_attention_heads, kv_heads, "num_attention_heads by key heads of a layer"),
            head_dim=even(self.head_dim),
            rotary=self.rotary(),
            qkv_bias=biased,
            out_bias=biased,
        )

    def architecture(self) -> Transformer:
        """Equal networks; key heads as the list says. Raises ConfigError."""
        given, layers = self.num_key_value_heads_per_layer, self.num_hidden_layers
        one_each("num_key_value_heads_per_layer", given, layers)
        # Its config class is Llama's, which writes as many as there are heads; its code reads the list alone.
        if self.num_key_value_heads not in (None, self.num_attention_heads):
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        kinds = {heads: self.block(self.of_layer(heads), self.feed_forward()) for heads in dict.fromkeys(given)}
        return self.decoder([kinds[heads] for heads in given])
