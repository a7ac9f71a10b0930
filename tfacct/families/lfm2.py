"""LFM2: gated short convolutions in most layers, grouped-query attention with normed queries and keys in the others."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Experts, FeedForward, Norm, QKNorm, ShortConvolution
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Real, Switch, UpTo
from tfacct.families._endings import DECODER
from tfacct.families._layers import FULL, LayerTypes, kinds_of_layers
from tfacct.families._llama_like import LlamaLike
from tfacct.families._mixing import convolved_more
from tfacct.ledger.workload import Workload

RELEASED = "2025-07"

CONV = "conv"


class Lfm2Like(LlamaLike):
    """The fields that both families spell alike, and their attention and convolutions."""

    vocab_size: Count = 65536
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 128_000
    tie_word_embeddings: Switch = True
    rope_theta: Real | None = 1_000_000.0
    norm_eps: Real = 1e-5
    conv_bias: Switch = False
    conv_L_cache: Count = 3  # noqa: N815

    uncounted: ClassVar = LlamaLike.uncounted | {"norm_eps"}
    harmless: ClassVar = frozenset(
        """
        conv_dim conv_dim_out conv_use_xavier_init use_pos_enc block_dim block_mlp_init_scale block_norm_eps
        block_out_init_scale block_use_swiglu block_use_xavier_init theta
        """.split()
    )
    aliases: ClassVar = {"tie_embedding": "tie_word_embeddings"}
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        "blocks.*.attn_norm": "model.layers.*.operator_norm",
        "blocks.*.attn.q_proj": "model.layers.*.self_attn.q_proj",
        "blocks.*.attn.k_proj": "model.layers.*.self_attn.k_proj",
        "blocks.*.attn.v_proj": "model.layers.*.self_attn.v_proj",
        "blocks.*.attn.q_norm": "model.layers.*.self_attn.q_layernorm",
        "blocks.*.attn.k_norm": "model.layers.*.self_attn.k_layernorm",
        "blocks.*.attn.scores": "model.layers.*.self_attn",
        "blocks.*.attn.values": "model.layers.*.self_attn",
        "blocks.*.attn.o_proj": "model.layers.*.self_attn.out_proj",
        "blocks.*.conv_norm": "model.layers.*.operator_norm",
        "blocks.*.conv.in_proj": "model.layers.*.conv.in_proj",
        "blocks.*.conv.conv": "model.layers.*.conv",
        "blocks.*.conv.out_proj": "model.layers.*.conv.out_proj",
        "blocks.*.mlp_norm": "model.layers.*.ffn_norm",
        "blocks.*.mlp.gate_proj": "model.layers.*.feed_forward.w1",
        "blocks.*.mlp.up_proj": "model.layers.*.feed_forward.w3",
        "blocks.*.mlp.down_proj": "model.layers.*.feed_forward.w2",
        "final_norm": "model.embedding_norm",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar = {
        "blocks.*.conv.conv.weight": "model.layers.*.conv.conv.weight",
        "blocks.*.conv.conv.bias": "model.layers.*.conv.conv.bias",
    }
    class_extra: ClassVar = "it convolves more positions than there are new tokens, and drops what it padded"

    def norm(self) -> Norm:
        """RMSNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.norm_eps)

    def mixed(self, kinds: list[str], networks: list[FeedForward | Experts]) -> Transformer:
        """Convolution or attention in front of each layer's network."""
        attention = self.attention(qk_norm=QKNorm(self.norm_eps))
        mixer = ShortConvolution(hidden=self.hidden_size, kernel=self.conv_L_cache, bias=self.conv_bias)
        per_layer = list(zip(kinds, networks, strict=True))
        made = {
            (kind, network): Block.of(mixer if kind == CONV else attention, network, norm=self.norm())
            for kind, network in dict.fromkeys(per_layer)
        }
        return self.decoder([made[layer] for layer in per_layer])

    def class_cannot(self) -> str | None:
        """It needs a layer with attention, whose cache tells it how many tokens came before."""
        attends = self.transformer().attentions
        return None if attends else "it does not run without a layer that has attention"

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return {"blocks.*.conv.conv": convolved_more(self.conv_L_cache, work.tokens, work.context)}


class Config(Lfm2Like):
    """`Lfm2Config`, with its class's defaults, sizes too. The head is tied unless the config says otherwise."""

    hidden_size: Count = 2560
    intermediate_size: Count = 12288
    block_ff_dim: Count | None = None
    block_auto_adjust_ff_dim: Switch = True
    block_ffn_dim_multiplier: Real = 1.0
    block_multiple_of: Count = 256
    layer_types: LayerTypes | None = None
    full_attn_idxs: list[UpTo] | None = Field(default=None)

    stems: ClassVar = ("Lfm2",)

    @property
    def width(self) -> int:
        """The network's own width."""
        said = self.intermediate_size if self.block_ff_dim is None else self.block_ff_dim
        if not self.block_auto_adjust_ff_dim:
            return said
        width = int(self.block_ffn_dim_multiplier * int(2 * said / 3))  # as the class rounds it
        return -(-width // self.block_multiple_of) * self.block_multiple_of

    def kinds(self) -> list[str]:
        """What each layer has in front of its network."""
        if self.layer_types is None:
            attends = range(self.num_hidden_layers) if self.full_attn_idxs is None else self.full_attn_idxs
            return [FULL if number in attends else CONV for number in range(self.num_hidden_layers)]
        return kinds_of_layers(self.layer_types, self.num_hidden_layers, (FULL, CONV))

    def architecture(self) -> Transformer:
        """One network in all layers."""
        if self.width < 1:
            said = "intermediate_size" if self.block_ff_dim is None else "block_ff_dim"
            raise ConfigError(f"{said} = {getattr(self, said):,} leaves a network of no width")
        network = FeedForward(hidden=self.hidden_size, width=self.width, gated=True, activation="silu")
        return self.mixed(self.kinds(), [network] * self.num_hidden_layers)
