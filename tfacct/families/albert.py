"""ALBERT: BERT's encoder, with one block's weights for all blocks, and tables narrower than the model."""

from dataclasses import replace
from typing import ClassVar

from tfacct.families._base import Count, Word
from tfacct.families._bert_like import ENCODING, PRETRAINED, TABLES, BertLike, Sizes

RELEASED = "2019-09"

LAYER = {
    "attn.q_proj": "attention.query",
    "attn.k_proj": "attention.key",
    "attn.v_proj": "attention.value",
    "attn.scores": "attention",
    "attn.values": "attention",
    "attn.o_proj": "attention.dense",
    "attn_norm": "attention.LayerNorm",
    "mlp.up_proj": "ffn",
    "mlp.down_proj": "ffn_output",
    "mlp_norm": "full_layer_layer_norm",
}
BLOCK = "albert.encoder.albert_layer_groups.0.albert_layers.0"


class Config(BertLike):
    """`AlbertConfig`, with its class's defaults: `AlbertForMaskedLM`, or the class that `architectures` names."""

    vocab_size: Count = 30000
    embedding_size: Count = 128
    hidden_size: Count = 4096
    num_attention_heads: Count = 64
    intermediate_size: Count = 16384
    type_vocab_size: Count = 2
    position_embedding_type: Word = "absolute"
    num_hidden_groups: Count = 1
    inner_group_num: Count = 1
    hidden_act: Word = "gelu_new"

    dropouts: ClassVar = {
        "embedding": ("hidden_dropout_prob", 0.0),
        "residual": ("hidden_dropout_prob", 0.0),
        "attention": ("attention_probs_dropout_prob", 0.0),
    }
    changes_training: ClassVar = frozenset({"chunk_size_feed_forward"})
    stems: ClassVar = ("Albert",)
    uncounted: ClassVar = BertLike.uncounted | {"position_embedding_type"}
    understood: ClassVar = {"position_embedding_type": "absolute", "num_hidden_groups": 1, "inner_group_num": 1}
    harmless: ClassVar = frozenset("gap_size net_structure_type num_memory_blocks down_scale_factor".split())
    heads: ClassVar = {
        **ENCODING,
        "Model": replace(ENCODING["Model"], paths={"pooler": "pooler"}),
        "ForSequenceClassification": replace(
            ENCODING["ForSequenceClassification"], paths={"pooler": "albert.pooler", "classifier": "classifier"}
        ),
        "ForPreTraining": replace(
            PRETRAINED, paths={"pooler": "albert.pooler", "classifier": "sop_classifier.classifier"}
        ),
    }
    body: ClassVar = "albert."
    once: ClassVar = True
    hf_paths: ClassVar = {
        **{ours: f"albert.{theirs}" for ours, theirs in TABLES.items()},
        "embed.project": "albert.encoder.embedding_hidden_mapping_in",
        **{f"blocks.*.{ours}": f"{BLOCK}.{theirs}" for ours, theirs in LAYER.items()},
        "lm_head.transform": "predictions.dense",
        "lm_head.norm": "predictions.LayerNorm",
        "lm_head": "predictions.decoder",
    }
    hf_tensors: ClassVar = {"lm_head.bias": "predictions.bias"}
    gotchas: ClassVar = (
        "An encoder: every token sees all others, nothing is kept between steps, and there is no decode step.",
        "All blocks run with the weights of one: they are stored once, and every block multiplies with them.",
        "Tables of tokens, positions and segments have rows of embedding_size. A product behind their norm makes them"
        " as long as the model is wide, and the head makes them short again.",
        "Several groups of blocks (num_hidden_groups, inner_group_num) are refused, and so is a position_embedding_type"
        " other than absolute.",
    )

    @property
    def sizes(self) -> Sizes:
        """As the family's; the product behind the tables is there even where they are as wide as the model."""
        return super().sizes._replace(table=self.embedding_size)
