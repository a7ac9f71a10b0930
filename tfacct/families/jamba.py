"""Jamba: Mamba in most layers, grouped-query attention in every eighth, experts in every second."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Experts, Mamba
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Switch, UpTo
from tfacct.families._endings import CLASSIFYING
from tfacct.families._experts import check_active
from tfacct.families._llama_like import LlamaLike
from tfacct.families._mixing import convolved_more
from tfacct.families.mamba import AUTO, Rank, ranked
from tfacct.ledger.workload import Workload

RELEASED = "2024-03"

NETWORK = ("gate_proj", "up_proj", "down_proj")


class Config(LlamaLike):
    """`JambaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 65536
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 262144
    num_experts: Count = 16
    num_experts_per_tok: Count = 2
    expert_layer_period: Count = 2
    expert_layer_offset: UpTo = 1
    attn_layer_period: Count = 8
    attn_layer_offset: UpTo = 4
    mamba_d_state: Count = 16
    mamba_d_conv: Count = 4
    mamba_expand: Count = 2
    mamba_dt_rank: Rank = AUTO
    mamba_conv_bias: Switch = True
    mamba_proj_bias: Switch = False

    stems: ClassVar = ("Jamba",)
    aliases: ClassVar = {"num_local_experts": "num_experts"}
    harmless: ClassVar = frozenset(
        """
        use_mamba_kernels mamba_inner_layernorms use_mambapy use_associative_scan num_logits_to_keep
        calc_logits_for_entire_prompt
        """.split()
    )
    heads: ClassVar = CLASSIFYING
    hf_paths: ClassVar = {
        **{ours: theirs for ours, theirs in LlamaLike.hf_paths.items() if ".mlp" not in ours},
        **{
            f"blocks.*.mamba.{name}": f"model.layers.*.mamba.{theirs}"
            for name, theirs in {
                "in_proj": "in_proj",
                "x_proj": "x_proj",
                "out_proj": "out_proj",
                "dt_norm": "dt_layernorm",
                "b_norm": "b_layernorm",
                "c_norm": "c_layernorm",
            }.items()
        },
        **{f"blocks.*.mamba.{name}": "model.layers.*.mamba" for name in ("conv", "dt_proj", "read_out")},
        "blocks.*.mamba_norm": "model.layers.*.input_layernorm",
        "blocks.*.mlp_norm": "model.layers.*.pre_ff_layernorm",
        **{f"blocks.*.mlp.{name}": f"model.layers.*.feed_forward.{name}" for name in NETWORK},
        "blocks.*.mlp.router": "model.layers.*.feed_forward.router",
        **{f"blocks.*.mlp.experts.{name}": "model.layers.*.feed_forward.experts" for name in NETWORK},
        "final_norm": "model.final_layernorm",
    }
    hf_tensors: ClassVar = {
        **{
            f"blocks.*.mamba.{ours}": f"model.layers.*.mamba.{theirs}"
            for ours, theirs in {
                "conv.weight": "conv1d.weight",
                "conv.bias": "conv1d.bias",
                "dt_proj.weight": "dt_proj.weight",
                "dt_proj.bias": "dt_proj.bias",
                "recurrence.weight": "A_log",
                "skip.weight": "D",
            }.items()
        },
        "blocks.*.mlp.experts.gate_proj.weight": "model.layers.*.feed_forward.experts.gate_up_proj",
        "blocks.*.mlp.experts.up_proj.weight": "model.layers.*.feed_forward.experts.gate_up_proj",
        "blocks.*.mlp.experts.down_proj.weight": "model.layers.*.feed_forward.experts.down_proj",
    }
    class_extra: ClassVar = "it convolves more positions than there are new tokens, and drops what it padded"
    class_chunks: ClassVar = "its recurrence starts from zero in a chunk after a past"
    gotchas: ClassVar = (
        "A layer has attention if its number, counted from 0, leaves attn_layer_offset when divided by"
        " attn_layer_period; all others have Mamba. It has experts if it leaves expert_layer_offset when divided by"
        " expert_layer_period; every expert is as wide as the network of the others. With num_experts = 1 none has.",
        "There are no positions: queries and keys are not rotated.",
        "The class counts Mamba's convolution, `dt_proj` and the product that reads the states under `mamba`.",
    )

    def _every(self, name: str) -> list[bool]:
        """Booleans, one for each layer, by a period and an offset. Raises ConfigError."""
        period, offset = getattr(self, f"{name}_layer_period"), getattr(self, f"{name}_layer_offset")
        if offset >= period:
            raise ConfigError(f"{name}_layer_offset = {offset:,} must be smaller than {name}_layer_period = {period:,}")
        return [number % period == offset for number in range(self.num_hidden_layers)]

    def architecture(self) -> Transformer:
        """Attention or Mamba, a network or experts, in four kinds of blocks at most."""
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        attention, dense = self.attention(rotary=None), self.feed_forward()
        mamba = Mamba(
            hidden=self.hidden_size,
            inner=self.mamba_expand * self.hidden_size,
            state=self.mamba_d_state,
            kernel=self.mamba_d_conv,
            rank=ranked(self.mamba_dt_rank, self.hidden_size),
            bias=self.mamba_proj_bias,
            conv_bias=self.mamba_conv_bias,
            activation=self.hidden_act,
            norms="scaled",
            eps=self.rms_norm_eps,
        )
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            activation=self.hidden_act,
        )
        per_layer = list(zip(self._every("attn"), self._every("expert"), strict=True))
        kinds = {
            (attends, routed): Block.of(
                attention if attends else mamba, experts if routed and self.num_experts > 1 else dense, norm=self.norm()
            )
            for attends, routed in dict.fromkeys(per_layer)
        }
        return self.decoder([kinds[kind] for kind in per_layer])

    def class_cannot(self) -> str | None:
        """It needs a layer with attention, whose cache tells it how many tokens came before."""
        return None if any(self._every("attn")) else "it does not run without a layer that has attention"

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return {"blocks.*.mamba.conv": convolved_more(self.mamba_d_conv, work.tokens, work.context)}
