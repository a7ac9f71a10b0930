"""Voxtral's encoder of audio: Whisper's, without a decoder."""

from typing import Any, ClassVar

from tfacct.architecture.parts import Positions, Stem
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import Tower

RELEASED = "2025-07"

LAYER = "layers.*"


class Config(Tower):
    """`VoxtralEncoderConfig`, with its class's defaults."""

    hidden_size: Count = 1280
    intermediate_size: Count = 5120
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 20
    num_mel_bins: Count = 128
    max_source_positions: Count = 1500
    activation_function: Word = "gelu"
    own_head_dim: Count | None = None

    stems: ClassVar = ("Voxtral",)
    body: ClassVar = ""
    aliases: ClassVar = {
        "d_model": "hidden_size",
        "encoder_layers": "num_hidden_layers",
        "encoder_attention_heads": "num_attention_heads",
        "encoder_ffn_dim": "intermediate_size",
        "num_key_value_heads": "num_attention_heads",
        "head_dim": "own_head_dim",
    }
    uncounted: ClassVar = Tower.uncounted | {"activation_function", "own_head_dim"}
    harmless: ClassVar = Tower.harmless | {"vocab_size", "scale_embedding", "layerdrop", "encoder_layerdrop"}
    class_source_whole: ClassVar = True
    fixed: ClassVar = Tower.fixed | {"Fp", "Kf"}  # the stem's convolutions
    heads: ClassVar = {"Encoder": Ending("AutoModel", "none")}
    hf_paths: ClassVar = {
        **{f"embed.conv{i}": f"conv{i}" for i in (1, 2)},
        "pos_embed": "embed_positions",
        **{f"blocks.*.attn.{name}_proj": f"{LAYER}.self_attn.{name}_proj" for name in "qkv"},
        **{f"blocks.*.attn.{name}": f"{LAYER}.self_attn" for name in ("scores", "values")},
        "blocks.*.attn.o_proj": f"{LAYER}.self_attn.out_proj",
        "blocks.*.attn_norm": f"{LAYER}.self_attn_layer_norm",
        "blocks.*.mlp.up_proj": f"{LAYER}.fc1",
        "blocks.*.mlp.down_proj": f"{LAYER}.fc2",
        "blocks.*.mlp_norm": f"{LAYER}.final_layer_norm",
        "final_norm": "layer_norm",
    }

    @property
    def context(self) -> int:
        """max_source_positions."""
        return self.max_source_positions

    def architecture(self) -> Transformer:
        """A stem, positions, pre-norm blocks and a norm. Raises ConfigError."""
        if self.own_head_dim not in (None, self.head_dim):
            raise self.refused("head_dim", self.own_head_dim)
        hidden = self.hidden_size
        return Transformer(
            embed=Stem(bins=self.num_mel_bins, hidden=hidden),
            positions=Positions(rows=self.max_source_positions, hidden=hidden, trained=False),
            stacks=(self.stack(key_bias=False),),
            head=None,
            **self.behind(),
        )

    def behind(self) -> dict[str, Any]:
        """What stands behind the blocks: a norm."""
        return {"final_norm": self.norm()}
