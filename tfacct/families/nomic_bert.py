"""Nomic BERT: BERT's post-norm blocks without biases, with rotary positions and gated networks."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Real, Switch, Word, shown
from tfacct.families._rotary_bert import RotaryBert, class_table, heads_of

RELEASED = "2024-02"

ELSEWHERE = {
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "prenorm": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "causal": False,
    "rotary_emb_fraction": 1.0,
}
"""Fields of the files that nomic-ai published, and the value that is what transformers' class does."""


class Config(RotaryBert):
    """`NomicBertConfig`, with its class's defaults: `NomicBertForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 30528
    max_position_embeddings: Count = 2048
    type_vocab_size: Count = 2
    hidden_act: Word = "silu"
    qkv_proj_bias: Switch = False
    mlp_fc1_bias: Switch = False
    mlp_fc2_bias: Switch = False
    prenorm: Switch = False
    parallel_block: Switch = False
    use_rms_norm: Switch = False
    causal: Switch = False
    rotary_emb_fraction: Real = 1.0

    trains: ClassVar = frozenset({"sdpa", "eager", "accumulate", "sequences", "positions"})
    divided: ClassVar = frozenset({"torch"})
    dropouts: ClassVar = {
        "embedding": ("hidden_dropout_prob", 0.0),
        "residual": ("hidden_dropout_prob", 0.0),
        "attention": ("attention_probs_dropout_prob", 0.0),
        "classifier": ("classifier_dropout", None),
    }
    habits: ClassVar = frozenset({"lingers", "norms_sums", "narrow_softmax", "stores_positions"})
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
        use_xentropy
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
    gotchas: ClassVar = (
        "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step.",
        "NomicBertModel has no pooler. The head of the masked language model has a transform, a LayerNorm and a bias.",
        "Files that nomic-ai published have GPT-2's names for the sizes (n_embd, n_layer), which are read here;"
        " transformers' class reads its own names only.",
        "Biases, experts (nomic-embed-text-v2) and other orders of a block are refused: the class has none.",
    )

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields, defaults and unknown names. Raises ConfigError of experts too."""
        if raw.get("num_experts"):
            raise ConfigError(
                f"num_experts = {shown(raw['num_experts'])}: nomic-embed-text-v2-moe has experts in every other layer,"
                " and neither transformers' class nor a part here has those"
            )
        return super().read(raw)
