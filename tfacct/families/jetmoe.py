"""JetMoE: experts in attention, which make its queries and take back what these read, and in the network."""

from typing import ClassVar

from pydantic import Field

from tfacct.architecture.parts import Experts, SentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Layers, Switch, Word, even
from tfacct.families._endings import CLASSIFYING
from tfacct.families._experts import check_active
from tfacct.families._llama_like import LlamaLike

RELEASED = "2024-04"
LAYER = "model.layers.*"
BANKS = {
    **{f"blocks.*.attn.experts.{ours}": f"{LAYER}.self_attention.experts.{theirs}" for ours, theirs in (
        ("q_proj", "input_linear"), ("o_proj", "output_linear"),
    )},
    **{f"blocks.*.mlp.experts.{ours}": f"{LAYER}.mlp.{theirs}" for ours, theirs in (
        ("gate_proj", "input_linear"), ("up_proj", "input_linear"), ("down_proj", "output_linear"),
    )},
}  # fmt: skip


class Config(LlamaLike):
    """`JetMoeConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    vocab_size: Count = 32000
    hidden_size: Count = 2048
    num_hidden_layers: Layers = 12
    num_attention_heads: Count | None = None  # type: ignore[assignment]  # the class makes it of the next two
    num_key_value_heads: Count = 16
    num_experts_per_tok: Count = 2
    num_local_experts: Count = 8
    head_dim: Count = Field(default=128)
    intermediate_size: Count = 5632
    max_position_embeddings: Count = 4096
    tie_word_embeddings: Switch = True
    hidden_act: Word = "silu"

    stems: ClassVar = ("JetMoe",)
    aliases: ClassVar = {"kv_channels": "head_dim", "activation_function": "hidden_act"}
    heads: ClassVar = CLASSIFYING
    harmless: ClassVar = frozenset({"aux_loss_coef"})
    hf_paths: ClassVar = {
        **{ours: theirs for ours, theirs in LlamaLike.hf_paths.items() if ".attn." not in ours and ".mlp." not in ours},
        "blocks.*.attn.router": f"{LAYER}.self_attention.experts.router.layer",
        **{f"blocks.*.attn.{which}_proj": f"{LAYER}.self_attention.kv_proj" for which in "kv"},
        **{f"blocks.*.attn.{name}": f"{LAYER}.self_attention" for name in ("scores", "values")},
        "blocks.*.mlp.router": f"{LAYER}.mlp.router.layer",
        **BANKS,
    }
    hf_tensors: ClassVar = {
        **{f"{ours}.weight": f"{theirs}.weight" for ours, theirs in BANKS.items()},
        "blocks.*.attn.sum.bias": f"{LAYER}.self_attention.experts.bias",
        "blocks.*.mlp.sum.bias": f"{LAYER}.mlp.bias",
    }

    def architecture(self) -> Transformer:
        """Experts on both sides of every layer. Raises ConfigError."""
        active, experts, kv_heads = self.num_experts_per_tok, self.num_local_experts, self.num_key_value_heads
        check_active(active, experts, ("num_experts_per_tok", "num_local_experts"))
        if self.num_attention_heads not in (None, active * kv_heads):
            raise ConfigError(
                f"num_attention_heads = {self.num_attention_heads:,} contradicts num_key_value_heads ·"
                f" num_experts_per_tok = {active * kv_heads:,}"
            )
        hidden = self.hidden_size
        attention = SentAttention(
            hidden=hidden,
            kv_heads=kv_heads,
            group=active,
            head_dim=even(self.head_dim),
            experts=experts,
            rotary=self.rotary(),
        )
        network = Experts(
            hidden=hidden,
            experts=experts,
            active=active,
            width=self.intermediate_size,
            activation=self.activation,
            sum_bias=True,
        )
        return self.decoder(self.equal_blocks(self.block(attention, network)))
