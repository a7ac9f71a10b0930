"""StableLM: Llama's products, with LayerNorms, biases on q, k and v on demand, and a part of each head rotated."""

from typing import ClassVar

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Norm, QKNorm
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fraction, Layers, Real, Switch
from tfacct.families._part_rotated import PartRotated

RELEASED = "2023-09"


class Config(PartRotated):
    """`StableLmConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 50304
    hidden_size: Count = 2560
    intermediate_size: Count = 6912
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 4096
    partial_rotary_factor: Fraction = 0.25
    layer_norm_eps: Real = 1e-5
    use_qkv_bias: Switch = False
    qk_layernorm: Switch = False
    use_parallel_residual: Switch = False

    dropouts: ClassVar = {"mlp": ("hidden_dropout", 0.0), "attention": ("attention_dropout", 0.0)}
    stems: ClassVar = ("StableLm", "StableLM", "StableLMEpoch")  # older files write LM, the first ones Epoch
    uncounted: ClassVar = PartRotated.uncounted | {"layer_norm_eps"}
    aliases: ClassVar = {"norm_eps": "layer_norm_eps", "rope_pct": "partial_rotary_factor"}
    hf_paths: ClassVar = {
        **PartRotated.hf_paths,
        "blocks.*.attn.q_norm": "model.layers.*.self_attn.q_layernorm",
        "blocks.*.attn.k_norm": "model.layers.*.self_attn.k_layernorm",
    }

    def norm(self) -> Norm:
        """LayerNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="layer", eps=self.layer_norm_eps)

    def architecture(self) -> Transformer:
        """A norm each, or side by side behind one."""
        self.whole_heads()
        norm = QKNorm(self.layer_norm_eps, kind="layer", own=True, shift=False) if self.qk_layernorm else None
        attention, network = self.attention(qkv_bias=self.use_qkv_bias, qk_norm=norm), self.feed_forward()
        block = self.block(attention, network)
        if self.use_parallel_residual:
            block = Block((Sublayer(attention, self.norm()), Sublayer(network)), "parallel")
        return self.decoder(self.equal_blocks(block))
