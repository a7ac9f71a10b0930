"""Llama 3.2 Vision's language model: Llama's blocks, and between them some that attend to an image's patches."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import CrossAttention, Embedding
from tfacct.architecture.transformer import Encoder, Transformer
from tfacct.families._base import Checked, Count, Layers, Real
from tfacct.families._endings import Ending
from tfacct.families._llama_like import LlamaLike

RELEASED = "2024-09"

Numbers: TypeAlias = Annotated[list[int], Checked(core_schema.list_schema(core_schema.int_schema(strict=True)))]
CROSSING = [3, 8, 13, 18, 23, 28, 33, 38]
"""Layers that attend to an image where a config does not say which."""
MORE_ROWS = 8
"""Rows of the token table behind the vocabulary's, of which the head has none."""
IMAGE = 4 * 1601
"""States of an image of four tiles, each of (560 / 14)² patches and a class token."""

CROSS = {f"blocks.*.cross.{name}": f"model.layers.*.cross_attn.{name}" for name in ("q_proj", "k_proj", "v_proj")}
CROSS |= {f"blocks.*.cross.{name}": f"model.layers.*.cross_attn.{name}" for name in ("o_proj", "q_norm", "k_norm")}
CROSS |= {f"blocks.*.cross.{name}": "model.layers.*.cross_attn" for name in ("scores", "values")}


class Config(LlamaLike):
    """`MllamaTextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 128256
    hidden_size: Count = 4096
    num_hidden_layers: Layers = 40
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    intermediate_size: Count = 14336
    max_position_embeddings: Count = 131072
    cross_attention_layers: Numbers | None = CROSSING
    rms_norm_eps: Real = 1e-5
    rope_theta: Real | None = 500_000.0

    stems: ClassVar = ("Mllama", "MllamaText")
    dropouts: ClassVar = {}
    heads: ClassVar[Mapping[str, Ending]] = {
        "ForCausalLM": Ending("MllamaForCausalLM"),
        "Model": Ending("MllamaTextModel", "none", body=""),
    }
    hf_paths: ClassVar = {**LlamaLike.hf_paths, **CROSS, "blocks.*.cross_norm": "model.layers.*.input_layernorm"}
    hf_tensors: ClassVar = {
        "blocks.*.cross_add.gate.weight": "model.layers.*.cross_attn_attn_gate",
        "blocks.*.mlp_add.gate.weight": "model.layers.*.cross_attn_mlp_gate",
    }

    @property
    def source(self) -> int:
        """States of one image."""
        return IMAGE

    @property
    def crossing(self) -> frozenset[int]:
        """Numbers of the layers that attend to an image."""
        named = CROSSING if self.cross_attention_layers is None else self.cross_attention_layers
        return frozenset(named) & frozenset(range(self.num_hidden_layers))

    def class_cannot(self) -> str | None:
        """It takes what its first layer keeps for the past, and that may be an image's."""
        first = 0 in self.crossing
        return "it counts the past in its first layer, which keeps an image's states here" if first else None

    def architecture(self) -> Transformer:
        """Two kinds of blocks; one that attends to an image has no self-attention and no positions."""
        self.whole_heads()
        if self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", True)
        attention, norm = self.attention(), self.norm()
        sizes: dict[str, Any] = {name: getattr(attention, name) for name in ("hidden", "kv_heads", "group", "head_dim")}
        cross = CrossAttention(**sizes, qk_norm=self.rms_norm_eps)
        plain = self.block(attention, self.feed_forward())
        reading = Block((Sublayer(cross, norm, gated=True), Sublayer(self.feed_forward(), norm, gated=True)))
        crossing = self.crossing
        return self.decoder(
            [reading if number in crossing else plain for number in range(self.num_hidden_layers)],
            embed=Embedding(vocab=self.vocab_size, hidden=self.hidden_size, rows=self.vocab_size + MORE_ROWS),
            encoder=Encoder(None, ()) if crossing else None,
        )
