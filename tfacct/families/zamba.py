"""Zamba: Mamba with heads in every layer; in some, one transformer block in front of it, which all of them share."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block, Sublayer
from tfacct.architecture.parts import HeadedMamba, Norm, SharedOutput
from tfacct.families._base import Count, Layers, Real, Switch, UpTo, Word, share
from tfacct.families._endings import CLASSIFYING
from tfacct.families._layers import LayerTypes
from tfacct.families._llama_like import LlamaLike
from tfacct.families._mixing import convolved_more
from tfacct.families._zamba_like import HYBRID, MAMBA, ZambaLike, head_dim_from
from tfacct.families.mamba import AUTO, Rank, ranked
from tfacct.ledger.workload import Workload

RELEASED = "2024-05"
FIRST = [MAMBA, MAMBA, HYBRID]
"""The kinds of the first layers, where the config does not list them."""
LAYER = "model.layers.*"
BLOCK = f"{LAYER}.shared_transf"


def mixer_paths(mixer: str) -> Mapping[str, str]:
    """Modules of the mixer, ours → the class's, which multiplies most itself."""
    own = dict.fromkeys(("conv", "x_proj", "dt_proj", "read_out"), mixer)
    own |= {name: f"{mixer}.{name}" for name in ("in_proj", "out_proj")}
    return {f"blocks.*.mamba.{name}": theirs for name, theirs in own.items()}


def mixer_tensors(mixer: str) -> Mapping[str, str]:
    """Tensors of the mixer, ours → the class's."""
    named = {
        **{f"conv.{which}": f"conv1d.{which}" for which in ("weight", "bias")},
        "x_proj.weight": "x_proj_weight",
        **{f"dt_proj.{which}": f"dt_proj_{which}" for which in ("weight", "bias")},
        "recurrence.weight": "A_log",
        "skip.weight": "D",
    }
    return {f"blocks.*.mamba.{ours}": f"{mixer}.{theirs}" for ours, theirs in named.items()}


class Config(ZambaLike):
    """`ZambaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    hidden_size: Count = 3712
    num_hidden_layers: Layers = 76
    num_attention_heads: Count = 16
    num_key_value_heads: Count = 16
    intermediate_size: Count = 14848
    head_dim: Count = Field(default_factory=head_dim_from)
    attention_hidden_size: Count | None = None
    max_position_embeddings: Count = 4096
    tie_word_embeddings: Switch = True
    hidden_act: Word = "gelu"
    hidden_mamba_act: Word = "silu"
    rms_norm_eps: Real = 1e-5
    layers_block_type: LayerTypes | None = None
    attn_layer_period: Count = 6
    attn_layer_offset: UpTo = 4
    n_mamba_heads: Count = 2
    mamba_d_state: Count = 16
    mamba_d_conv: Count = 4
    mamba_expand: Count = 2
    mamba_dt_rank: Rank = AUTO
    mamba_conv_bias: Switch = True
    mamba_proj_bias: Switch = False

    stems: ClassVar = ("Zamba",)
    aliases: ClassVar = {"layer_types": "layers_block_type", "attention_head_dim": "head_dim"}
    uncounted: ClassVar = LlamaLike.uncounted | {"hidden_mamba_act"}
    harmless: ClassVar = frozenset(
        """
        num_logits_to_keep time_step_floor time_step_max time_step_min use_associative_scan use_mamba_kernels
        """.split()
    )
    heads: ClassVar = CLASSIFYING
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        "blocks.*.attn_norm": f"{BLOCK}.input_layernorm",
        **{f"blocks.*.attn.{name}_proj": f"{BLOCK}.self_attn.{name}_proj" for name in "qkvo"},
        **{f"blocks.*.attn.{name}": f"{BLOCK}.self_attn" for name in ("scores", "values")},
        "blocks.*.mlp_norm": f"{BLOCK}.pre_ff_layernorm",
        **{f"blocks.*.mlp.{name}_proj": f"{BLOCK}.feed_forward.{name}_proj" for name in ("gate", "up", "down")},
        "blocks.*.shared_out.proj": f"{LAYER}.linear",
        "blocks.*.mamba_norm": f"{LAYER}.input_layernorm",
        **mixer_paths(f"{LAYER}.mamba"),
        "final_norm": "model.final_layernorm",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar[Mapping[str, str]] = mixer_tensors(f"{LAYER}.mamba")
    class_extra: ClassVar = "it convolves more positions than there are new tokens, and drops what it padded"

    def listed(self) -> list[str]:
        """layers_block_type, by default hybrid layers at a period behind the first ones."""
        period, offset = self.attn_layer_period, self.attn_layer_offset
        behind = range(self.num_hidden_layers - len(FIRST))
        default = [*FIRST, *(HYBRID if number % period == offset else MAMBA for number in behind)]
        return default if self.layers_block_type is None else self.layers_block_type

    def mixer(self) -> HeadedMamba:
        """The mixer of every layer. Raises ConfigError."""
        inner = self.mamba_expand * self.hidden_size
        return HeadedMamba(
            hidden=self.hidden_size,
            heads=self.n_mamba_heads,
            head_dim=share(inner, self.n_mamba_heads, "mamba_expand · hidden_size by n_mamba_heads"),
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            rank=ranked(self.mamba_dt_rank, self.hidden_size),
            bias=self.mamba_proj_bias,
            conv_bias=self.mamba_conv_bias,
            activation=self.hidden_mamba_act,
        )

    def hybrid(self) -> Block:
        """A layer with the shared block in front of Mamba."""
        both = Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps, joined=True)
        return Block(
            (
                Sublayer(self.of_both(self.attention_hidden_size), both, gives="next"),
                Sublayer(self.feed_forward(), self.norm(), gives="next"),
                Sublayer(SharedOutput(hidden=self.hidden_size), gives="sum"),
                Sublayer(self.mixer(), self.norm()),
            )
        )

    def class_paths(self) -> Mapping[str, str]:
        """Hybrid layers have their mixer elsewhere."""
        table = dict(self.hf_paths)
        for number in self.calls():
            decoder = f"model.layers.{number}.mamba_decoder"
            table |= {
                ours.replace("*", str(number)): theirs for ours, theirs in mixer_paths(f"{decoder}.mamba").items()
            }
            table[f"blocks.{number}.mamba_norm"] = f"{decoder}.input_layernorm"
        return table

    def tensors(self) -> dict[str, str]:
        """The same."""
        table = dict(self.hf_tensors)
        for number in self.calls():
            own = mixer_tensors(f"model.layers.{number}.mamba_decoder.mamba")
            table |= {ours.replace("*", str(number)): theirs for ours, theirs in own.items()}
        return self.ending.renamed(table, self.body)

    def class_cannot(self) -> str | None:
        """It ties the block of a second layer to that of the first."""
        return None if len(self.calls()) > 1 else "it does not run without two layers that have attention"

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return {"blocks.*.mamba.conv": convolved_more(self.mamba_d_conv, work.tokens, work.context)}
