"""Falcon-H1: attention and Mamba-2 read the same norm in every layer, and both results are added."""

from typing import Annotated, Any, ClassVar, TypeAlias

from pydantic import Field
from pydantic_core import core_schema

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import Embedding, FeedForward, Head
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Checked, Count, Layers, Real, Switch
from tfacct.families._endings import DECODER
from tfacct.families._llama_like import head_dim_from
from tfacct.families._mamba_hybrid import MambaHybrid

RELEASED = "2025-05"

NETWORK = ("gate_proj", "up_proj", "down_proj")
MULTIPLIERS = frozenset(
    """
    lm_head_multiplier embedding_multiplier mlp_multipliers key_multiplier attention_out_multiplier
    attention_in_multiplier ssm_multipliers ssm_in_multiplier ssm_out_multiplier
    """.split()
)


def _reals(count: int) -> Checked:
    """A list of so many numbers."""
    number = core_schema.float_schema(strict=True, allow_inf_nan=False)
    return Checked(core_schema.list_schema(number, strict=True, min_length=count, max_length=count))


Two: TypeAlias = Annotated[list[float], _reals(2)]
Five: TypeAlias = Annotated[list[float], _reals(5)]


class Config(MambaHybrid):
    """`FalconH1Config`, with its class's defaults, sizes too."""

    vocab_size: Count = 128000
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    head_dim: Count = Field(default_factory=head_dim_from)
    max_position_embeddings: Count = 8192
    rms_norm_eps: Real = 1e-5
    attention_bias: Switch = False
    mlp_bias: Switch = False
    projectors_bias: Switch = False
    mamba_d_ssm: Count | None = 1024
    mamba_rms_norm: Switch = False
    mamba_norm_before_gate: Switch = True
    lm_head_multiplier: Real = 1.0
    embedding_multiplier: Real = 1.0
    mlp_multipliers: Two | None = None
    key_multiplier: Real = 1.0
    attention_out_multiplier: Real = 1.0
    attention_in_multiplier: Real = 1.0
    ssm_multipliers: Five | None = None
    ssm_in_multiplier: Real = 1.0
    ssm_out_multiplier: Real = 1.0

    stems: ClassVar = ("FalconH1",)
    nulls: ClassVar = {"num_key_value_heads": "num_attention_heads"}
    uncounted: ClassVar = MambaHybrid.uncounted | MULTIPLIERS | {"mamba_norm_before_gate"}
    harmless: ClassVar = MambaHybrid.harmless | {"attn_layer_indices", "mamba_use_mlp", "mlp_expansion_factor"}
    heads: ClassVar = DECODER
    hf_paths: ClassVar = {
        **MambaHybrid.hf_paths,
        "blocks.*.mlp_norm": "model.layers.*.pre_ff_layernorm",
        **{f"blocks.*.mlp.{name}": f"model.layers.*.feed_forward.{name}" for name in NETWORK},
        "final_norm": "model.final_layernorm",
    }

    def width(self) -> tuple[int, str]:
        """mamba_d_ssm, or what Bamba has where it is null."""
        return MambaHybrid.width(self) if self.mamba_d_ssm is None else (self.mamba_d_ssm, "mamba_d_ssm")

    def of_mixer(self) -> dict[str, Any]:
        """Norm, bias and multipliers."""
        return {
            **MambaHybrid.of_mixer(self),
            "gated_norm": self.mamba_rms_norm,
            "norm_first": self.mamba_norm_before_gate,
            "out_bias": self.projectors_bias,
            "factors": tuple(self.ssm_multipliers or (1.0,) * 5),
        }

    def architecture(self) -> Transformer:
        """Equal blocks: Mamba-2, attention beside it, a network."""
        biased, norm = self.attention_bias, self.norm()
        gate_scale, down_scale = self.mlp_multipliers or (1.0, 1.0)
        attention = self.attention(qkv_bias=biased, out_bias=biased, key_scale=self.key_multiplier)
        network = FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=True,
            bias=self.mlp_bias,
            activation=self.activation,
            gate_scale=gate_scale,
        )
        sublayers = (
            Sublayer(self.mixer(), norm, factor=self.ssm_out_multiplier, scale=self.ssm_in_multiplier),
            Sublayer(attention, factor=self.attention_out_multiplier, scale=self.attention_in_multiplier, beside=True),
            Sublayer(network, norm, factor=down_scale),
        )
        vocab, hidden = self.vocab_size, self.hidden_size
        return self.decoder(
            self.equal_blocks(Block(sublayers)),
            embed=Embedding(vocab=vocab, hidden=hidden, scaled=True, factor=self.embedding_multiplier),
            head=Head(vocab=vocab, hidden=hidden, tied=self.tie_word_embeddings, logit_scale=self.lm_head_multiplier),
        )
