"""Nemotron Super and Ultra (DeciLM's code): Llama's block, without attention or the network in places."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, FeedForward, Head
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Layers, Real, Switch, even, share, shown
from tfacct.families._endings import CAUSAL_MODEL
from tfacct.families._layers import one_each
from tfacct.families._llama_like import LlamaLike

RELEASED = "2024-09"

MULTIPLE = 256
"""Widths are rounded up to multiples of this."""
NOTHING: Mapping[str, tuple[object, ...]] = {
    "sparsify": (None,),
    "num_sink_tokens": (None,),
    "unshifted_sink": (None, False),
    "use_prefill_window_in_sink_attention": (None, False),
    "window_length": (None,),
    "replace_with_linear": (None, False),
}
"""Fields of a part that change it, and the values with which they do not."""


class Layer(NamedTuple):
    """What one entry of `block_configs` has."""

    group: int | None
    """Query heads of each key head; None without attention."""
    width: int | None
    """Width of its network; None without one."""


class Config(LlamaLike):
    """`DeciLMConfig` of its own code, read in public copies. Its layers are those that block_configs lists."""

    num_key_value_heads: Count | None = None  # type: ignore[assignment]
    intermediate_size: Count | None = None  # type: ignore[assignment]
    head_dim: Count | None = Field(default=None)  # type: ignore[assignment]
    num_hidden_layers: Layers
    max_position_embeddings: Count = 2048
    rms_norm_eps: Real = 1e-6
    attention_bias: Switch = False
    mlp_bias: Switch = False
    block_configs: list[Fields]

    stems: ClassVar = ("DeciLM",)
    heads: ClassVar = {"ForCausalLM": CAUSAL_MODEL}
    hf_paths: ClassVar[dict[str, str]] = {}
    uncounted: ClassVar = LlamaLike.uncounted | {"num_key_value_heads", "intermediate_size", "head_dim"}

    def listed(self) -> list[Layer]:
        """Each layer, as block_configs has it. Raises ConfigError."""
        given, layers = self.block_configs, self.num_hidden_layers
        one_each("block_configs", given, layers)
        if self.num_key_value_heads is not None or self.intermediate_size is not None:
            name = "num_key_value_heads" if self.num_key_value_heads is not None else "intermediate_size"
            raise ConfigError(f"{name} = {getattr(self, name)} contradicts block_configs, which has one for each layer")
        return [Layer(self._group(number, entry), self._width(number, entry)) for number, entry in enumerate(given)]

    def _group(self, number: int, entry: Mapping[str, Any]) -> int | None:
        part = _part(number, entry, "attention")
        if part is None:
            return None
        group = part.get("n_heads_in_group")
        if not isinstance(group, int) or isinstance(group, bool) or group < 1:
            raise _not_understood(number, "attention.n_heads_in_group", group)
        return group

    def _width(self, number: int, entry: Mapping[str, Any]) -> int | None:
        part = _part(number, entry, "ffn")
        if part is None:
            return None
        times = part.get("ffn_mult")
        if not isinstance(times, (int, float)) or isinstance(times, bool) or not 0 < times <= 1_000:
            raise _not_understood(number, "ffn.ffn_mult", times)
        width = int(2 * times * self.hidden_size / 3)  # as its code does it, in floating point
        return -(-width // MULTIPLE) * MULTIPLE

    def of_layer(self, layer: Layer) -> Block | None:
        """The block of a layer; None if it has no part. Raises ConfigError."""
        parts: list[Attention | FeedForward] = []
        heads, hidden = self.num_attention_heads, self.hidden_size
        if layer.group is not None:
            attention = Attention(
                hidden=hidden,
                kv_heads=share(heads, layer.group, "num_attention_heads by n_heads_in_group"),
                group=layer.group,
                head_dim=even(share(hidden, heads, "hidden_size by num_attention_heads")),
                rotary=self.rotary(),
                qkv_bias=self.attention_bias,
                out_bias=self.attention_bias,
            )
            parts.append(attention)
        if layer.width is not None:
            network = FeedForward(
                hidden=hidden, width=layer.width, gated=True, bias=self.mlp_bias, activation=self.activation
            )
            parts.append(network)
        return Block.of(*parts, norm=self.norm()) if parts else None

    def architecture(self) -> Transformer:
        """Layers as they are listed. Raises ConfigError."""
        layers = self.listed()
        kinds = {layer: self.of_layer(layer) for layer in dict.fromkeys(layers)}
        blocks = [block for layer in layers if (block := kinds[layer]) is not None]
        if not blocks:
            raise ConfigError("block_configs lists no layer with attention or a network")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size),
            stacks=stacks(blocks),
            final_norm=self.norm(),
            head=Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=self.tie_word_embeddings),
        )


def _part(number: int, entry: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Fields of one part of a layer; None if it has none. Raises ConfigError."""
    part = entry.get(name)
    if not isinstance(part, dict):
        raise _not_understood(number, name, part)
    if part.get("no_op") is True:
        return None
    for field, value in part.items():
        if field not in ("no_op", "n_heads_in_group", "ffn_mult") and value not in NOTHING.get(field, (None, False)):
            raise _not_understood(number, f"{name}.{field}", value)
    return part


def _not_understood(number: int, name: str, value: object) -> ConfigError:
    return ConfigError(f"block_configs[{number}].{name} = {shown(value)} is not understood")
