"""GTE: BERT's post-norm blocks with rotary positions and gated networks, of which the last product has a bias."""

from typing import ClassVar

from tfacct.families._base import Count, UpTo, Word
from tfacct.families._bert_like import LM_HEAD
from tfacct.families._rotary_bert import RotaryBert, class_table, heads_of

RELEASED = "2024-07"


class Config(RotaryBert):
    """`GteConfig`, with its class's defaults: `GteForMaskedLM`, or what `architectures` names."""

    vocab_size: Count = 250048
    max_position_embeddings: Count = 8192
    type_vocab_size: UpTo = 1
    layer_norm_type: Word = "layer_norm"
    position_embedding_type: Word = "rope"

    dropouts: ClassVar = {
        "embedding": ("hidden_dropout_prob", 0.1),
        "residual": ("hidden_dropout_prob", 0.1),
        "mlp_product": ("hidden_dropout_prob", 0.1),
        "attention": ("attention_probs_dropout_prob", 0.0),
        "classifier": ("classifier_dropout", None),
    }
    stems: ClassVar = ("Gte", "New")
    uncounted: ClassVar = RotaryBert.uncounted | {"layer_norm_type", "position_embedding_type"}
    understood: ClassVar = {"layer_norm_type": "layer_norm", "position_embedding_type": "rope"}
    harmless: ClassVar = frozenset(
        """
        pack_qkv unpad_inputs use_memory_efficient_attention logn_attention_scale logn_attention_clip1
        """.split()
    )
    heads: ClassVar = heads_of("gte.")
    head_act: ClassVar = "gelu"
    body: ClassVar = "gte."
    theta: ClassVar = 160_000.0
    qkvo_bias: ClassVar = True
    down_bias: ClassVar = True
    hf_paths: ClassVar = class_table("gte.", LM_HEAD)
