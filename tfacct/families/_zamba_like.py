"""Families of Mamba layers of which some call a transformer block in front of it, whose weights those layers share."""

from collections.abc import Mapping, Sequence
from typing import Any

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Embedding, Head, Mixer, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import even, share
from tfacct.families._layers import kinds_of_layers
from tfacct.families._llama_like import LlamaLike

MAMBA, HYBRID = "linear_attention", "hybrid"
OLDER: Mapping[str, str] = {"mamba": MAMBA}
SHARED = (
    *("attn_norm", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj"),
    *("mlp_norm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)
"""Tensors that layers share: all of the block's but its adapters."""


def head_dim_from(fields: dict[str, Any]) -> int:
    """2 · hidden_size / num_attention_heads, for a head reads two vectors side by side."""
    return share(2 * fields["hidden_size"], fields["num_attention_heads"], "2 · hidden_size by num_attention_heads")


class ZambaLike(LlamaLike):
    """Blocks that are shared, and the layers that call them."""

    def listed(self) -> Sequence[str]:
        """What each layer is, as the config says it or the class has it."""
        raise NotImplementedError

    def mixer(self) -> Mixer:
        """The mixer of every layer. Raises ConfigError."""
        raise NotImplementedError

    def hybrid(self) -> Block:
        """A layer with a shared block in front of Mamba. Raises ConfigError."""
        raise NotImplementedError

    def turns(self) -> list[list[int]]:
        """Numbers of the layers that call each shared block."""
        calls = self.calls()
        return [calls] if calls else []

    def kinds(self) -> list[str]:
        """What each layer is. Raises ConfigError."""
        named = [OLDER.get(name, name) for name in self.listed()]
        return kinds_of_layers(named, self.num_hidden_layers, (HYBRID, MAMBA), "layers_block_type")

    def calls(self) -> list[int]:
        """Numbers of the layers that call a shared block."""
        return [number for number, kind in enumerate(self.kinds()) if kind == HYBRID]

    def architecture(self) -> Transformer:
        """Layers of Mamba alone, and a stack of hybrid ones for each shared block. Raises ConfigError."""
        if not self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", False)
        alone = [number for number, kind in enumerate(self.kinds()) if kind == MAMBA]
        found = [Stack(self.hybrid(), len(own), tuple(own), shared=SHARED) for own in self.turns()]
        if alone:
            found.append(Stack(Block.of(self.mixer(), norm=self.norm()), len(alone), tuple(alone)))
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size),
            stacks=tuple(sorted(found, key=lambda stack: stack.numbers[0])),
            final_norm=self.norm(),
            head=Head(hidden=self.hidden_size, vocab=self.vocab_size, tied=True),
        )

    def of_both(self, wide: int | None, *, rotary: Rotary | None = None, **own: Any) -> Attention:
        """Attention of a shared block: over the stream and the token's row of the table, which are as `wide` as the
        config says, if it does. Raises ConfigError."""
        heads, kv_heads, size = self.num_attention_heads, self.num_key_value_heads, self.head_dim
        if heads * size != 2 * self.hidden_size:
            raise ConfigError(f"head_dim = {size:,} contradicts 2 · hidden_size / num_attention_heads")
        if wide not in (None, 2 * self.hidden_size):
            raise ConfigError(
                f"attention_hidden_size = {wide:,} contradicts 2 · hidden_size = {2 * self.hidden_size:,}"
            )
        return Attention(
            hidden=self.hidden_size,
            kv_heads=kv_heads,
            group=share(heads, kv_heads, "num_attention_heads by num_key_value_heads"),
            head_dim=size if rotary is None else even(size),
            rotary=rotary,
            scale=(size / 2) ** -0.5,
            joined=True,
            **own,
        )
