"""OpenELM: heads and widths that grow from layer to layer, norms of queries and keys, a tied head."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head, Norm, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, even, share
from tfacct.families._endings import CAUSAL_MODEL
from tfacct.families._layers import one_each

RELEASED = "2024-04"

EPS = 1e-6
ACTIVATIONS = {"swish": "silu"}
"""Names that its code has for what others call otherwise."""


class Layer(NamedTuple):
    """Sizes of one layer."""

    queries: int
    keys: int
    width: int


class Config(FamilyConfig):
    """`OpenELMConfig` of its own code, read in public copies, as its files spell it: with a number for each layer."""

    vocab_size: Count
    model_dim: Count
    num_transformer_layers: Layers
    head_dim: Count
    max_context_length: Count
    num_query_heads: list[Count]
    num_kv_heads: list[Count]
    ffn_multipliers: list[Real]
    ffn_dim_divisor: Count
    ffn_with_glu: Switch
    normalize_qk_projections: Switch
    share_input_output_layers: Switch
    activation_fn_name: Word = "swish"
    normalization_layer_name: Word = "rms_norm"
    rope_freq_constant: Real = 10_000

    stems: ClassVar = ("OpenELM",)
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL}
    uncounted: ClassVar = frozenset({"activation_fn_name", "normalization_layer_name", "rope_freq_constant"})
    harmless: ClassVar = frozenset({"num_gqa_groups", "qkv_multipliers", "rope_max_length"})
    aliases: ClassVar[Mapping[str, str]] = {
        "hidden_size": "model_dim",
        "num_hidden_layers": "num_transformer_layers",
        "max_position_embeddings": "max_context_length",
    }

    @property
    def context(self) -> int:
        """max_context_length."""
        return self.max_context_length

    def width(self, times: float) -> int:
        """Width of a network so many times as wide as the model."""
        wanted, divisor = times * self.model_dim, self.ffn_dim_divisor
        width = max(divisor, int(wanted + divisor / 2) // divisor * divisor)
        return width + divisor if width < 0.9 * wanted else width

    def listed(self) -> list[Layer]:
        """Sizes of each layer. Raises ConfigError."""
        lists = {name: getattr(self, name) for name in ("num_query_heads", "num_kv_heads", "ffn_multipliers")}
        for name, given in lists.items():
            one_each(name, given, self.num_transformer_layers, of="num_transformer_layers")
        widths = (self.width(times) for times in self.ffn_multipliers)
        return [Layer(*sizes) for sizes in zip(self.num_query_heads, self.num_kv_heads, widths, strict=True)]

    def of_layer(self, layer: Layer) -> Block:
        """A pre-norm block. Raises ConfigError."""
        hidden = self.model_dim
        attention = Attention(
            hidden=hidden,
            kv_heads=layer.keys,
            group=share(layer.queries, layer.keys, "num_query_heads of a layer by its num_kv_heads"),
            head_dim=even(self.head_dim),
            rotary=Rotary(self.rope_freq_constant),
            qk_norm=QKNorm(EPS) if self.normalize_qk_projections else None,
        )
        activation = ACTIVATIONS.get(self.activation_fn_name, self.activation_fn_name)
        network = FeedForward(hidden=hidden, width=layer.width, gated=self.ffn_with_glu, activation=activation)
        return Block.of(attention, network, norm=self.norm())

    def norm(self) -> Norm:
        """RMSNorm over the hidden size. Raises ConfigError."""
        if self.normalization_layer_name != "rms_norm":
            raise self.refused("normalization_layer_name", self.normalization_layer_name)
        return Norm(hidden=self.model_dim, kind="rms", eps=EPS)

    def architecture(self) -> Transformer:
        """Layers as the lists say. Raises ConfigError."""
        layers = self.listed()
        kinds = {layer: self.of_layer(layer) for layer in dict.fromkeys(layers)}
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.model_dim),
            stacks=stacks([kinds[layer] for layer in layers]),
            final_norm=self.norm(),
            head=Head(hidden=self.model_dim, vocab=self.vocab_size, tied=self.share_input_output_layers),
        )
