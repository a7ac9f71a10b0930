"""Nomic BERT: BERT's post-norm blocks without biases, with rotary positions and gated networks. In files with code of
their own also with biases, plain networks, and experts in every few layers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Experts, FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, FamilyConfig, Real, Switch, UpTo, Word
from tfacct.families._experts import check_active
from tfacct.families._rotary_bert import RotaryBert, class_table, heads_of

RELEASED = "2024-02"

ELSEWHERE = {
    "prenorm": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "causal": False,
    "rotary_emb_fraction": 1.0,
    "add_pooling_layer": False,
    "ffn_div": 1,
    "num_shared_experts": 0,
    "expert_choice_router": False,
}
"""Fields of the files that nomic-ai published, and the value that is counted."""
GATES = {"glu": "sigmoid", "swiglu": "silu", "geglu": "gelu"}
"""An activation_function of theirs that makes networks gated → the activation of the gate."""


class Config(RotaryBert):
    """`NomicBertConfig`, with its class's defaults: `NomicBertForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 30528
    max_position_embeddings: Count = 2048
    type_vocab_size: Count = 2
    hidden_act: Word = "silu"
    activation_function: Word | None = None
    qkv_proj_bias: Switch = False
    mlp_fc1_bias: Switch = False
    mlp_fc2_bias: Switch = False
    num_experts: UpTo = 0
    moe_top_k: Count = 1
    moe_every_n_layers: UpTo = 0
    num_shared_experts: UpTo = 0
    ffn_div: Count = 1
    expert_choice_router: Switch = False
    add_pooling_layer: Switch = False
    prenorm: Switch = False
    parallel_block: Switch = False
    use_rms_norm: Switch = False
    causal: Switch = False
    rotary_emb_fraction: Real = 1.0

    dropouts: ClassVar = {
        "embedding": ("hidden_dropout_prob", 0.0),
        "residual": ("hidden_dropout_prob", 0.0),
        "attention": ("attention_probs_dropout_prob", 0.0),
        "classifier": ("classifier_dropout", None),
    }
    stems: ClassVar = ("NomicBert",)
    in_files: ClassVar = (
        *RotaryBert.in_files,
        (r"\.mlp\.fc11\.", ".mlp.up_proj."),
        (r"\.mlp\.fc12\.", ".mlp.gate_proj."),
        (r"\.mlp\.fc2\.", ".mlp.down_proj."),
    )
    aliases: ClassVar = {
        "n_embd": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "n_inner": "intermediate_size",
        "n_positions": "max_position_embeddings",
    }
    uncounted: ClassVar = RotaryBert.uncounted | frozenset(ELSEWHERE)
    understood: ClassVar = ELSEWHERE
    harmless: ClassVar = frozenset(
        """
        rotary_emb_base rotary_emb_interleaved rotary_emb_scale_base rotary_scaling_factor max_trained_positions
        dense_seq_output fused_bias_fc fused_dropout_add_ln last_layer_subset pad_vocab_size_multiple
        parallel_block_tied_norm scale_attn_by_inverse_layer_idx scale_attn_weights reorder_and_upcast_attn
        summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj use_flash_attn
        use_xentropy moe_impl moe_normalize_expert_weights moe_resid_pdrop
        """.split()
    )
    heads: ClassVar = heads_of("nomic_bert.")
    body: ClassVar = "nomic_bert."
    theta: ClassVar = 1000.0
    hf_paths: ClassVar = class_table(
        "nomic_bert.",
        {
            "lm_head.transform": "cls.predictions.transform.dense",
            "lm_head.norm": "cls.predictions.transform.layer_norm",
            "lm_head": "cls.predictions.decoder",
        },
    )
    hf_tensors: ClassVar = {"lm_head.bias": "cls.predictions.bias"}

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields, defaults and unknown names. Null is as good as absent where one value is understood, and
        an activation_function that gates is a hidden_act."""
        raw = {name: value for name, value in raw.items() if value is not None or name not in ELSEWHERE}
        said = raw.get("activation_function")
        if isinstance(said, str) and said in GATES:
            del raw["activation_function"]
            raw["hidden_act"] = GATES[said]
        return super().read(raw)

    def attention(self) -> Attention:
        """With biases on all four projections, or on none."""
        return replace(super().attention(), qkv_bias=self.qkv_proj_bias, out_bias=self.qkv_proj_bias)

    def network(self) -> FeedForward:
        """Gated or not, with biases or without. Raises ConfigError."""
        if self.mlp_fc1_bias and not self.mlp_fc2_bias:
            raise self.refused("mlp_fc2_bias", self.mlp_fc2_bias)
        return FeedForward(
            hidden=self.hidden_size,
            width=self.intermediate_size,
            gated=self.activation_function is None,
            bias=self.mlp_fc1_bias,
            down_bias=self.mlp_fc2_bias,
            activation=self.activation_function or self.hidden_act,
        )

    def architecture(self) -> Transformer:
        """Equal blocks, or experts in every few of them. Raises ConfigError."""
        shape, every = super().architecture(), self.moe_every_n_layers
        if not every or not self.num_experts:
            if self.num_experts:
                raise self.refused("num_experts", self.num_experts)
            return shape
        check_active(self.moe_top_k, self.num_experts, ("moe_top_k", "num_experts"))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.moe_top_k,
            width=self.intermediate_size,
            gated=False,
            sum_bias=True,
            activation=self.activation_function or self.hidden_act,
        )
        plain = shape.stacks[0].block
        sparse = Block.of(self.attention(), experts, norm=self.norm(), order=self.order)
        blocks = [sparse if number % every == 1 else plain for number in range(self.num_hidden_layers)]
        return replace(shape, stacks=stacks(blocks))

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        if self.num_experts or self.qkv_proj_bias or self.mlp_fc1_bias or self.mlp_fc2_bias or self.activation_function:
            return "it has neither biases nor plain networks nor experts"
        return None
