"""Bamba: Mamba-2 in most layers, grouped-query attention with half of each head rotated in a few."""

from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Mamba2
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Layers, Real, Switch, UpTo, even
from tfacct.families._endings import DECODER
from tfacct.families._mamba_hybrid import FULL, MAMBA, MambaHybrid

RELEASED = "2024-12"

NETWORK = ("gate_proj", "up_proj", "down_proj")


class Config(MambaHybrid):
    """`BambaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 128000
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 262144
    rms_norm_eps: Real = 1e-5
    attn_layer_indices: list[UpTo] | None = None
    attention_bias: Switch = False
    mlp_bias: Switch = False

    stems: ClassVar = ("Bamba",)
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    harmless: ClassVar = MambaHybrid.harmless | {"attn_rotary_emb"}
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **MambaHybrid.hf_paths,
        "blocks.*.mlp_norm": "model.layers.*.pre_ff_layernorm",
        **{f"blocks.*.mlp.{name}": f"model.layers.*.feed_forward.{name}" for name in NETWORK},
        "final_norm": "model.final_layernorm",
    }
    gotchas: ClassVar = (
        "attn_layer_indices names the layers with attention; all others have Mamba-2. Half of each head is rotated.",
        "Mamba-2 runs in chunks of mamba_chunk_size, padded to whole ones, as the class runs it without a kernel; the"
        " token of a decode step is taken by itself. Its state is kept in fp32.",
    )

    def kinds(self) -> list[str]:
        """Attention where attn_layer_indices says so."""
        attends = self.attn_layer_indices or []
        return [FULL if number in attends else MAMBA for number in range(self.num_hidden_layers)]

    def architecture(self) -> Transformer:
        """One network in all layers."""
        biased, network = self.attention_bias, self.feed_forward(bias=self.mlp_bias)
        attention = self.attention(qkv_bias=biased, out_bias=biased, rope_dim=even(self.head_dim // 2))
        parts: dict[str, Attention | Mamba2] = {FULL: attention, MAMBA: self.mixer()}
        made = {kind: Block.of(part, network, norm=self.norm()) for kind, part in parts.items()}
        return self.decoder([made[kind] for kind in self.kinds()])
